//! Runs batches: on which thread they run, what a backend gets, what happens after a panic, and which thread asks the
//! driver for more work.
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use host::{now, unix_time};
use inference::{
    ExecutionTimes, Request, ResponseStream, Timestamp,
    backend::{BackendInstance, Batch, Execution, SlotRef},
    rejection::cancelled,
};
use scheduling::{InstanceId, Row, ScheduledBatch, nanos};
use vocabulary::{Error, FailureReason, Tensor, panic_message};

use super::{
    super::{
        driver::Actions,
        driver_event::{DriverEvent, ExecutionSample},
        instance::{Assignment, RunsBatches, discard},
    },
    Executor,
};
use crate::network_threads::LentThread;

impl Executor {
    /// Whether a batch may run on the thread of the caller whose request completed it. `measured`: the last executions of
    /// the model were brief.
    fn may_run_here(&self, assignment: &Assignment, measured: bool) -> bool {
        // A decoupled model may block on a slow client. Large tensors take long, whatever the last executions took.
        assignment.movable.as_ref().is_some_and(|movable| movable.is_brief().unwrap_or(measured))
            && !self.config.decoupled
            && input_bytes(&assignment.batch.rows) <= BRIEF_BYTES
    }

    /// Takes the batch that this thread may run out of the actions, and lends the thread for it.
    pub(super) fn take_brief(&self, actions: &mut Actions) -> Option<(Assignment, LentThread<'_>)> {
        for (position, assignment) in actions.assignments.iter().enumerate() {
            if self.may_run_here(assignment, actions.brief)
                && let Some(lent) = self.threads.network.lend(actions.at)
            {
                return Some((actions.assignments.remove(position), lent));
            }
        }
        None
    }

    /// Runs a batch, and then the batches that become due for the same instance, for a short time.
    pub(super) fn run_here(self: &Arc<Self>, first: Assignment, since: Timestamp, thread: &LentThread<'_>) {
        let mut next = Some(first);
        while let Some(assignment) = next {
            next = self.run(assignment, &mut None);
            let stays = |next: &mut Assignment| !self.may_run_here(next, true) || now() - since > BRIEF_TIME;
            if let Some(late) = next.take_if(stays) {
                self.instances.run(self.runner(), late);
            }
            if next.is_some() {
                thread.share_tasks();
            }
        }
    }

    /// Runs batches for the threads of the instances.
    pub(super) fn runner(self: &Arc<Self>) -> Arc<dyn RunsBatches> {
        self.clone()
    }

    /// Runs a batch on this thread. Returns the next batch for the same instance, if one is due.
    fn run(
        self: &Arc<Self>,
        assignment: Assignment,
        thread_bound: &mut Option<Box<dyn BackendInstance>>,
    ) -> Option<Assignment> {
        let Assignment { batch: ScheduledBatch { instance, mut rows, end: batch_end }, mut movable } =
            assignment;
        let start = now();
        rows.retain_mut(|row| !answer_if_cancelled(row));
        let requests = rows.iter().filter(|row| matches!(row, Row::Request { .. })).count();
        if requests > 0 {
            self.counters.batch_began(batch_end);
            let (batch, _padding) = self.assemble(rows, instance);
            let execution_times = batch.execution_times.clone();
            let outcome = catch_unwind(AssertUnwindSafe(|| match (&mut movable, thread_bound.as_mut()) {
                (Some(movable), _) => movable.execute(batch),
                (None, Some(thread_bound)) => thread_bound.execute(batch),
                (None, None) => unreachable!("an instance lies on its thread or comes with its work"),
            }));
            if let Err(panic) = outcome {
                self.fail_version(instance, panic.as_ref());
                // The state of the instance is unknown, so the executor never uses it again. This thread may be the
                // client's, and the end of an instance may take long.
                discard(thread_bound.take());
                if let Some(movable) = movable {
                    self.instances.discard(movable);
                }
                return None;
            }
            self.counters.executed(&execution_times, now(), unix_time);
        }
        let end = now();
        let executed = (requests > 0).then(|| ExecutionSample { nanos: nanos(end - start), requests });
        let finished = DriverEvent::Finished { end, instance, movable, executed };
        if self.batching.is_some() {
            self.in_step(move |me| {
                if let Some(next) = me.finished(instance, finished) {
                    me.instances.run(me.runner(), next);
                }
            });
            return None;
        }
        self.finished(instance, finished)
    }

