//! One session and its runs.
use std::sync::Arc;

use inference::{
    Error, ErrorCode, FailureReason, Marks, Response,
    backend::{BackendInstance, Batch, Execution},
};
use smallvec::SmallVec;

use crate::{
    gather::{Copies, Faults, Gathering},
    ort::{AlignedBuffer, Feed, RunOptions, Session},
    plan::{FetchPlan, Plan},
    scatter::{Share, scatter},
};

/// One executable copy of a model. Any one thread at a time may run it.
pub(crate) struct OnnxInstance {
    session: Arc<Session>,
    plan: Plan,
    run_options: Option<RunOptions>,
    /// Where inputs are gathered that cannot stay where they are, one per feed.
    buffers: Vec<AlignedBuffer>,
    copies: Arc<Copies>,
}

type Answers = SmallVec<[Result<Response, Error>; 4]>;

impl OnnxInstance {
    /// An instance that runs `session` as `plan` says.
    pub(crate) fn new(
        session: Arc<Session>,
        plan: Plan,
        run_options: Option<RunOptions>,
        copies: Arc<Copies>,
    ) -> Self {
        let buffers = plan.feeds.iter().map(|_| AlignedBuffer::default()).collect();
        Self { session, plan, run_options, buffers, copies }
    }

    fn run(&mut self, executions: Vec<Execution>, marks: &Marks) {
        match self.compute(&executions, marks) {
            Ok(answers) => {
                for (execution, answer) in executions.into_iter().zip(answers) {
                    match answer {
                        Ok(response) => execution.responder.complete(response),
                        Err(error) => execution.responder.fail(error),
                    }
                }
            }
            Err(error) => {
                let error = error.because(FailureReason::Backend);
                for execution in executions {
                    execution.responder.fail(error.clone());
                }
            }
        }
    }

    /// The answers to requests that run together, in their order.
    fn compute(&mut self, executions: &[Execution], marks: &Marks) -> Result<Answers, Error> {
        let mut shares = self.shares(executions)?;
        let mut faults = Faults::from_elem(None, executions.len());
        let gathering =
            Gathering { runtime: self.session.runtime(), plan: &self.plan, executions, copies: &self.copies };
        let mut feeds: SmallVec<[Feed<'_>; 4]> = SmallVec::new();
        for (feed, buffer) in self.plan.feeds.iter().zip(&mut self.buffers) {
            if let Some(value) = gathering.feed(feed, buffer, &mut faults)? {
                feeds.push(Feed { slot: feed.slot, value });
            }
        }
        let fetches = wanted(&self.plan, executions);
        let slots: SmallVec<[usize; 8]> = fetches.iter().map(|fetch| fetch.slot).collect();

        marks.compute_started();
        let result = self.session.run(self.run_options.as_ref(), &feeds, &slots);
        marks.compute_ended();

        for (fetch, output) in fetches.iter().zip(result?) {
            scatter(&self.plan, fetch, output, &mut shares, &self.copies)?;
        }
        let answer = |(share, fault): (Share<'_>, Option<Error>)| match fault {
            None => Ok(Response::of(share.outputs)),
            Some(error) => Err(error.because(FailureReason::Backend)),
        };
        Ok(shares.into_iter().zip(faults).map(answer).collect())
    }

    /// What belongs to whom: each request with its number of rows.
    fn shares<'a>(&self, executions: &'a [Execution]) -> Result<SmallVec<[Share<'a>; 4]>, Error> {
        let rows = |execution: &Execution| {
            if self.plan.max_rows.is_none() {
                return 1;
            }
            let first = execution.request.tensors().first().and_then(|tensor| tensor.shape().first());
            first.copied().unwrap_or_else(|| execution.responder.timeline().rows.into())
        };
        let share = |execution| Share { execution, rows: rows(execution), outputs: Vec::with_capacity(1) };
        let shares: SmallVec<[Share<'a>; 4]> = executions.iter().map(share).collect();
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
        let Batch { mut executions, marks } = batch;
        if executions.iter().any(|execution| execution.responder.is_cancelled()) {
            let (gone, waiting) =
                executions.into_iter().partition(|execution| execution.responder.is_cancelled());
            answer_cancelled(gone);
            executions = waiting;
        }
        if executions.is_empty() {
            return;
        }
        if self.plan.max_rows.is_some() || executions.len() == 1 {
            return self.run(executions, &marks);
        }
        // Tensors without a batch dimension cannot be joined.
        for execution in executions {
            self.run(vec![execution], &marks);
        }
    }
}

/// Outputs that at least one request wants.
fn wanted<'a>(plan: &'a Plan, executions: &[Execution]) -> SmallVec<[&'a FetchPlan; 8]> {
    let by_any =
        |fetch: &&FetchPlan| executions.iter().any(|execution| execution.request.wants(&fetch.spec.name));
    plan.fetches.iter().filter(by_any).collect()
}

fn answer_cancelled(executions: Vec<Execution>) {
    for execution in executions {
        let error = Error::new(ErrorCode::Cancelled, "request was cancelled");
        execution.responder.fail(error.because(FailureReason::Cancelled));
    }
}
