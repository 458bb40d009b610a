//! One instance of a model: a graph and its runs.
use std::sync::{Arc, Weak};

use config::ModelConfig;
use inference::{
    ExecutionTimes, OutputSelection, Response,
    backend::{BackendInstance, Batch, Execution},
};
use smallvec::SmallVec;
use vocabulary::{Error, FailureReason, Shape, Tensor};

use crate::{
    AlignedBuffer, CopiedBytes, Feed, Graph, GraphOutput, LibraryFailure, RunOutputs,
    gather::{Gathering, RequestErrors},
    iteration::{Iteration, mark_done},
    output_places::{ExpectedOutputs, OutputShapes},
    plan::{ExecutionPlan, FetchPlan},
    scatter::{ScatterTarget, scatter, scatter_place},
    state::{groups, store_states},
    validate::validate,
};

/// One executable copy of a model. Any thread may run it, one at a time.
pub struct NativeInstance<G: Graph> {
    graph: G,
    plan: ExecutionPlan,
    /// How requests continue after a run, for iterative models.
    iteration: Option<Iteration>,
    /// Buffers for the inputs that cannot be used in place, one for each feed.
    buffers: Vec<AlignedBuffer>,
    /// For each state, the last output whose parts are states of several sequences of a batch. The sequences keep it
    /// alive.
    carried: Vec<Weak<G::Output>>,
    copied_bytes: Arc<CopiedBytes>,
    output_shapes: OutputShapes,
}

/// The results of a run for one request.
struct Step {
    response: Response,
    /// The new states of its sequence, under the names of the outputs.
    states: Vec<Tensor>,
    is_done: bool,
}

type BatchSteps = SmallVec<[Result<Step, Error>; 4]>;

impl<G: Graph> NativeInstance<G> {
    /// An instance that runs a graph as a complete configuration describes. `version` is that of the model, for errors.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the configuration does not agree with the graph, UNSUPPORTED for an input or output that is
    /// not a tensor, INTERNAL for a control that the graph lacks.
    pub fn new(
        graph: G,
        config: &ModelConfig,
        version: i64,
        copied_bytes: Arc<CopiedBytes>,
    ) -> Result<Self, Error> {
        validate(config, graph.signature())?;
        let iteration = Iteration::of(config, graph.signature())?;
        let done = iteration.as_ref().and_then(|iteration| iteration.slot);
        let plan = ExecutionPlan::new(config, version, graph.signature(), done);
        let buffers = plan.feeds.iter().map(|_| AlignedBuffer::default()).collect();
        let carried = plan.state_feeds().map(|_| Weak::new()).collect();
        let output_shapes = OutputShapes::default();
        Ok(Self { graph, plan, iteration, buffers, carried, copied_bytes, output_shapes })
    }

    /// Runs requests together. Stores the state of a request's sequence before it answers the request, and answers the
    /// request before it releases it.
    fn run(&mut self, executions: Vec<Execution>, execution_times: &ExecutionTimes) {
        if executions.iter().all(is_padding) {
            for execution in executions {
                execution.complete(Response::default());
            }
            return;
        }
        let computed = self.compute(&executions, execution_times);
        self.buffers.iter_mut().for_each(AlignedBuffer::run_ended);
        match computed {
            Ok(steps) => {
                for (execution, step) in executions.into_iter().zip(steps) {
                    let remembered = step.and_then(|step| {
                        store_states(&execution, &step.states)?;
                        Ok(step)
                    });
                    match (remembered, &self.iteration) {
                        (Ok(Step { response, is_done: false, .. }), Some(iteration))
                            if !is_padding(&execution) =>
                        {
                            iteration.go_on(&self.plan, execution, response);
                        }
                        (Ok(step), Some(iteration)) if !is_padding(&execution) => {
                            iteration.end(execution, step.response);
                        }
                        (Ok(step), _) => execution.complete(step.response),
                        (Err(error), _) => execution.fail(error),
                    }
                }
            }
            Err(error) => {
                let error = error.because(FailureReason::Backend);
                for execution in executions {
                    execution.fail(error.clone());
                }
            }
        }
    }

