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
            // It goes before the one in Python, which runs what it does not.
            Arc::new(backends.pytorch),
            Arc::new(pytorch),
            // It also runs backends in Python of the backend directory, which may have the name of any other.
            Arc::new(python),
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, ptr};

    use inference::backend::{Backend, Implementation, ModelSource};
    use native_backend::LibrarySearch;

    use super::*;

    fn backends() -> Vec<Arc<dyn Backend>> {
        let search = LibrarySearch::default;
        let backends = LibraryBackends {
            onnxruntime: OnnxBackend::new(search()),
            openvino: OpenVinoBackend::new(search()),
            pytorch: AotInductorBackend::new(search()),
        };
        let copies = CacheOptions { directory: "/nowhere".into(), max_unused_bytes: 0 };
        plugins(ServerHandle(ptr::null_mut()), backends, "/nowhere".into(), copies).backends
    }

    /// A model whose configuration has only this backend.
    fn model_of(backend: &str) -> ModelSource {
        let mut source = ModelSource {
            name: "m".into(),
            version: 1,
            version_directory: "/nowhere/m/1".into(),
            model_directory: "/nowhere/m".into(),
            declared: Arc::default(),
            settings: BTreeMap::new(),
            inferer: None,
            host_policies: Arc::default(),
        };
        backend.clone_into(&mut Arc::make_mut(&mut source.declared).backend);
        source
    }

    #[test]
    fn backends_that_share_a_name_know_the_same_parameters() {
        let backends = backends();
        let parameters = |name: &str| -> Vec<Vec<&str>> {
            let named = backends.iter().filter(|backend| backend.name() == name);
            let known = named.filter_map(|backend| backend.known_names());
            known.map(|names| [names.parameters].concat()).collect()
        };
        let of_pytorch = parameters("pytorch");
        assert_eq!(of_pytorch.len(), 2, "the native half and the one in Python");
        for backend in &backends {
            for other in parameters(backend.name()) {
                assert_eq!(other, parameters(backend.name())[0], "{}", backend.name());
            }
        }
    }

    #[test]
    fn one_setting_leaves_the_models_of_each_backend_to_triton() {
        let backends = backends();
        let names: Vec<_> = backends.iter().map(|backend| backend.name()).chain(["tensorflow"]).collect();
        for name in names {
            let is_run = |implementation: Option<&str>| {
                let settings = |backend: &str| {
                    let own = implementation.filter(|_| backend == name);
                    let own = own.map(|value| (Implementation::SETTING.to_owned(), value.to_owned()));
                    let directory = ("backend-directory".to_owned(), "/nowhere".to_owned());
                    own.into_iter().chain([directory]).collect()
                };
                let source = model_of(name);
                backends.iter().any(|backend| backend.runs(&source, &settings).unwrap())
            };
            assert!(is_run(None) && is_run(Some("built-in")) && !is_run(Some("triton")), "{name}");
        }
    }

    #[test]
    fn each_backend_knows_the_setting_of_its_implementation() {
        let backends = backends();
        for backend in inference::backend::first_of_each_name(&backends) {
            let known = backend.known_names().unwrap();
            assert!(known.settings.contains(&Implementation::SETTING), "{}", backend.name());
        }
    }
}
