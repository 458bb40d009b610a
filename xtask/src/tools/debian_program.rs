//! Programs that tests use: those of the system, or those of Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::debian;
use crate::{files, process, workspace};

pub(crate) const REDIS: DebianProgram =
    DebianProgram::new("redis-server", "redis-server", "usr/bin/redis-server");
pub(crate) const PROMTOOL: DebianProgram = DebianProgram::new("promtool", "prometheus", "usr/bin/promtool");
pub(crate) const ZSH: DebianProgram = DebianProgram::new("zsh", "zsh", "bin/zsh");
pub(crate) const FISH: DebianProgram = DebianProgram::new("fish", "fish", "usr/bin/fish");
pub(crate) const CHROMIUM: DebianProgram = DebianProgram::new(
    "chromium-headless-shell",
    "chromium-headless-shell",
    "usr/lib/chromium/chromium-headless-shell",
);
/// A web server that stands in front of others.
pub(crate) const NGINX: DebianProgram =
    DebianProgram { version_option: "-v", ..DebianProgram::new("nginx", "nginx", "usr/sbin/nginx") };
/// A load balancer.
pub(crate) const HAPROXY: DebianProgram =
    DebianProgram { version_option: "-v", ..DebianProgram::new("haproxy", "haproxy", "usr/sbin/haproxy") };
/// A load generator for HTTP.
pub(crate) const WRK: DebianProgram = DebianProgram {
    tells_version: false,
    version_option: "-v",
    ..DebianProgram::new("wrk", "wrk", "usr/bin/wrk")
};
pub(crate) const VALGRIND: DebianProgram = DebianProgram {
    variables: &[
        ("VALGRIND_LIB", "$here/usr/libexec/valgrind"),
        // It must know the functions of the C library by their names.
        ("VALGRIND_OPTS", "--extra-debuginfo-path=$here/usr/lib/debug"),
    ],
    ..DebianProgram::new("valgrind", "valgrind", "usr/bin/valgrind.bin")
};

/// A program of a package.
pub(crate) struct DebianProgram {
    /// The name of the program.
    pub(crate) name: &'static str,
    package: &'static str,
    /// Where the package has the program.
    path: &'static str,
    /// What an unpacked program needs to find its parts; `$here` is their folder.
    variables: &'static [(&'static str, &'static str)],
    /// What makes the program tell its version.
    version_option: &'static str,
    /// The program ends without an error then.
    tells_version: bool,
}

impl DebianProgram {
    const fn new(name: &'static str, package: &'static str, path: &'static str) -> DebianProgram {
        DebianProgram {
            name,
            package,
            path,
            variables: &[],
            version_option: "--version",
            tells_version: true,
        }
    }

    /// Downloads the program unless it is there, and returns it.
    ///
    /// # Errors
    /// The system has no `apt-get`, or the package cannot be downloaded.
    pub(crate) fn fetch(&self) -> Result<PathBuf> {
        let name = self.name;
        if self.starts(name.as_ref()) {
            return Ok(name.into());
        }
        let folder = workspace::target().join(name);
        let program = folder.join(name);
        files::make_once(&folder, |unfinished| {
            debian::unpack_with_dependencies(self.package, unfinished)?;
            ensure!(unfinished.join(self.path).exists(), "the package has no program {}", self.path);
            let script = unfinished.join(name);
            fs::write(&script, self.script())?;
            files::make_executable(&script)
        })?;
        ensure!(self.starts(&program), "{} cannot be started", program.display());
        Ok(program)
    }

    fn starts(&self, program: &Path) -> bool {
        if self.tells_version {
            return process::starts_with(program, self.version_option);
        }
        // A shell tells by these that it has found no program.
        let told = Command::new(program).arg(self.version_option).output();
        told.is_ok_and(|told| !matches!(told.status.code(), Some(126 | 127) | None))
    }

    /// Starts the unpacked program with the unpacked libraries, in the same process.
    fn script(&self) -> String {
        let exports: String =
            self.variables.iter().map(|(name, value)| format!("export {name}=\"{value}\"\n")).collect();
        format!(
            r#"#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
for libraries in "$here"/usr/lib/*-linux-gnu* "$here"/usr/lib/*-linux-gnu*/pulseaudio; do
    LD_LIBRARY_PATH="$libraries${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
done
export LD_LIBRARY_PATH
{exports}exec "$here/{}" "$@"
"#,
            self.path
        )
    }
}
