//! The extension point for backends. It has three nested lifetimes: backend > model > instance.
//!
//! A backend is a framework (ONNX Runtime, Python, a shared library). A model is one version of one model that the
//! backend has opened. An instance is one executable copy of the model. Native backends and backends behind the C
//! interface use the same traits, which follow `tritonbackend.h`.
mod execution;
mod implementation;
mod interfaces;
mod sequence_state;

pub use scheduling::InstanceDevice;

pub use execution::{Execution, SlotGuard, SlotOwner, SlotRef, not_iterative};
pub use implementation::Implementation;
pub use interfaces::{
    Backend, BackendFinder, BackendInstance, BackendModel, BackendSettings, Batch, BuiltInstance,
    InstanceSpec, MemoryUsage, ModelInspection, ModelSource, PythonSource, ReleaseFuture, first_of_each_name,
};
pub use sequence_state::SequenceState;
