//! What a model version decides when there is news, and what is to be done then.
//!
//! The driver is a place, not a task: it lies behind one lock, and whoever has news visits it: the caller who brings a
//! request, the thread that has finished a batch, the alarm clock. A visit changes the policy's state and returns what
//! is to be done; rejecting, running and waking happen outside the lock.
use std::sync::Arc;

use inference::{
    Error, ErrorCode, FailureReason, Marks, Moment,
    backend::{Batch, Execution},
};
use scheduling::{InstanceId, Rejected, Rejection, Row, Scheduler};

use super::{instance::Mobile, order::Order};
use crate::clock::now;

/// The state of one model version's scheduling.
pub(super) struct Driver {
    scheduler: Box<dyn Scheduler<Execution>>,
    /// Instances without work, the one that has rested least first, as its memory is warm.
    idle: Vec<InstanceId>,
    instances: usize,
    /// Where idle instances lie that any thread may run.
    resting: Vec<Option<Mobile>>,
    /// The earliest wake-up call that has been asked for and has not come.
    alarm: Option<Moment>,
    /// How long an execution is expected to take, in nanoseconds; unknown until some were measured.
    cost: Cost,
}

/// A batch and the instance it goes to.
pub(super) struct Assignment {
    pub(super) instance: InstanceId,
    pub(super) batch: Batch,
    /// The instance itself, if it need not run on its own thread.
    pub(super) mobile: Option<Mobile>,
}

/// What a visit asks its visitor to do.
#[derive(Default)]
pub(super) struct Duties {
    pub(super) rejected: Vec<Rejected<Execution>>,
    pub(super) assignments: Vec<Assignment>,
    /// A wake-up call to ask for.
    pub(super) alarm: Option<Moment>,
    /// The first assignment may run right where its request arrived.
    pub(super) brief: bool,
}

impl Driver {
    /// All instances idle, nothing waiting. `resting` holds one place per instance.
    pub(super) fn new(scheduler: Box<dyn Scheduler<Execution>>, resting: Vec<Option<Mobile>>) -> Self {
        let instances = resting.len();
        Self {
            scheduler,
            idle: (0..instances).collect(),
            instances,
            resting,
            alarm: None,
            cost: Cost::default(),
        }
    }

    /// A request has come.
    #[expect(clippy::result_large_err, reason = "the refused request travels in the error")]
    pub(super) fn enqueue(
        &mut self,
        at: Moment,
        meta: scheduling::Meta,
        execution: Execution,
    ) -> Result<(), Rejected<Execution>> {
        self.scheduler.enqueue(at, meta, execution)
    }

    /// An instance has finished a batch that took so many nanoseconds, or that there was nobody left to run for.
    pub(super) fn finished(&mut self, instance: InstanceId, mobile: Option<Mobile>, executed: Option<u64>) {
        self.resting[instance] = mobile;
        self.idle.insert(0, instance);
        if let Some(nanos) = executed {
            self.cost.note(nanos);
        }
    }

    /// Somebody's client has gone.
    pub(super) fn sweep(&mut self) -> Vec<Rejected<Execution>> {
        self.scheduler.sweep(&|execution| execution.responder.is_cancelled())
    }

    /// An instance has died in the middle of a batch.
    pub(super) fn lost(&mut self) {
        self.instances -= 1;
    }

    /// Everything that waits, because nothing will run any more.
    pub(super) fn give_up(&mut self) -> Vec<Rejected<Execution>> {
        self.scheduler.drain();
        self.scheduler.sweep(&|_| true)
    }

    /// The wake-up call that was asked for has come.
    pub(super) fn woken(&mut self) {
        self.alarm = None;
    }

    /// No new requests from now on.
    pub(super) fn drain(&mut self) {
        self.scheduler.drain();
    }

    /// Requests that wait.
    pub(super) fn pending(&self) -> usize {
        self.scheduler.in_flight()
    }

    /// Whether no instance runs anything.
    pub(super) fn is_idle(&self) -> bool {
        self.idle.len() == self.instances
    }

    /// The instances that rest here, to be dropped on their threads.
    pub(super) fn release_resting(&mut self) -> Vec<Option<Mobile>> {
        std::mem::take(&mut self.resting)
    }

    /// After every piece of news: what has waited too long, which batches leave, when to look again.
    pub(super) fn settle(&mut self, at: Moment, order: Option<&Arc<Order>>) -> Duties {
        let mut duties = Duties { rejected: self.scheduler.expire(at), ..Duties::default() };
        while let Some(due) = self.scheduler.due(at, &self.idle) {
            let batch = self.scheduler.take(due);
            let place = self.idle.iter().position(|&instance| instance == batch.instance);
            debug_assert!(place.is_some(), "a batch goes to an idle instance");
            if let Some(place) = place {
                self.idle.remove(place);
            }
            let mobile = self.resting[batch.instance].take();
            duties.brief |= duties.assignments.is_empty() && self.cost.is_brief();
            duties.assignments.push(Assignment {
                instance: batch.instance,
                batch: assemble(batch, order),
                mobile,
            });
        }
        let wakeup = self.scheduler.next_wakeup(at);
        if wakeup.is_some_and(|wakeup| self.alarm.is_none_or(|alarm| wakeup < alarm)) {
            self.alarm = wakeup;
            duties.alarm = wakeup;
        }
        duties
    }
}

