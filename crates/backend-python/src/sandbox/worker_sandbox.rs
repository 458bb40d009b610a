//! The sandbox of a model's workers.
use std::{
    collections::BTreeSet,
    io,
    os::fd::OwnedFd,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
};

use vocabulary::Error;

use super::{
    gate::gated,
    launcher::{enter, spawn_with},
    protection::{Protection, ReportedProtections},
    rights::SandboxRights,
    scratch::{ScratchFolder, ScratchFolders},
    settings::{SandboxMode, SandboxSettings},
};
use crate::process_group::GroupChild;

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
        told: &ReportedProtections,
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
        told: &ReportedProtections,
    ) -> Result<(), Error> {
        if self.settings.mode == SandboxMode::Required && !missing.is_empty() {
            let missing: Vec<_> = missing.iter().map(Protection::to_string).collect();
            return Err(Error::unavailable(format!(
                "model '{model}' requires a sandbox, which is not complete here: missing are {}",
                missing.join("; ")
            )));
        }
        for protection in told.add(missing) {
            log::warn!("sandboxes of models in Python are incomplete: missing is {protection}");
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
    pub(crate) fn scratch(&self) -> io::Result<ScratchFolder> {
        self.folders.make(self.settings.user)
    }

    /// Starts a process behind a closed gate.
    ///
    /// # Errors
    /// That of the system, or the sandbox is required and incomplete.
    pub(crate) fn spawn(&self, command: &Command, socket: OwnedFd, scratch: &Path) -> io::Result<GroupChild> {
        let mut gated = gated(&self.settings, command, scratch);
        gated.stdin(Stdio::from(socket)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let user = self.settings.user;
        let rights = SandboxRights { writable: &[scratch], user, has_network: false, group: None };
        spawn_with(&mut gated, &rights, |missing| {
            self.settings.mode == SandboxMode::Required && !missing.is_empty()
        })
    }
}
