//! The sandbox of a worker: no network, read-only files but those of a scratch folder, no privileges, limits.
//!
//! A thread that lives for this only takes its own rights away (`files`, `system_calls`, `privileges`) and starts the
//! process, which inherits what is left. So no code runs between fork and exec, no program of the server's is needed, and
//! even an interpreter that the model brings starts inside. `launcher` says how, and why a gate stands before the
//! interpreter.
use std::{collections::BTreeSet, fmt, path::Path, sync::Arc, thread};

use inference::{Error, lock::Mutex};
use rustix::process::Pid;

mod files;
mod installer;
mod launcher;
mod privileges;
mod scratch;
mod settings;
mod system_calls;

pub(crate) use installer::InstallerSandbox;
pub(crate) use launcher::{OPEN_GATE, gate_failure};
pub(crate) use scratch::ScratchFolder;
use scratch::ScratchFolders;
pub(crate) use settings::{SandboxMode, SandboxSettings, SandboxUser};

/// A part of a sandbox that a kernel may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protection {
    /// Files are read-only.
    Files,
    /// Files cannot be truncated.
    Truncation,
    /// Devices cannot be controlled.
    Devices,
    /// Other processes cannot be signalled.
    Signals,
    /// There is no network.
    Network,
    /// There are no capabilities, and no program gives any.
    Privileges,
    /// The process has a user of its own.
    User,
    /// There is a limit on processes.
    Processes,
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "read-only files (Landlock, Linux 5.13)",
            Self::Truncation => "no truncation of files (Landlock 3, Linux 6.2)",
            Self::Devices => "no control of devices (Landlock 5, Linux 6.10)",
            Self::Signals => "no signals to other processes (Landlock 6, Linux 6.12)",
            Self::Network => "no network (seccomp filters)",
            Self::Privileges => "no privileges",
            Self::User => "the user of sandbox-user (the server may not change its user)",
            Self::Processes => {
                "a limit on processes (the superuser has none: name another user by sandbox-user)"
            }
        })
    }
}

/// The protections that the log has named as missing, for all models of a backend.
#[derive(Debug, Default)]
pub(crate) struct ToldProtections(Mutex<BTreeSet<Protection>>);

/// The sandbox of a model's workers.
#[derive(Debug)]
pub(crate) struct Sandbox {
    settings: SandboxSettings,
    folders: ScratchFolders,
}

impl Sandbox {
    /// The sandbox of a model; `None` if it has none. Tries out on a thread what the kernel can do.
    ///
    /// # Errors
    /// The model requires a sandbox, and the kernel cannot do all of it; or there is no room for scratch folders.
    pub(crate) fn of(
        model: &str,
        settings: &SandboxSettings,
        told: &ToldProtections,
    ) -> Result<Option<Arc<Self>>, Error> {
        if settings.mode == SandboxMode::Off {
            return Ok(None);
        }
        let folders = ScratchFolders::new(settings.directory.as_deref()).map_err(|error| {
            let text =
                format!("the sandbox of model '{model}' cannot make a folder for scratch files: {error}");
            Error::internal(text)
        })?;
        let mut sandbox = Self { settings: settings.clone(), folders };
        let writable = [sandbox.folders.root()];
        let rights =
            SandboxRights { writable: &writable, user: settings.user, has_network: false, group: None };
        let missing = thread::scope(|scope| scope.spawn(|| enter(&rights)).join());
        let missing =
            missing.map_err(|_| Error::internal("the thread that tries out a sandbox has panicked"))?;
        if missing.contains(&Protection::User) {
            sandbox.settings.user = None;
        }
        sandbox.report(model, &missing, told)?;
        Ok(Some(Arc::new(sandbox)))
    }

    fn report(
        &self,
        model: &str,
        missing: &BTreeSet<Protection>,
        told: &ToldProtections,
    ) -> Result<(), Error> {
        if self.settings.mode == SandboxMode::Required && !missing.is_empty() {
            let missing: Vec<_> = missing.iter().map(Protection::to_string).collect();
            return Err(Error::unavailable(format!(
                "model '{model}' requires a sandbox, which is not complete here: missing are {}",
                missing.join("; ")
            )));
        }
        {
            let mut told = told.0.lock();
            for protection in missing.iter().filter(|protection| told.insert(**protection)) {
                log::warn!("sandboxes of models in Python are incomplete: missing is {protection}");
            }
        }
        let on: Vec<_> = [
            (Protection::Network, "no network".to_owned()),
            (Protection::Files, format!("files read-only but those in {}", self.folders.root().display())),
            (Protection::Signals, "no signals to other processes".to_owned()),
            (Protection::Privileges, "no privileges".to_owned()),
        ]
        .into_iter()
        .filter(|(protection, _)| !missing.contains(protection))
        .map(|(_, text)| text)
        .chain([self.settings.limits_text()])
        .collect();
        log::info!("the workers of model '{model}' run in a sandbox: {}", on.join(", "));
        Ok(())
    }

    /// A folder for the files of a worker.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn scratch(&self) -> std::io::Result<ScratchFolder> {
        self.folders.make(self.settings.user)
    }
}

/// What a process in a sandbox may do.
#[derive(Debug, Clone, Copy)]
struct SandboxRights<'a> {
    /// The folders in which it may write.
    writable: &'a [&'a Path],
    /// The user that it becomes.
    user: Option<SandboxUser>,
    /// It may connect to others.
    has_network: bool,
    /// The process group that it joins. It can neither make one nor join another one.
    group: Option<Pid>,
}

/// Takes the rights of the calling thread away but for these. Returns what cannot be taken.
fn enter(rights: &SandboxRights<'_>) -> BTreeSet<Protection> {
    // Landlock and seccomp need a thread that cannot get new privileges.
    let mut missing = privileges::drop_all(rights.user);
    missing.extend(files::restrict(rights));
    missing.extend(system_calls::restrict(rights));
    missing.into_iter().collect()
}
