//! Safe types over OpenVINO's C interface; the only module of this crate with `unsafe`.
//!
//! A model is read from its files ([`ModelGraph`]), compiled for a device ([`CompiledModel`]), and run by requests
//! ([`InferRequest`]), each of which one thread uses at a time. The library is opened at run time ([`OpenVino`]), and
//! its functions are looked up once (`sys`). The safe types guarantee:
//! - a [`OvInput`] borrows the bytes it was made over, and a [`RunPlace`] those that it will write; a run uses no
//!   memory that an earlier run has borrowed;
//! - a [`RunOutput`] owns memory of the library, which no later run writes;
//! - a request keeps its model alive, a model keeps the library alive, and an opened library is never closed;
//! - no file of a model is mapped, so a change of a file is no change of a loaded model.
//!
//! What the C interface does not offer: all names of an input or output, its layout, the strings of an output, and the
//! memory that a model holds.
mod bare_run;
mod compiled;
mod element;
mod failure;
mod graph;
mod openvino;
mod output;
mod ports;
mod request;
mod shape_reset;
mod sys;
mod tensor;
#[cfg(test)]
mod tests;

pub(crate) use bare_run::BareRun;
pub(crate) use compiled::{CompileOptions, CompiledModel};
pub(crate) use element::PortElement;
pub(crate) use failure::OvError;
pub(crate) use graph::ModelGraph;
pub(crate) use openvino::OpenVino;
pub(crate) use output::RunOutput;
pub(crate) use ports::{ModelPort, ModelPorts};
pub(crate) use request::{InferRequest, OutputTarget};
pub(crate) use tensor::{OvInput, RunPlace};
