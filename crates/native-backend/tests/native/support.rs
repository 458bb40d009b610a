//! Support for all tests: an instance of a graph and its configuration.
use std::sync::Arc;

use config::{Completion, CompletionContext, ConfigSource, ModelConfig, ModelLayout, declare, finish};
use inference::{
    Request, Response, ResponseStream,
    backend::{Execution, SequenceState},
};
use native_backend::{CopiedBytes, DefaultBatchSize, NativeInstance, complete, probe};
use testing::batches::{execute, run_batch};
use vocabulary::Error;

use crate::graph::{GivenInput, MemoryGraph};

/// A loaded model.
pub(crate) struct Loaded {
    instance: NativeInstance<MemoryGraph>,
    pub(crate) config: ModelConfig,
    graph: MemoryGraph,
    copied_bytes: Arc<CopiedBytes>,
}

/// Completes a configuration as a backend does, and builds an instance.
pub(crate) fn load(graph: MemoryGraph, config: &str) -> Result<Loaded, Error> {
    let layout = ModelLayout { name: "model".to_owned(), ..ModelLayout::default() };
    let content = format!("backend: 'memory' {config}");
    let source = ConfigSource::Text { path: "config.pbtxt".as_ref(), content: content.as_bytes() };
    let declared = declare(source, &layout, Completion::Auto)?;
    let mut completed = declared.config.clone();
    let default = DefaultBatchSize { rows: 4, request_rows: None };
    let request_rows = complete(&mut completed, &graph.signature, default, || probe(&mut graph.clone()))?;
    let environment = CompletionContext { request_rows, ..CompletionContext::default() };
    let config = finish(&declared, completed, &environment)?.typed;
    graph.runs.lock().clear();
    let copied_bytes = Arc::<CopiedBytes>::default();
    let instance = NativeInstance::new(graph.clone(), &config, 1, copied_bytes.clone())?;
    Ok(Loaded { instance, config, graph, copied_bytes })
}

impl Loaded {
    /// Runs the requests as one batch.
    pub(crate) fn run(&mut self, requests: Vec<Request>) -> Vec<Result<Response, Error>> {
        self.step(requests.into_iter().map(|request| (request, None)).collect())
    }

    /// Runs requests as one batch, each with the state of its sequence.
    pub(crate) fn step(
        &mut self,
        rows: Vec<(Request, Option<SequenceState>)>,
    ) -> Vec<Result<Response, Error>> {
        self.step_after(rows, |_| {})
    }

    /// As [`Loaded::step`], after a change to the streams of the requests.
    pub(crate) fn step_after(
        &mut self,
        rows: Vec<(Request, Option<SequenceState>)>,
        happening: impl FnOnce(&[ResponseStream]),
    ) -> Vec<Result<Response, Error>> {
        run_batch(&mut self.instance, rows, happening)
    }

    /// Runs one batch. The caller reads the answers.
    pub(crate) fn execute(&mut self, executions: Vec<Execution>) {
        execute(&mut self.instance, executions);
    }

    /// The bytes that `work` has copied.
    pub(crate) fn copied(&mut self, work: impl FnOnce(&mut Self)) -> u64 {
        let before = self.copied_bytes.bytes();
        work(self);
        self.copied_bytes.bytes() - before
    }

    /// The runs of the graph since the last call.
    pub(crate) fn take_runs(&self) -> Vec<Vec<GivenInput>> {
        std::mem::take(&mut *self.graph.runs.lock())
    }
}
