//! Safe types over PyTorch's C interface and the entry points of compiled code; the only module of this crate with
//! `unsafe`.
//!
//! The library of PyTorch is opened once ([`Torch`]), and its functions are looked up once (`sys`). The code of a
//! package is opened for each model version ([`OpenedCode`]) and run by its instances. The safe types guarantee:
//! - a [`TorchInput`] borrows the bytes that it was made over;
//! - a [`TorchOutput`] owns memory of the library, which no later run writes, and keeps the code alive;
//! - code that is loaded finds input checks switched on ([`are_inputs_checked`]), so that the sizes that it was compiled for
//!   are compared with those of each run;
//! - the library is never closed.
//!
//! What the C interface does not offer: datatypes and dims of a package, and whether an output shares the memory of
//! weights.
mod bare_run;
mod environment;
mod failure;
mod input;
mod library;
mod opened_code;
mod output;
mod run;
mod stub;
mod sys;

pub(crate) use bare_run::BareCodeRun;
pub(crate) use environment::{are_inputs_checked, check_inputs_by_environment};
pub(crate) use failure::TorchError;
pub(crate) use input::TorchInput;
pub(crate) use library::Torch;
pub(crate) use opened_code::OpenedCode;
pub(crate) use output::TorchOutput;