    /// The batch of a backend, with rows of padding, and the streams of those rows. No client reads the streams. The caller
    /// keeps them, because a row without its stream would count as cancelled. Cancelled requests have been answered.
    fn assemble(
        self: &Arc<Self>,
        rows: Vec<Row<Box<Execution>>>,
        instance: InstanceId,
    ) -> (Batch, Vec<ResponseStream>) {
        let sequences = self.sequences.as_ref();
        let mut padding = Vec::new();
        let mut size = 0;
        let mut executions = Vec::with_capacity(rows.len());
        let padding_inputs = if sequences.is_some() { padding_inputs(&rows) } else { Vec::new() };
        for (position, row) in (0..).zip(rows) {
            match (row, sequences) {
                (Row::Request { entry, slot: Some(slot) }, Some(sequences)) => {
                    size += 1;
                    let attributes = entry.attributes;
                    let slot_ref = SlotRef { slot_owner: self.clone(), instance, slot, attributes };
                    executions.push(sequences.prepare(entry.id, slot_ref, entry.payload));
                }
                (Row::Request { entry, .. }, _) => {
                    size += entry.attributes.batch_size.max(1);
                    executions.push(*entry.payload);
                }
                (Row::Padding, Some(sequences)) => {
                    size += 1;
                    let (execution, stream) = sequences.pad(instance, position, &padding_inputs);
                    executions.push(execution);
                    padding.push(stream);
                }
                (Row::Padding, None) => unreachable!("only the sequence batcher pads"),
            }
        }
        let traces = executions.iter().filter_map(|execution| execution.responder.timeline().trace());
        let execution_times = Arc::new(ExecutionTimes::start(size, now).traced(traces));
        for execution in &executions {
            execution.responder.timeline().executing(execution_times.clone());
        }
        (Batch { executions, execution_times }, padding)
    }

    /// Returns the next batch for the same instance, which has finished one.
    fn finished(self: &Arc<Self>, instance: InstanceId, finished: DriverEvent) -> Option<Assignment> {
        let mut actions = self.step(finished);
        self.notify_if_closing();
        let next = actions.take_batch_of(instance);
        self.perform(actions).notify();
        next
    }

    /// The backend has panicked: the version stops running, and the executor answers the waiting requests.
    fn fail_version(self: &Arc<Self>, instance: InstanceId, panic: &(dyn std::any::Any + Send)) {
        let message = format!(
            "the backend of model '{}' version {} panicked: {}",
            self.config.name,
            self.version,
            panic_message(panic)
        );
        log::error!("{message}");
        let fault = Error::internal(message).because(FailureReason::Backend);
        self.fault.set(fault);
        self.handle(DriverEvent::Lost(instance));
        self.without_sequences.notify_waiters();
        self.notify_if_closing();
    }
}

impl RunsBatches for Executor {
    fn run_own(self: Arc<Self>, mut first: Assignment, thread_bound: &mut Option<Box<dyn BackendInstance>>) {
        let rejected = self.driver.lock().grow(now(), &mut first.batch, &self.orders);
        self.refuse(rejected);
        let mut next = Some(first);
        while let Some(assignment) = next {
            next = self.run(assignment, thread_bound);
        }
    }
}

/// Requests with inputs up to this size may run on the caller's thread.
const BRIEF_BYTES: usize = 64 << 10;
/// How long a caller's thread runs the batches of other callers after its own.
const BRIEF_TIME: Duration = Duration::from_micros(100);

fn input_bytes(rows: &[Row<Box<Execution>>]) -> usize {
    let requests = rows.iter().filter_map(|row| match row {
        Row::Request { entry, .. } => Some(&entry.payload.request),
        Row::Padding => None,
    });
    requests.flat_map(Request::tensors).map(Tensor::byte_size).sum()
}

/// The inputs of padding rows, if there are such rows: those of the first request of the batch, filled with zeros.
fn padding_inputs(rows: &[Row<Box<Execution>>]) -> Vec<Tensor> {
    let has_padding = rows.iter().any(|row| matches!(row, Row::Padding));
    let first =
        rows.iter().find_map(|row| if let Row::Request { entry, .. } = row { Some(entry) } else { None });
    let inputs = first.filter(|_| has_padding).map_or(&[][..], |entry| entry.payload.request.tensors());
    let blank =
        |tensor: &Tensor| Tensor::zeros(tensor.name().clone(), tensor.datatype(), tensor.shape().into());
    inputs.iter().map(blank).collect()
}

/// Answers a request that was cancelled before its batch runs. Returns true if it did so. A request of a sequence runs
/// although it was cancelled: otherwise the model would miss a step.
fn answer_if_cancelled(row: &mut Row<Box<Execution>>) -> bool {
    let Row::Request { entry, slot: None } = row else { return false };
    let cancelled_by_client = entry.payload.responder.is_cancelled();
    if cancelled_by_client {
        // As `Execution::fail`: what the request holds is free before the answer.
        drop(std::mem::take(&mut entry.payload.request));
        entry.payload.responder.clone().fail(cancelled());
    }
    cancelled_by_client
}
