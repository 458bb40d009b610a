//! The plug-in door: three nested lifetimes, backend > model > instance.
//!
//! A backend is a framework (ONNX Runtime, Python, a shared library); a model is one version of one model it has
//! opened; an instance is one executable copy of it. Native backends and those behind the C interface enter by the same
//! door (`tritonbackend.h` is its model).
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use crate::{Error, ExecutionTimes, Inferer, Name, config::ModelConfig};

mod execution;
mod sequence_state;
mod state_buffer;

pub use scheduling::Device;

pub use execution::{Execution, SlotGuard, SlotOwner, SlotRef, not_iterative};
pub use sequence_state::{SequenceState, StateInput};
pub use state_buffer::StateBuffer;

/// A framework that can open models.
pub trait Backend: Send + Sync {
    /// The name that `backend` in a model configuration refers to.
    fn name(&self) -> &str;

    /// Where its library was found, for the table of backends in the log.
    fn location(&self) -> String {
        String::new()
    }

    /// Where it lies: searched for files that models may share, the first place first. Empty for one that is built in.
    fn directories(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The names it understands. `None` if nobody but it can know them.
    fn known_names(&self) -> Option<KnownNames> {
        None
    }

    /// Whose `--backend-config` settings are in force for it.
    fn settings_name(&self) -> &str {
        self.name()
    }

    /// The instance groups it would have for a model whose configuration names none, the best first.
    fn preferred_groups(&self) -> Vec<proto::ModelInstanceGroup> {
        Vec::new()
    }

    /// Opens one version of a model. May block: it runs on a thread that loads models.
    ///
    /// # Errors
    /// Why the version cannot be served; becomes the reason of its UNAVAILABLE state.
    fn open(&self, source: &ModelSource) -> Result<Box<dyn BackendModel>, Error>;
}

/// The names that a backend understands. One that ends in an asterisk stands for all that begin so.
#[derive(Debug, Clone, Copy)]
pub struct KnownNames {
    /// Settings of `--backend-config`.
    pub settings: &'static [&'static str],
    /// Parameters of a model's configuration, those of the server itself included.
    pub parameters: &'static [&'static str],
}

/// Finds backends that are not built into the server.
pub trait BackendFinder: Send + Sync {
    /// The backend whose library the model brings along in its own directories, if it brings one. May block.
    ///
    /// # Errors
    /// The library that is there cannot be used.
    fn brought_by(
        &self,
        source: &ModelSource,
        settings: &BackendSettings<'_>,
    ) -> Result<Option<Arc<dyn Backend>>, Error>;

    /// The backend that the configuration of a model names. May block.
    ///
    /// # Errors
    /// INVALID_ARG if there is none by that name; whatever the backend says if it does not start.
    fn find(&self, source: &ModelSource, settings: &BackendSettings<'_>) -> Result<Arc<dyn Backend>, Error>;

    /// Those it has found so far, by name.
    fn found(&self) -> Vec<Arc<dyn Backend>>;
}

/// The `--backend-config` settings in force for the backend of a name.
pub type BackendSettings<'a> = dyn Fn(&str) -> BTreeMap<String, String> + 'a;

/// Where a model version lies and what is known of it before it is opened.
#[derive(Debug, Clone)]
pub struct ModelSource {
    /// Model name.
    pub name: Name,
    /// Version number.
    pub version: i64,
    /// The model's directory, holding `config.pbtxt`.
    pub model_directory: PathBuf,
    /// The version's directory below it.
    pub version_directory: PathBuf,
    /// The configuration as declared and normalised, with its instance groups, before the backend completes it.
    pub declared: Arc<proto::ModelConfig>,
    /// `--backend-config` settings in force for this backend: global ones overlaid by its own.
    pub settings: BTreeMap<String, String>,
    /// Through which the model may send requests to other models; `None` for a model outside of a server.
    pub inferer: Option<Arc<dyn Inferer>>,
    /// `--host-policy` settings, by the policy's name.
    pub host_policies: Arc<BTreeMap<String, BTreeMap<String, String>>>,
}

/// One opened model version, shared by its instances.
pub trait BackendModel: Send + Sync {
    /// Adds what the model file tells and the configuration leaves open. Called once, before validation, unless
    /// `--disable-auto-complete-config` is given. Of the result the server takes over `max_batch_size`, `input`,
    /// `output`, the scheduling choice if there was none, and the transaction policy.
    ///
    /// # Errors
    /// A contradiction between file and configuration.
    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<(), Error> {
        let _ = config;
        Ok(())
    }

