//! The settings of sandboxes, and the parameter of a model.
use std::{collections::BTreeMap, path::PathBuf, str::FromStr};

use rustix::process::{getgid, getuid};
use vocabulary::Error;

const SANDBOX: &str = "sandbox";
const USER: &str = "sandbox-user";
const DIRECTORY: &str = "sandbox-directory";
const OPEN_FILES: &str = "sandbox-max-open-files";
const PROCESSES: &str = "sandbox-max-processes";
const MEMORY: &str = "sandbox-max-memory-bytes";

/// Whether workers run in a sandbox. The order is that of strictness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SandboxMode {
    /// They do not.
    #[default]
    Off,
    /// They do, with what the kernel can do. The log names what it cannot do.
    BestEffort,
    /// They do, or the model is not loaded.
    Required,
}

impl FromStr for SandboxMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            "best-effort" => Ok(Self::BestEffort),
            "required" => Ok(Self::Required),
            _ => Err("which is neither 'off' nor 'best-effort' nor 'required'"),
        }
    }
}

/// The user that a worker becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SandboxUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl SandboxUser {
    /// Whether the server has another user or group.
    pub(super) fn is_another(self) -> bool {
        (self.uid, self.gid) != (getuid().as_raw(), getgid().as_raw())
    }
}

impl FromStr for SandboxUser {
    type Err = ();

    /// `<uid>` or `<uid>:<gid>`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (uid, gid) = text.split_once(':').unwrap_or((text, text));
        // The largest number means "no change" to the system.
        let number = |text: &str| text.parse().ok().filter(|number| *number < u32::MAX).ok_or(());
        let user = Self { uid: number(uid)?, gid: number(gid)? };
        // The superuser would keep much of its power.
        if user.uid == 0 { Err(()) } else { Ok(user) }
    }
}

/// What the sandboxes of a model's workers are like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SandboxSettings {
    pub(crate) mode: SandboxMode,
    pub(crate) user: Option<SandboxUser>,
    /// Where scratch folders are made; `None`: where the system has temporary files.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) open_files: u64,
    /// The most processes and threads of the worker's user.
    pub(crate) processes: u64,
    pub(crate) memory_bytes: Option<u64>,
}

const DEFAULT_OPEN_FILES: u64 = 1024;
const DEFAULT_PROCESSES: u64 = 4096;

impl SandboxSettings {
    /// Reads the settings of the server.
    ///
    /// # Errors
    /// INVALID_ARG for a value that is not allowed.
    pub(crate) fn of(settings: &BTreeMap<String, String>) -> Result<Self, Error> {
        let refused = |name: &str, value: &str, rule: &str| {
            Error::invalid(format!("the setting '{name}' of backend 'python' is '{value}', {rule}"))
        };
        let number = |name: &str| -> Result<Option<u64>, Error> {
            let Some(value) = settings.get(name) else { return Ok(None) };
            let number = value.parse().ok().filter(|number| *number > 0);
            number.map(Some).ok_or_else(|| refused(name, value, "which is no number from 1"))
        };
        let mode = match settings.get(SANDBOX) {
            None => SandboxMode::Off,
            Some(value) => value.parse().map_err(|rule| refused(SANDBOX, value, rule))?,
        };
        let user = match settings.get(USER) {
            None => None,
            Some(value) => {
                let rule = "which is no user besides root: <uid> or <uid>:<gid>, in numbers";
                Some(value.parse().map_err(|()| refused(USER, value, rule))?)
            }
        };
        Ok(Self {
            mode,
            user,
            directory: settings.get(DIRECTORY).filter(|path| !path.is_empty()).map(PathBuf::from),
            open_files: number(OPEN_FILES)?.unwrap_or(DEFAULT_OPEN_FILES),
            processes: number(PROCESSES)?.unwrap_or(DEFAULT_PROCESSES),
            memory_bytes: number(MEMORY)?,
        })
    }

    /// The settings with the wish of a model, which can only be stricter.
    pub(crate) fn with_mode(self, wanted: SandboxMode) -> Self {
        Self { mode: self.mode.max(wanted), ..self }
    }

    /// The limits, in words.
    pub(super) fn limits_text(&self) -> String {
        let user =
            self.user.map(|SandboxUser { uid, gid }| format!("user {uid}:{gid}, ")).unwrap_or_default();
        let memory = self.memory_bytes.map(|bytes| format!(", {bytes} bytes of memory")).unwrap_or_default();
        let (files, processes) = (self.open_files, self.processes);
        format!("{user}at most {files} open files, {processes} processes{memory}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<SandboxSettings, String> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        SandboxSettings::of(&pairs.collect()).map_err(|error| error.with_code())
    }

    #[test]
    fn settings_are_read_and_checked() {
        let read = settings(&[
            ("sandbox", "required"),
            ("sandbox-user", "1000:100"),
            ("sandbox-max-processes", "7"),
        ])
        .expect("they are allowed");
        assert_eq!((read.mode, read.processes), (SandboxMode::Required, 7));
        assert_eq!(read.user, Some(SandboxUser { uid: 1000, gid: 100 }));
        assert_eq!(settings(&[]).expect("nothing is required").mode, SandboxMode::Off);
        for (name, value) in [
            ("sandbox", "on"),
            ("sandbox-user", "nobody"),
            ("sandbox-user", "0:5"),
            ("sandbox-user", "4294967295"),
            ("sandbox-user", "1:"),
            ("sandbox-max-open-files", "0"),
            ("sandbox-max-memory-bytes", "much"),
        ] {
            let refusal = settings(&[(name, value)]).expect_err("it is refused");
            let words = format!(
                "Invalid argument: the setting '{name}' of backend 'python' is '{value}', which is n"
            );
            assert!(refusal.starts_with(&words), "{refusal}");
        }
    }

    #[test]
    fn a_model_can_only_be_stricter() {
        use SandboxMode::{BestEffort, Off, Required};
        for (server, model, result) in [
            (Off, Required, Required),
            (Required, Off, Required),
            (BestEffort, Off, BestEffort),
            (Off, Off, Off),
        ] {
            let settings = SandboxSettings { mode: server, ..SandboxSettings::default() };
            assert_eq!(settings.with_mode(model).mode, result);
        }
    }
}
