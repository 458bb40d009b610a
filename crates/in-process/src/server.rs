//! `TRITONSERVER_Server`: an engine as C holds it.
mod about;
mod lifetime;
mod models;
mod start;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use c_api::{backend::ServerHandle, handle::Handle};
use engine::{Engine, Model};
use inference::{
    lock::Mutex,
    metrics::{MetricsForm, MetricsText},
};
use tokio::runtime::{self, Runtime};
use vocabulary::Error;

use crate::{
    calls::{CallbackPool, CallbackQueue},
    custom_metrics,
};

pub use about::*;
pub use lifetime::*;
pub use models::*;

/// The Triton release whose behaviour the server follows.
pub const TRITON_VERSION: &str = "2.73.0";

/// The extensions that clients may rely on, in the order of Triton. Extensions that Nereid does not have are left out.
/// Of `model_repository` Nereid has the index only.
pub const EXTENSIONS: [&str; 11] = [
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
];

/// `TRITONSERVER_Server`: a handle of an engine. The server of this handle, or the program that hosts it, owns the
/// engine. Until the engine exists, the server is not ready.
pub struct Server {
    attached: OnceLock<Attached>,
    /// Set for a server that C has made. A host stops its server by other means.
    own: Option<Own>,
    /// The threads that call functions of the program, or of the plug-in that sends requests.
    callbacks: CallbackPool,
}

/// The engine, and the runtime that polls its futures.
struct Attached {
    engine: Engine,
    runtime: runtime::Handle,
}

/// What belongs to a server that C has made.
struct Own {
    exit_timeout_secs: AtomicU32,
    /// Whether the server shows its own metrics; those of plug-ins are always shown.
    metrics: bool,
    /// Taken out when the server has stopped.
    runtime: Mutex<Option<Runtime>>,
    /// The engine has ended all models.
    has_stopped: AtomicBool,
    /// A thread of the runtime has not ended in time.
    has_lost_threads: AtomicBool,
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.get_mut().take() {
            // An interrupted load, or a backend that does not return, must not block the caller.
            runtime.shutdown_background();
        }
    }
}

impl Handle for Server {
    const NAME: &'static str = "TRITONSERVER_Server";
}

impl Server {
    /// A handle for plug-ins. Its engine is attached later.
    pub fn hosting() -> Arc<Self> {
        Arc::new(Self { attached: OnceLock::new(), own: None, callbacks: CallbackPool::new() })
    }

    /// Attaches the engine. Called once, in the tokio runtime that the engine uses.
    pub fn attach(&self, engine: Engine) {
        let runtime = runtime::Handle::current();
        let first = self.attached.set(Attached { engine, runtime }).is_ok();
        debug_assert!(first, "a server has one engine");
    }

    /// The handle as plug-ins get it; valid while the server is held.
    pub fn as_ptr(self: &Arc<Self>) -> *mut Self {
        Arc::as_ptr(self).cast_mut()
    }

    /// The handle as backends and batching strategies in libraries get it; valid while the server is held.
    pub fn handle(self: &Arc<Self>) -> ServerHandle {
        ServerHandle(self.as_ptr().cast())
    }

    fn attached(&self) -> Result<&Attached, Error> {
        self.attached.get().ok_or_else(not_ready)
    }

    /// The engine, even if it is stopping.
    pub(crate) fn engine(&self) -> Result<&Engine, Error> {
        self.attached().map(|attached| &attached.engine)
    }

    /// The engine, unless it is stopping.
    fn serving(&self) -> Result<&Engine, Error> {
        self.engine().and_then(|engine| engine.live().map(|_| engine).map_err(|_| not_ready()))
    }

    /// Waits for a future of the engine. Blocks.
    fn wait<T: Send>(&self, task: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
        let runtime = &self.attached()?.runtime;
        if runtime::Handle::try_current().is_err() {
            return runtime.block_on(task);
        }
        // A thread of a runtime must not block on a future. A plug-in that calls from a brief execution may be on such
        // a thread.
        let waited = thread::scope(|scope| scope.spawn(|| runtime.block_on(task)).join());
        waited.unwrap_or_else(|_| Err(Error::internal("the server panicked while it was waited for")))
    }

    /// The version of a model that C names; -1 for the version that the server selects. A stopping server still returns
    /// it. Blocks until the model is in memory, if models are loaded on demand.
    pub(crate) fn model(&self, name: &str, version: i64) -> Result<Arc<Model>, Error> {
        let (engine, version) = (self.engine()?, choice(version));
        if engine.demands().must_wait(name, version) {
            return self.wait(engine.demands().model(name, version));
        }
        engine.model(name, version)
    }

    /// A function that reads the metrics each time it is called.
    pub(crate) fn metrics(&self) -> Result<impl Fn() -> String + Send + Sync + use<>, Error> {
        let engine = self.engine()?.clone();
        let shown = self.own.as_ref().is_none_or(|own| own.metrics);
        Ok(move || {
            if shown {
                return engine.metrics(MetricsForm::Prometheus);
            }
            let mut text = MetricsText::default();
            custom_metrics().append_to(&mut text);
            text.finish()
        })
    }

    /// The threads for callbacks of requests.
    pub(crate) fn callbacks(&self) -> CallbackQueue {
        self.callbacks.queue()
    }

    fn exit_timeout(&self) -> Duration {
        let secs = self.own.as_ref().map_or(0, |own| own.exit_timeout_secs.load(Relaxed));
        Duration::from_secs(secs.into())
    }

    /// The part that only a server made by C has.
    fn own(&self) -> Result<&Own, Error> {
        self.own.as_ref().ok_or_else(|| {
            Error::unsupported("the server belongs to the program that runs it, which alone may end it")
        })
    }
}

fn not_ready() -> Error {
    Error::unavailable("Server not ready")
}

/// -1 means the version that the server selects.
fn choice(version: i64) -> Option<i64> {
    (version != -1).then_some(version)
}
