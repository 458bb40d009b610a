//! Makes a running server from the options of a program.
use std::{
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32},
    },
};

use assembly::{AssembledCaches, LibraryBackends, plugins};
use backend_onnx::{OnnxBackend, prevent_telemetry};
use backend_openvino::OpenVinoBackend;
use backend_pytorch::{AotInductorBackend, check_inputs_of_code};
use engine::Engine;
use inference::{
    Plugins,
    cache::{CacheFinder, ResponseCache},
    lock::Mutex,
};
use native_backend::{LibrarySearch, python_prefixes};
use object_stores::{CacheOptions, DEFAULT_UNUSED_BYTES, default_cache_directory};
use tokio::runtime::{self, Runtime};
use vocabulary::Error;

use super::{Own, Server};
use crate::{calls::CallbackPool, options::OptionSettings};

impl Server {
    /// Makes a server with these options and a runtime of its own. Blocks until each model is ready or has failed.
    ///
    /// # Errors
    /// A file that the options name is missing, or a model has failed. If the options allow it, the call succeeds all
    /// the same: in the first case the server is not live, in the second it serves the other models.
    pub(super) fn start(settings: &OptionSettings) -> Result<Arc<Self>, Error> {
        // This runs before the server starts a thread. The program may have threads of its own.
        prevent_telemetry(settings.backend_settings());
        check_inputs_of_code(settings.backend_settings());
        let server = Self::idle(settings)?;
        let loaded = server.load(settings);
        let failure = match &loaded {
            Ok(engine) if engine.all_loaded() => return Ok(server),
            Ok(_) => Error::internal("failed to load all models"),
            Err(error) => error.clone(),
        };
        if !settings.exit_on_error {
            log::error!("{}", failure.with_code());
            if loaded.is_ok() {
                return Ok(server);
            }
        }
        drop(loaded);
        if let Err(error) = server.end() {
            log::error!("failed to stop server: {error}");
        }
        if settings.exit_on_error { Err(failure) } else { Self::idle(settings) }
    }

    /// A server without an engine.
    fn idle(settings: &OptionSettings) -> Result<Arc<Self>, Error> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("server")
            .enable_all()
            .build()
            .map_err(|error| Error::internal(format!("failed to start a runtime: {error}")))?;
        let own = Own {
            exit_timeout_secs: AtomicU32::new(settings.exit_timeout_secs),
            metrics: settings.metrics,
            runtime: Mutex::new(Some(runtime)),
            has_stopped: AtomicBool::new(false),
            has_lost_threads: AtomicBool::new(false),
        };
        Ok(Arc::new(Self { attached: OnceLock::new(), own: Some(own), callbacks: CallbackPool::new() }))
    }

    /// Makes the engine and loads its models. The server has its engine only if the repositories can be read.
    fn load(self: &Arc<Self>, settings: &OptionSettings) -> Result<Engine, Error> {
        settings.check()?;
        let runtime = self.own()?.runtime.lock().as_ref().map(Runtime::handle).cloned();
        let runtime = runtime.ok_or_else(|| Error::internal("the server has no runtime"))?;
        let agents = settings.agent_directory.clone().into();
        let copies =
            CacheOptions { directory: default_cache_directory(), max_unused_bytes: DEFAULT_UNUSED_BYTES };
        // The allocator of the program may map large blocks anew each time, so models have arenas.
        let onnxruntime = library_search(&["NEREID_ONNXRUNTIME_LIBRARY", "ORT_DYLIB_PATH"]);
        let backends = LibraryBackends {
            onnxruntime: OnnxBackend::new(onnxruntime),
            openvino: OpenVinoBackend::new(library_search(&["NEREID_OPENVINO_LIBRARY"])),
            pytorch: AotInductorBackend::new(library_search(&["NEREID_TORCH_LIBRARY"])),
        };
        let all = plugins(self.handle(), backends, agents, copies);
        let plugins = Plugins { cache: cache(settings)?, ..all };
        runtime.block_on(async {
            let engine = Engine::new(settings.engine_options()?, plugins)?;
            self.attach(engine.clone());
            engine.load_models().await?;
            Ok(engine)
        })
    }
}

/// Opens the response cache that the options name.
///
/// # Errors
/// The cache cannot be opened.
fn cache(settings: &OptionSettings) -> Result<Option<Arc<dyn ResponseCache>>, Error> {
    let directory = Path::new(&settings.cache_directory);
    let wanted = settings.caches.first_key_value();
    wanted.map(|(name, settings)| AssembledCaches.open(name, settings, directory)).transpose()
}

/// Searches a library as the binary does, without an option that names it: one of the environment variables may.
fn library_search(variables: &[&str]) -> LibrarySearch {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let program = std::env::current_exe().ok();
    let virtual_env = set("VIRTUAL_ENV");
    LibrarySearch {
        named: variables.iter().find_map(|name| set(name)).map(Into::into),
        program_directory: program.and_then(|program| program.parent().map(Into::into)),
        python_prefixes: python_prefixes(virtual_env.as_deref().map(Path::new), set("PATH").as_deref()),
    }
}
