//! The backends and plug-ins of a server, the same for the binary and for servers inside programs.
use std::{path::PathBuf, sync::Arc};

use backend_forest::ForestBackend;
use backend_image::ImageBackend;
use backend_onnx::OnnxBackend;
use backend_openvino::OpenVinoBackend;
use backend_python::{PyTorchBackend, PythonBackend};
use backend_pytorch::AotInductorBackend;
use c_api::{
    agent::AgentLibraries,
    backend::{BackendLibraries, ServerHandle},
    batching::BatchingLibraries,
};
use inference::Plugins;
use object_stores::{CacheOptions, StoreOpener};

use crate::memory::memory_functions;

/// The built-in backends whose libraries the program searches for.
pub struct LibraryBackends {
    /// `onnxruntime`.
    pub onnxruntime: OnnxBackend,
    /// `openvino`.
    pub openvino: OpenVinoBackend,
    /// The part of `pytorch` that computes in the process.
    pub pytorch: AotInductorBackend,
}

/// Makes the built-in backends, and all plug-ins except the response cache. Plug-ins get `server` as their server; the
/// pointer must be valid as long as they live. Repository agents are in the directory `agents`, and copies of models
/// from object stores in `copies`.
pub fn plugins(
    server: ServerHandle,
    backends: LibraryBackends,
    agents: PathBuf,
    copies: CacheOptions,
) -> Plugins {
    let python = PythonBackend::new(c_api::types::metrics::registry());
    let pytorch = PyTorchBackend::beside(&python);
    Plugins {
        backends: vec![
            // It runs models of ONNX Runtime that name it as their accelerator.
            Arc::new(backends.openvino),
            Arc::new(backends.onnxruntime),
            Arc::new(ForestBackend),
            Arc::new(ImageBackend),
            Arc::new(python),
            // It goes before the one in Python, which runs what it does not.
            Arc::new(backends.pytorch),
            Arc::new(pytorch),
        ],
        finder: Some(Arc::new(BackendLibraries::new(server))),
        cache: None,
        agents: Some(Arc::new(AgentLibraries::new(agents))),
        repositories: Some(Arc::new(StoreOpener::of_this_process(copies))),
        strategies: Some(Arc::new(BatchingLibraries::new(server))),
        more_metrics: Some(c_api::types::metrics::source()),
        memory: Some(memory_functions()),
    }
}