    /// The results for requests that run together, in their order.
    fn compute(
        &mut self,
        executions: &[Execution],
        execution_times: &ExecutionTimes,
    ) -> Result<BatchSteps, Error> {
        let mut shares = self.shares(executions)?;
        let mut request_errors = RequestErrors::from_elem(None, executions.len());
        let carried: SmallVec<[_; 4]> = self.carried.iter().map(Weak::upgrade).collect();
        let gathering = Gathering {
            graph: &self.graph,
            plan: &self.plan,
            executions,
            carried: &carried,
            copied_bytes: &self.copied_bytes,
        };
        let mut feeds: SmallVec<[Feed<'_, G::Strings>; 4]> = SmallVec::new();
        for (feed, buffer) in self.plan.feeds.iter().zip(&mut self.buffers) {
            if let Some(value) = gathering.feed(feed, buffer, &mut request_errors)? {
                feeds.push(Feed { slot: feed.slot, value });
            }
        }
        let fetches = wanted(&self.plan, executions);
        let slots: SmallVec<[usize; 8]> = fetches.iter().map(|fetch| fetch.slot).collect();

        // A model that answers a request several times needs other memory for each answer.
        let alone = match executions {
            [only] if self.iteration.is_none() => Some(only),
            _ => None,
        };
        let expected = match alone {
            Some(execution) => self.output_shapes.expected(execution, &fetches),
            None => fetches.iter().map(|_| None).collect(),
        };
        execution_times.compute_started();
        let result = run(&mut self.graph, &feeds, &slots, expected);
        execution_times.compute_ended();

        let PlacedRun { outputs, in_place, has_disproved_shapes } =
            result.map_err(|failure| self.plan.failed_run(&failure))?;
        if has_disproved_shapes {
            self.output_shapes.give_up();
        }
        if let Some(execution) = alone.filter(|execution| self.output_shapes.are_wanted(execution)) {
            let shape = |(fetch, output): (&&FetchPlan, &Option<G::Output>)| {
                let output = output.as_ref()?;
                Some((fetch.slot, output.datatype(), Shape::from_slice(output.shape())))
            };
            if in_place.iter().all(Option::is_none) {
                self.output_shapes.remember(execution, fetches.iter().zip(&outputs).filter_map(shape));
            }
        }
        for ((fetch, output), placed) in fetches.iter().zip(outputs).zip(in_place) {
            if let Some(placed) = placed {
                let shape = (placed.datatype, &placed.shape[..]);
                scatter_place(&self.plan, fetch, shape, &placed.memory, &mut shares)?;
            }
            let Some(output) = output else { continue };
            if fetch.tells_who_is_done {
                mark_done(&self.plan, output.as_ref(), &mut shares)?;
            }
            let shared = scatter(&self.plan, fetch, output, &mut shares, &self.copied_bytes)?;
            if let Some(state) = &fetch.state {
                self.carried[state.index] = shared;
            }
        }
        let step = |(share, fault): (ScatterTarget<'_>, Option<Error>)| match fault {
            None => Ok(Step {
                response: Response::of(share.outputs),
                states: share.states,
                is_done: share.is_done,
            }),
            Some(error) => Err(error.because(FailureReason::Backend)),
        };
        Ok(shares.into_iter().zip(request_errors).map(step).collect())
    }

    /// Whether the backend may skip the request. It may not skip a cancelled request of a sequence, because the next
    /// request builds on its state. A request of an iterative model has no next one, so it may skip that.
    fn is_abandoned(&self, execution: &Execution) -> bool {
        let is_built_upon = execution.state.is_some() && self.iteration.is_none();
        execution.responder.is_cancelled() && !is_built_upon && !is_padding(execution)
    }

    /// The shares of the requests: each request with its number of rows.
    fn shares<'a>(&self, executions: &'a [Execution]) -> Result<SmallVec<[ScatterTarget<'a>; 4]>, Error> {
        let rows = |execution: &Execution| {
            if self.plan.max_rows.is_none() {
                return 1;
            }
            let first = execution.request.tensors().first().and_then(|tensor| tensor.shape().first());
            first.copied().unwrap_or_else(|| execution.responder.timeline().rows.into())
        };
        let share = |execution| ScatterTarget {
            execution,
            rows: rows(execution),
            outputs: Vec::with_capacity(1),
            states: Vec::new(),
            is_done: true,
        };
        let shares: SmallVec<[ScatterTarget<'a>; 4]> = executions.iter().map(share).collect();
        let total: i64 = shares.iter().map(|share| share.rows).sum();
        match self.plan.max_rows {
            Some(max) if total > max.get().into() => {
                let model = &self.plan.model;
                Err(Error::internal(format!("batch size {total} for '{model}', max allowed is {max}")))
            }
            _ => Ok(shares),
        }
    }
}

impl<G: Graph> BackendInstance for NativeInstance<G> {
    fn execute(&mut self, batch: Batch) {
        let Batch { mut executions, execution_times } = batch;
        let is_abandoned = |execution: &Execution| self.is_abandoned(execution);
        if executions.iter().any(is_abandoned) {
            let (abandoned, waiting): (Vec<_>, _) = executions.into_iter().partition(is_abandoned);
            abandoned.into_iter().for_each(Execution::cancel);
            executions = waiting;
        }
        if executions.is_empty() {
            return;
        }
        executions.iter_mut().for_each(Execution::load_states);
        if self.plan.max_rows.is_some() || executions.len() == 1 {
            for group in groups(&self.plan, executions) {
                self.run(group, &execution_times);
            }
            return;
        }
        // Tensors without a batch dimension cannot be joined.
        for execution in executions {
            self.run(vec![execution], &execution_times);
        }
    }
}

/// What a run has made.
struct PlacedRun<O> {
    /// The outputs in their order; `None` for those in places of others.
    outputs: RunOutputs<O>,
    /// The outputs in places of others.
    in_place: ExpectedOutputs,
    /// The expected shapes were wrong.
    has_disproved_shapes: bool,
}

/// Runs a graph, with outputs in the expected places if that is possible.
fn run<G: Graph>(
    graph: &mut G,
    feeds: &[Feed<'_, G::Strings>],
    slots: &[usize],
    mut expected: ExpectedOutputs,
) -> Result<PlacedRun<G::Output>, LibraryFailure> {
    let has_places = expected.iter().any(Option::is_some);
    let (outputs, has_disproved_shapes) = match graph.run(feeds, slots, &expected) {
        // Either the shapes are not as expected, or the run fails anyway. A run without places shows which.
        Err(_) if has_places => {
            expected.iter_mut().for_each(|expected| *expected = None);
            (graph.run(feeds, slots, &expected)?, true)
        }
        outputs => (outputs?, false),
    };
    for (expected, output) in expected.iter_mut().zip(&outputs) {
        expected.take_if(|_| output.is_some());
    }
    Ok(PlacedRun { outputs, in_place: expected, has_disproved_shapes })
}

/// Whether the row only keeps later slots in their place.
fn is_padding(execution: &Execution) -> bool {
    execution.request.outputs == OutputSelection::Nothing
}

/// Outputs that at least one request or a sequence needs.
fn wanted<'a>(plan: &'a ExecutionPlan, executions: &[Execution]) -> SmallVec<[&'a FetchPlan; 8]> {
    let by_any = |fetch: &FetchPlan| {
        fetch.answer.is_some() && executions.iter().any(|execution| execution.request.wants(&fetch.name))
    };
    let needed = |fetch: &FetchPlan| fetch.state.is_some() || fetch.tells_who_is_done;
    plan.fetches.iter().filter(|fetch| needed(fetch) || by_any(fetch)).collect()
}
