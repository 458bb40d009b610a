//! The sandbox of a worker: no network, read-only files but those of a scratch folder, no privileges, limits.
//!
//! A thread that lives for this only takes its own rights away (`files`, `system_calls`, `privileges`) and starts the
//! process, which inherits what is left. So no code runs between fork and exec, no program of the server's is needed, and
//! even an interpreter that the model brings starts inside. `launcher` says how, and why a gate stands before the
//! interpreter.
mod files;
mod gate;
mod installer;
mod launcher;
mod privileges;
mod protection;
mod rights;
mod scratch;
mod settings;
mod system_calls;
mod worker_sandbox;

pub(crate) use gate::{OPEN_GATE, gate_failure};
pub(crate) use installer::InstallerSandbox;
pub(crate) use protection::ReportedProtections;
pub(crate) use scratch::ScratchFolder;
pub(crate) use settings::{SandboxMode, SandboxSettings, SandboxUser};
pub(crate) use worker_sandbox::Sandbox;
