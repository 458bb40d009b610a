//! Programs that this one starts: they are run, watched and ended here.

pub(crate) mod descendants;
mod program;
mod server;
pub(crate) mod supervised;
pub(crate) mod tree;

pub(crate) use program::{line, output, require, run, run_within, starts, starts_with};
pub(crate) use server::ServerProcess;
