//! Reads the file of options (`--config`) again while the server runs.
use std::ffi::OsString;

use assembly::logging::LogSettings;

use crate::options::{self, GivenOptions, Invocation, ProcessEnvironment, ResolvedOptions};

/// The options that take effect in a running server.
const LIVE: [&str; 5] = ["log-verbose", "log-info", "log-warning", "log-error", "log-format"];

/// The options as they were last read.
#[derive(Debug)]
pub struct OptionsReload {
    arguments: Vec<OsString>,
    environment: ProcessEnvironment,
    given: GivenOptions,
}

impl OptionsReload {
    /// `arguments` and `environment` are those that `options` were made from. `None` without a file of options: then
    /// nothing can change.
    pub fn new(
        arguments: Vec<OsString>,
        environment: ProcessEnvironment,
        options: &ResolvedOptions,
    ) -> Option<Self> {
        options.has_file(&environment).then(|| Self { arguments, environment, given: options.given.clone() })
    }

    /// Reads the file again. Applies what can change while the server runs, and logs a warning about what cannot. If
    /// the file is wrong, everything stays as it is, and the log has the reason.
    ///
    /// What a client has changed since then stays, unless the file has another value than before. Blocks while it reads.
    pub fn reload(&mut self, log: &LogSettings) {
        let options = match options::parse(self.arguments.clone(), &self.environment) {
            Ok(Invocation::Serve(options)) => options,
            Ok(Invocation::Print(_)) => return,
            Err(bad) => {
                log::error!("the options stay as they are (SIGHUP): {}", bad.reason());
                return;
            }
        };
        let (live, others): (Vec<_>, Vec<_>) =
            changed(&self.given, &options.given).into_iter().partition(|name| LIVE.contains(name));
        if !live.is_empty() {
            log.update(|levels| *levels = options.logging.levels);
            log::info!("read the options again (SIGHUP); changed: {}", live.join(", "));
        }
        if !others.is_empty() {
            log::warn!(
                "the options {} have changed; the server reads them when it starts",
                others.join(", ")
            );
        }
        if live.is_empty() && others.is_empty() {
            log::info!("read the options again (SIGHUP); none has changed");
        }
        self.given = options.given;
    }
}

/// The names of the options whose values differ.
fn changed(old: &GivenOptions, new: &GivenOptions) -> Vec<&'static str> {
    let mut names: Vec<_> = old.keys().chain(new.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| old.get(name) != new.get(name));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_came_went_or_have_other_values_have_changed() {
        let given = |options: &[(&'static str, &str)]| -> GivenOptions {
            options.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect()
        };
        let old = given(&[("http-port", "1"), ("grpc-port", "2"), ("id", "a")]);
        let new = given(&[("http-port", "1"), ("grpc-port", "3"), ("log-info", "false")]);
        assert_eq!(changed(&old, &new), ["grpc-port", "id", "log-info"]);
        assert!(changed(&old, &old).is_empty());
    }
}
