//! A model on a virtual clock: instances, a scheduler, and the loop between them.
use std::{collections::BTreeSet, time::Duration};

use scheduling::{InstanceId, Rejected, Rejection, ScheduledBatch, SchedulingAttributes, Timestamp};

use crate::support::subject::Subject;

/// The test's id of a request.
pub(crate) type RequestId = u64;

/// The visible result of a scheduler's decision.
#[derive(Debug)]
pub(crate) enum Outcome {
    Rejected(RequestId, Rejection),
    Started(ScheduledBatch<RequestId>),
}

/// The run time of a batch. `None`: the batch runs until the test reports that the instance is idle.
pub(crate) type RunTime = Box<dyn Fn(&ScheduledBatch<RequestId>) -> Option<Duration>>;

pub(crate) struct Driver {
    pub(crate) scheduler: Subject,
    pub(crate) now: Timestamp,
    pub(crate) idle: Vec<InstanceId>,
    runs_for: RunTime,
    finishing: BTreeSet<(Timestamp, InstanceId)>,
}

impl Driver {
    pub(crate) fn new(scheduler: Subject, instances: usize, runs_for: RunTime) -> Self {
        Self {
            scheduler,
            now: Timestamp::default(),
            idle: (0..instances).collect(),
            runs_for,
            finishing: BTreeSet::new(),
        }
    }

    /// A request arrives. Its thread may have read the clock a little earlier.
    pub(crate) fn arrive(
        &mut self,
        request: RequestId,
        attributes: SchedulingAttributes,
        clock_read: Timestamp,
    ) -> Vec<Outcome> {
        match self.scheduler.enqueue(clock_read, attributes, request) {
            Ok(()) => self.settle(),
            Err(Rejected { payload, reason }) => vec![Outcome::Rejected(payload, reason)],
        }
    }

    /// Cancels these requests, if they still wait.
    pub(crate) fn cancel(&mut self, requests: &[RequestId]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for &request in requests {
            let cancelled = self.scheduler.cancel(request);
            assert!(cancelled.iter().all(|rejected| rejected.payload == request), "another one is cancelled");
            outcomes.extend(rejections(&cancelled));
        }
        outcomes.extend(self.settle());
        outcomes
    }

    pub(crate) fn drain(&mut self) -> Vec<Outcome> {
        self.scheduler.drain();
        self.settle()
    }

    pub(crate) fn end_queue_delay(&mut self) -> Vec<Outcome> {
        self.scheduler.end_queue_delay();
        self.settle()
    }

    /// The next time at which something may happen without an event from the test.
    pub(crate) fn next_event(&mut self) -> Option<Timestamp> {
        let finish = self.finishing.first().map(|&(at, _)| at);
        [finish, self.scheduler.next_wakeup(self.now)].into_iter().flatten().min()
    }

    /// Advances to the next time at which something may happen without an event from the test, if there is one until
    /// `limit`.
    pub(crate) fn step(&mut self, limit: Timestamp) -> Option<Vec<Outcome>> {
        let next = self.next_event().filter(|&next| next <= limit)?;
        if let Some(before) = next.as_nanos().checked_sub(1).map(Timestamp::from_nanos) {
            assert!(self.scheduler.expire(before).is_empty(), "{before:?}: rejected before the wake-up");
            assert_eq!(self.scheduler.due(before, &self.idle), None, "{before:?}: due before the wake-up");
        }
        self.now = next;
        while let Some(&(at, instance)) = self.finishing.first().filter(|&&(at, _)| at <= next) {
            self.finishing.remove(&(at, instance));
            self.idle.push(instance);
        }
        Some(self.settle())
    }

    /// Does what the real driver does after every event.
    pub(crate) fn settle(&mut self) -> Vec<Outcome> {
        let mut outcomes: Vec<_> = rejections(&self.scheduler.expire(self.now)).collect();
        while let Some(due) = self.scheduler.due(self.now, &self.idle) {
            let instance = due.instance();
            assert!(self.idle.contains(&instance), "instance {instance} is busy");
            let batch = self.scheduler.take(due);
            assert_eq!(batch.instance, instance);
            self.idle.retain(|&idle| idle != instance);
            if let Some(runs_for) = (self.runs_for)(&batch) {
                self.finishing.insert((self.now + runs_for, instance));
            }
            outcomes.push(Outcome::Started(batch));
        }
        if let Some(wakeup) = self.scheduler.next_wakeup(self.now) {
            assert!(self.now < wakeup, "a wake-up that is not in the future would spin");
        }
        outcomes
    }
}

fn rejections(rejected: &[Rejected<RequestId>]) -> impl Iterator<Item = Outcome> {
    rejected.iter().map(|rejected| Outcome::Rejected(rejected.payload, rejected.reason))
}
