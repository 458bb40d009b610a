//! Executes an ensemble: passes each request through other models of the server, its members.
//!
//! `scheduling::EnsembleRun` decides which step may start with which tensors. An [`EnsembleRequest`] performs that for
//! one request: it sends requests to the members, reads their responses, and answers the client. It runs on the thread
//! of the caller until it has to wait, and then as a task of the runtime. No thread waits for it.
mod admission;
mod binding;
#[expect(clippy::module_inception, reason = "the room has the name of what is in it")]
mod ensemble;
mod permits;
mod step;
mod tensor;
mod turns;
mod version;

pub(crate) use binding::EnsembleMember;
pub(crate) use version::{EnsembleParts, EnsembleVersion};
