//! `TRITONSERVER_Server`: an engine as C holds it.
mod about;
mod lifetime;
mod models;
mod start;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use c_api::handle::Handle;
use engine::{Engine, Model};
use inference::Error;
use tokio::runtime::{self, Runtime};

pub use about::*;
pub use lifetime::*;
pub use models::*;

use crate::{
    calls::{CallbackPool, CallbackQueue},
    custom_metrics,
};

/// The Triton release whose behaviour the server follows.
pub const TRITON_VERSION: &str = "2.73.0";

/// What clients may rely on, in the order of the reference. Extensions of the reference that are not there are not in the
/// list: of `model_repository` there is the index.
pub const EXTENSIONS: [&str; 8] = [
    "classification",
    "sequence",
    "model_repository",
    "schedule_policy",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
];

/// `TRITONSERVER_Server`: a handle on an engine, its own or somebody else's. Before it has one it answers that it is not
/// ready.
pub struct Server {
    attached: OnceLock<Attached>,
    /// Of a server that was made from C. Whoever hosts a server stops it in his own way.
    own: Option<Own>,
    /// Calls the program back, or the plug-in that sends requests.
    callbacks: CallbackPool,
}

/// The engine, and where its futures run.
struct Attached {
    engine: Engine,
    runtime: runtime::Handle,
}

/// What belongs to a server that was made from C.
struct Own {
    exit_timeout_secs: AtomicU32,
    /// Shows its own metrics; those of plug-ins are always shown.
    metrics: bool,
    /// Taken out only when dropped.
    runtime: Option<Runtime>,
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A load that was interrupted, or a backend that hangs, must not hold the caller up.
            runtime.shutdown_background();
        }
    }
}

impl Handle for Server {
    const NAME: &'static str = "TRITONSERVER_Server";
}

impl Server {
    /// A handle for plug-ins on an engine that is still to come.
    pub fn hosting() -> Arc<Self> {
        Arc::new(Self { attached: OnceLock::new(), own: None, callbacks: CallbackPool::new() })
    }

    /// The engine has come. Said once, in the tokio runtime that the engine uses.
    pub fn attach(&self, engine: Engine) {
        let runtime = runtime::Handle::current();
        let first = self.attached.set(Attached { engine, runtime }).is_ok();
        debug_assert!(first, "a server has one engine");
    }

    /// The handle as plug-ins get it; valid while somebody holds the server.
    pub fn as_ptr(self: &Arc<Self>) -> *mut Self {
        Arc::as_ptr(self).cast_mut()
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

    /// Waits for something of the engine. Blocks.
    fn wait<T: Send>(&self, task: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
        let runtime = &self.attached()?.runtime;
        if runtime::Handle::try_current().is_err() {
            return runtime.block_on(task);
        }
        // A thread of a runtime may not do so. A plug-in that calls from a brief execution may be on one.
        let waited = thread::scope(|scope| scope.spawn(|| runtime.block_on(task)).join());
        waited.unwrap_or_else(|_| Err(Error::internal("the server panicked while it was waited for")))
    }

    /// The version of a model that C names, -1 being the server's choice. A stopping server still gives it.
    pub(crate) fn model(&self, name: &str, version: i64) -> Result<Arc<Model>, Error> {
        self.engine()?.model(name, choice(version))
    }

    /// Reads the metrics, now and whenever it is called.
    pub(crate) fn metrics(&self) -> Result<impl Fn() -> String + Send + Sync + use<>, Error> {
        let engine = self.engine()?.clone();
        let shown = self.own.as_ref().is_none_or(|own| own.metrics);
        Ok(move || {
            if shown {
                return engine.metrics();
            }
            let mut text = String::new();
            custom_metrics().append_to(&mut text);
            text
        })
    }

    /// Where the callbacks of requests are made.
    pub(crate) fn callbacks(&self) -> CallbackQueue {
        self.callbacks.queue()
    }

    fn exit_timeout(&self) -> Duration {
        let secs = self.own.as_ref().map_or(0, |own| own.exit_timeout_secs.load(Relaxed));
        Duration::from_secs(secs.into())
    }

    /// What only a server that was made from C lets C do.
    fn own(&self) -> Result<&Own, Error> {
        self.own.as_ref().ok_or_else(|| {
            Error::unsupported("the server belongs to the program that runs it, which alone may end it")
        })
    }
}

fn not_ready() -> Error {
    Error::unavailable("Server not ready")
}

/// -1 is the server's choice of a version.
fn choice(version: i64) -> Option<i64> {
    (version != -1).then_some(version)
}
