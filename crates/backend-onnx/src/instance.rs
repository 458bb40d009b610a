//! One session and its runs.
use std::sync::{Arc, Weak};

use inference::{
    ExecutionTimes, OutputSelection, Response,
    backend::{BackendInstance, Batch, Execution},
};
use smallvec::SmallVec;
use vocabulary::{Error, FailureReason, Shape, Tensor};

use crate::{
    gather::{CopiedBytes, Gathering, RequestErrors},
    iteration::{Iteration, answer_cancelled, mark_done},
    ort::{AlignedBuffer, Feed, OrtError, OutputValue, RunOptions, Session},
    output_places::{ExpectedOutputs, OutputShapes, places},
    plan::{ExecutionPlan, FetchPlan},
    scatter::{ScatterTarget, scatter, scatter_place},
    state::{groups, store_states},
};

/// One executable copy of a model. Any thread may run it, one at a time.
pub(crate) struct OnnxInstance {
    /// Other instances may run it at the same time.
    session: Arc<Session>,
    plan: ExecutionPlan,
    /// How requests continue after a run, for iterative models.
    iteration: Option<Iteration>,
    run_options: Option<RunOptions>,
    /// Buffers for the inputs that cannot be used in place, one for each feed.
    buffers: Vec<AlignedBuffer>,
    /// For each state, the last output whose parts are states of several sequences of a batch. The sequences keep it
    /// alive.
    carried: Vec<Weak<OutputValue>>,
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

impl OnnxInstance {
    /// An instance that runs `session` as `plan` describes.
    pub(crate) fn new(
        session: Arc<Session>,
        plan: ExecutionPlan,
        iteration: Option<Iteration>,
        run_options: Option<RunOptions>,
        copied_bytes: Arc<CopiedBytes>,
    ) -> Self {
        let buffers = plan.feeds.iter().map(|_| AlignedBuffer::default()).collect();
        let carried = plan.state_feeds().map(|_| Weak::new()).collect();
        let output_shapes = OutputShapes::default();
        Self { session, plan, iteration, run_options, buffers, carried, copied_bytes, output_shapes }
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
            runtime: self.session.runtime(),
            plan: &self.plan,
            executions,
            carried: &carried,
            copied_bytes: &self.copied_bytes,
        };
        let mut feeds: SmallVec<[Feed<'_>; 4]> = SmallVec::new();
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
        let result = run(&self.session, self.run_options.as_ref(), (&feeds, &slots), expected);
        execution_times.compute_ended();

        let RunOutputs { outputs, in_place, has_disproved_shapes } =
            result.map_err(|failure| self.plan.failed_run(&failure))?;
        if has_disproved_shapes {
            self.output_shapes.give_up();
        }
        if let Some(execution) = alone.filter(|execution| self.output_shapes.are_wanted(execution)) {
            let shape = |(fetch, output): (&&FetchPlan, &Option<OutputValue>)| {
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
                mark_done(&self.plan, &output, &mut shares)?;
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

impl BackendInstance for OnnxInstance {
    fn execute(&mut self, batch: Batch) {
        let Batch { mut executions, execution_times } = batch;
        let is_abandoned = |execution: &Execution| self.is_abandoned(execution);
        if executions.iter().any(is_abandoned) {
            let (abandoned, waiting): (Vec<_>, _) = executions.into_iter().partition(is_abandoned);
            abandoned.into_iter().for_each(answer_cancelled);
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
struct RunOutputs {
    /// The outputs in their order; `None` for those in places of others.
    outputs: SmallVec<[Option<OutputValue>; 4]>,
    /// The outputs in places of others.
    in_place: ExpectedOutputs,
    /// The expected shapes were wrong.
    has_disproved_shapes: bool,
}

/// Runs the session, with outputs in the expected places if that is possible.
fn run(
    session: &Arc<Session>,
    options: Option<&RunOptions>,
    (feeds, slots): (&[Feed<'_>], &[usize]),
    mut expected: ExpectedOutputs,
) -> Result<RunOutputs, OrtError> {
    let mut has_disproved_shapes = false;
    if expected.iter().any(Option::is_some) {
        let places = places(session.runtime(), &expected)?;
        let made = session.run_to_places(options, feeds, slots, &places);
        let is_placed: SmallVec<[bool; 4]> = places.iter().map(Option::is_some).collect();
        drop(places);
        if let Ok(made) = made {
            let mut made = made.into_iter();
            let outputs = is_placed.iter().map(|placed| if *placed { None } else { made.next() }).collect();
            for (expected, placed) in expected.iter_mut().zip(is_placed) {
                expected.take_if(|_| !placed);
            }
            return Ok(RunOutputs { outputs, in_place: expected, has_disproved_shapes });
        }
        // Either the shapes are not as expected, or the run fails anyway. A run without places shows which.
        has_disproved_shapes = true;
    }
    let outputs = session.run(options, feeds, slots)?;
    let in_place = slots.iter().map(|_| None).collect();
    Ok(RunOutputs { outputs: outputs.into_iter().map(Some).collect(), in_place, has_disproved_shapes })
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
