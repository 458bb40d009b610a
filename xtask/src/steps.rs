//! Steps of a long run: each in a process of its own, with a name, a limit, a log, and an end that leaves nothing behind.
//!
//! A step that fails, stands still or crashes does not stop the others. The process of a step is this program, started
//! with the words `step NAME`.

mod files;
mod lane;
mod outcome;
mod reports;
mod run;
mod running_step;
mod step;
mod surroundings;

pub(crate) use files::file;
pub(crate) use outcome::CannotRun;
pub(crate) use run::{Steps, named, run_only};
pub(crate) use step::{CheckStep, perform};
