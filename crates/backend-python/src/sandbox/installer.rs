//! The sandbox of programs that make the environment of a model in a sandbox.
//!
//! They are programs of the operator, and run nothing of the model. The sandbox is there in case that they do: they write
//! only to the environment and to a private folder, and have no secrets of the server in their variables.
use std::{env, ffi::OsStr, io, path::Path, process::Command};

use super::{launcher::spawn_with, protection::Protection, rights::SandboxRights, settings::SandboxMode};
use crate::process_group::GroupChild;

/// See the module documentation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InstallerSandbox<'a> {
    pub(crate) mode: SandboxMode,
    /// The folders in which the program may write. The last one is private, and removed afterwards.
    pub(crate) writable: &'a [&'a Path],
    /// Packages come over the network.
    pub(crate) has_network: bool,
}

/// The variables that a program gets: those that find programs, the network and the index of packages.
const VARIABLES: [&str; 16] = [
    "ALL_PROXY",
    "CURL_CA_BUNDLE",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "LANGUAGE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "NO_PROXY",
    "PATH",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TZ",
    "USER",
];

/// The beginnings of further names.
const PREFIXES: [&str; 4] = ["LC_", "PIP_", "PYTHON", "UV_"];

/// Secrets for publishing packages, which installing does not need.
const SECRETS: &str = "UV_PUBLISH_";

impl InstallerSandbox<'_> {
    /// Leaves only those variables of the server that an installer needs. The command's own ones are added later.
    pub(crate) fn limit_variables(&self, command: &mut Command) {
        command.env_clear().envs(env::vars_os().filter(|(name, _)| is_passed(name)));
        let Some(private) = self.writable.last() else { return };
        command.env("TMPDIR", private).env("XDG_CACHE_HOME", private.join("cache"));
        command.env("PIP_CACHE_DIR", private.join("pip")).env("UV_CACHE_DIR", private.join("uv"));
        command.env("UV_PYTHON_DOWNLOADS", "never");
    }

    /// Starts a program in a process group of its own.
    ///
    /// # Errors
    /// That of the system, or the sandbox is required and incomplete.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<GroupChild> {
        let Self { mode, writable, has_network } = *self;
        let rights = SandboxRights { writable, user: None, has_network, group: None };
        spawn_with(command, &rights, |missing| {
            // It keeps the user of the server, to whom the environment belongs.
            let matters = missing.iter().any(|protection| *protection != Protection::Processes);
            mode == SandboxMode::Required && matters
        })
    }
}

fn is_passed(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_named = VARIABLES.iter().any(|passed| name.eq_ignore_ascii_case(passed));
    let is_meant = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    (is_named || is_meant) && !name.starts_with(SECRETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_the_server_are_not_passed() {
        for name in ["PATH", "https_proxy", "PIP_INDEX_URL", "UV_INDEX_URL", "LC_ALL"] {
            assert!(is_passed(OsStr::new(name)), "{name}");
        }
        for name in
            ["AWS_SECRET_ACCESS_KEY", "NEREID_API_KEY_FILE", "UV_PUBLISH_TOKEN", "PATHS", "LD_PRELOAD"]
        {
            assert!(!is_passed(OsStr::new(name)), "{name}");
        }
    }
}