/// Rows of a policy's batch to executions of a backend's batch.
fn assemble(batch: scheduling::Batch<Execution>, order: Option<&Arc<Order>>) -> Batch {
    let mut rows = 0;
    let mut executions = Vec::with_capacity(batch.rows.len());
    for row in batch.rows {
        match row {
            Row::Request { entry, slot: _ } => {
                rows += entry.meta.batch_size.max(1);
                executions.push(entry.payload);
            }
            Row::Padding => unreachable!("only the sequence batcher pads"),
        }
    }
    let marks = Arc::new(Marks::start(rows, now));
    for execution in &executions {
        execution.responder.timeline().executing(marks.clone());
        if let Some(order) = order {
            // The one place where a lock is taken under another: the order's is a leaf, and tickets must be taken in
            // the order of dequeuing.
            execution.responder.leave_through(order.clone(), order.ticket());
        }
    }
    Batch { executions, marks }
}

/// The error a rejected request is answered with.
pub(super) fn rejection_error(reason: Rejection, request_id: &str) -> Error {
    let rejected = |message: String| Error::unavailable(message).because(FailureReason::Rejected);
    match reason {
        Rejection::QueueFull => rejected(format!("{}Exceeds maximum queue size", id_prefix(request_id))),
        Rejection::TimedOut => rejected("Request timeout expired".to_owned()),
        Rejection::Cancelled => {
            Error::new(ErrorCode::Cancelled, "Request cancelled").because(FailureReason::Cancelled)
        }
        Rejection::Draining => Error::unavailable(format!(
            "{}Server is stopping, scheduler for model has stopped accepting new inference requests",
            id_prefix(request_id)
        )),
    }
}

/// What many messages of the reference begin with.
pub(super) fn id_prefix(request_id: &str) -> String {
    let id = if request_id.is_empty() { "<id_unknown>" } else { request_id };
    format!("[request id: {id}] ")
}

/// A cautious guess of how long the next execution takes: believes two long ones in a row at once, and long ones that
/// come again and again, forgets slowly.
#[derive(Default)]
struct Cost {
    guess_nanos: u64,
    last_nanos: u64,
    measured: u32,
    /// Rises with each execution that is not brief, falls with each that is.
    suspicion: u32,
}

impl Cost {
    /// An execution this short costs less than handing it to another thread and back.
    const BRIEF_NANOS: u64 = 50_000;
    /// The first executions of a model are not typical.
    const ENOUGH: u32 = 8;
    /// One execution that is not brief weighs as much as so many that are.
    const LONG_WEIGHT: u32 = 16;
    /// Three long ones among few are not accidents any more.
    const SUSPICIOUS: u32 = 3 * Self::LONG_WEIGHT - 8;

    fn note(&mut self, nanos: u64) {
        // A single long one is most often a thread that was preempted, and says nothing of the model.
        let believed = nanos.min(self.last_nanos);
        self.last_nanos = nanos;
        self.guess_nanos = believed.max(self.guess_nanos - self.guess_nanos / 16);
        self.measured = self.measured.saturating_add(1);
        self.suspicion = if nanos > Self::BRIEF_NANOS {
            (self.suspicion + Self::LONG_WEIGHT).min(2 * Self::SUSPICIOUS)
        } else {
            self.suspicion.saturating_sub(1)
        };
    }

    fn is_brief(&self) -> bool {
        self.measured >= Self::ENOUGH
            && self.guess_nanos <= Self::BRIEF_NANOS
            && self.suspicion < Self::SUSPICIOUS
    }
}

#[cfg(test)]
mod tests {
    use super::Cost;

    fn after(executions: &[u64]) -> bool {
        let mut cost = Cost::default();
        executions.iter().for_each(|&nanos| cost.note(nanos));
        cost.is_brief()
    }

    #[test]
    fn a_model_is_brief_once_enough_executions_were_short() {
        assert!(!after(&[1_000; 7]));
        assert!(after(&[1_000; 8]));
        assert!(!after(&[1_000_000; 8]));
    }

    #[test]
    fn one_long_execution_is_an_accident_and_two_are_a_habit() {
        let mut executions = vec![1_000; 8];
        executions.push(5_000_000);
        assert!(after(&executions));
        executions.push(5_000_000);
        assert!(!after(&executions));
        executions.extend([1_000; 100]);
        assert!(after(&executions));
    }

    #[test]
    fn a_model_whose_every_second_execution_is_long_is_not_brief() {
        assert!(!after(&[1_000, 5_000_000].repeat(20)));
        assert!(!after(&[5_000_000, 1_000].repeat(20)));
        // One in a hundred is what a busy machine does to a thread.
        let rare: Vec<_> = [1_000; 99].into_iter().chain([5_000_000]).collect();
        assert!(after(&rare.repeat(5)));
    }
}