    /// Tells the configuration that the server has settled on, before the first instance is built.
    fn configured(&self, config: &proto::ModelConfig) {
        let _ = config;
    }

    /// Whether several instances may be built at the same time.
    fn builds_in_parallel(&self) -> bool {
        true
    }

    /// What the model and its instances take of each memory, as far as it is known; each memory once. Asked when a client
    /// wants statistics, on a network thread: must not block.
    fn memory_usage(&self) -> Vec<MemoryUsage> {
        Vec::new()
    }

    /// Whether [`BackendModel::ready`] has something to tell. Only then is it asked.
    fn reports_readiness(&self) -> bool {
        false
    }

    /// Whether the instances could take requests now. Asked when a client wants to know, while there are instances: on any
    /// thread, by several at once, also while instances execute. May block.
    ///
    /// # Errors
    /// Why they could not; clients see a model that is not ready, and the log has the reason.
    fn ready(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Builds one instance for the completed, validated configuration. Called on the thread that will run it.
    ///
    /// # Errors
    /// Why the instance cannot run; fails the load of the version.
    fn instance(&self, config: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<Instance, Error>;
}

/// What is taken of one memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Kind of the memory.
    pub kind: MemoryKind,
    /// Ordinal of the device it belongs to; 0 for the host.
    pub id: i64,
    /// How many bytes.
    pub byte_size: u64,
}

/// Kinds of memory, in the order clients see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryKind {
    /// Ordinary host memory.
    Cpu,
    /// Host memory that devices may read.
    CpuPinned,
    /// Device memory.
    Gpu,
}

impl MemoryKind {
    /// The word of the protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::CpuPinned => "CPU_PINNED",
            Self::Gpu => "GPU",
        }
    }
}

/// Which instance to build, and where.
#[derive(Debug, Clone)]
pub struct InstanceSpec {
    /// `<group>_<index>`, as logs and errors name it.
    pub name: Name,
    /// Kind and ordinal of the device.
    pub device: Device,
    /// Threads a computation of this instance should use: its share of the processors the process may use.
    pub threads: std::num::NonZeroUsize,
    /// Built, but never given work (`passive`).
    pub passive: bool,
}

/// A built instance, and whether it may change threads between executions.
pub enum Instance {
    /// Runs, and is dropped, on the thread that built it.
    ThreadBound(Box<dyn BackendInstance>),
    /// Any one thread at a time may run it. The server then executes short batches right where the request arrives and
    /// saves two hand-overs between threads.
    Movable(Box<dyn BackendInstance + Send>),
}

/// One executable copy of a model. Never called by two threads at once.
pub trait BackendInstance {
    /// Runs one batch.
    ///
    /// Every execution must be answered through its responder, now or later; dropping a responder answers with an
    /// internal error. A panic fails the batch and makes the model unavailable.
    fn execute(&mut self, batch: Batch);
}

/// Requests that run together. Their number of rows never exceeds `max_batch_size`, and the shapes of inputs that do not
/// allow ragged batches are equal.
#[derive(Debug)]
pub struct Batch {
    /// In the order the model shall see them; never empty.
    pub executions: Vec<Execution>,
    /// Where the backend notes how far it has come.
    pub execution_times: Arc<ExecutionTimes>,
}
