//! Compiles the graph of a model for its instances.
use std::sync::{Arc, Weak};

use inference::lock::{LockRank, Mutex};

use crate::ov::{CompileOptions, CompiledModel, InferRequest, ModelGraph, OvError};

/// A graph that has been read, and the compiled model that instances share.
///
/// One thread at a time compiles: a failure of the library in another thread could replace the message of its own.
pub(crate) struct SharedGraph {
    state: Mutex<GraphState>,
    /// All compiled models. Its lock is never held while the library works.
    compiled: Mutex<Vec<Weak<CompiledModel>>>,
}

struct GraphState {
    graph: ModelGraph,
    shared: Weak<CompiledModel>,
}

impl SharedGraph {
    /// A graph that is not compiled yet.
    pub(crate) fn new(graph: ModelGraph) -> Arc<Self> {
        let state = GraphState { graph, shared: Weak::new() };
        let state = Mutex::ranked(LockRank::SharedSession, state);
        Arc::new(Self { state, compiled: Mutex::new(Vec::new()) })
    }

    /// How many compiled models there are. Does not wait for one that is compiled now.
    pub(crate) fn compiled_models(&self) -> usize {
        self.compiled.lock().iter().filter(|model| model.strong_count() > 0).count()
    }

    fn compile(&self, graph: &ModelGraph, options: &CompileOptions) -> Result<Arc<CompiledModel>, OvError> {
        let model = CompiledModel::compile(graph, options)?;
        let mut compiled = self.compiled.lock();
        compiled.retain(|model| model.strong_count() > 0);
        compiled.push(Arc::downgrade(&model));
        Ok(model)
    }
}

/// How an instance gets requests.
pub(crate) struct GraphCompilation {
    /// The graph of the model.
    pub(crate) graph: Arc<SharedGraph>,
    /// The properties of the compiled model.
    pub(crate) options: CompileOptions,
    /// Whether the instances of the model have requests of one compiled model, if the library allows that.
    pub(crate) shares: bool,
}

impl GraphCompilation {
    /// A request of a model that is not broken. Without streams, the model is compiled for this request: the runs of
    /// one compiled model would follow each other. Blocks, for seconds if the model is large.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn request(&self) -> Result<InferRequest, OvError> {
        let mut state = self.graph.state.lock();
        let shared = state.shared.upgrade().filter(|model| self.shares && !model.is_broken());
        if let Some(model) = shared {
            return InferRequest::new(&model);
        }
        let model = self.graph.compile(&state.graph, &self.options)?;
        if self.shares && model.can_be_shared() {
            state.shared = Arc::downgrade(&model);
        }
        InferRequest::new(&model)
    }
}
