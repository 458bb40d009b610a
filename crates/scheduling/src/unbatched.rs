//! The default scheduler: each request is a batch of its own, for any idle instance.
use std::collections::VecDeque;

use crate::{Batch, DueBatch, Entry, InstanceId, Meta, Rejected, Rejection, Row, Scheduler, Timestamp};

/// The policy of a model without a `scheduling_choice`: first come, first served, one request at a time.
///
/// A request's own rows pass unchanged. Priorities and timeouts do not count here, but requests wait in a
/// queue of ours until an instance is idle, so that cancelling one takes effect at once.
#[derive(Debug)]
pub struct Unbatched<T> {
    waiting: VecDeque<Entry<T>>,
    draining: bool,
}

impl<T> Unbatched<T> {
    /// Starts with nothing waiting.
    #[must_use]
    pub fn new() -> Self {
        Self { waiting: VecDeque::new(), draining: false }
    }
}

impl<T> Default for Unbatched<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send> Scheduler<T> for Unbatched<T> {
    fn enqueue(&mut self, now: Timestamp, meta: Meta, payload: T) -> Result<(), Rejected<T>> {
        if self.draining {
            return Err(Rejected { payload, reason: Rejection::Draining });
        }
        let arrived = self.waiting.back().map_or(now, |last| last.arrived.max(now));
        self.waiting.push_back(Entry { meta, arrived, payload });
        Ok(())
    }

    fn expire(&mut self, _now: Timestamp) -> Vec<Rejected<T>> {
        Vec::new()
    }

    fn sweep(&mut self, is_cancelled: &dyn Fn(&T) -> bool) -> Vec<Rejected<T>> {
        crate::priority_level::sweep(&mut self.waiting, |entry| is_cancelled(&entry.payload))
            .into_iter()
            .map(|entry| Rejected { payload: entry.payload, reason: Rejection::Cancelled })
            .collect()
    }

    fn due(&self, _now: Timestamp, idle: &[InstanceId]) -> Option<DueBatch> {
        let &instance = idle.first()?;
        (!self.waiting.is_empty()).then_some(DueBatch { instance, requests: 1 })
    }

    fn take(&mut self, due: DueBatch) -> Batch<T> {
        debug_assert!(!self.waiting.is_empty(), "the receipt is older than the queue");
        let rows = self.waiting.pop_front().into_iter().map(|entry| Row::Request { entry, slot: None });
        Batch { instance: due.instance, rows: rows.collect() }
    }

    fn next_wakeup(&self, _now: Timestamp) -> Option<Timestamp> {
        None
    }

    fn drain(&mut self) {
        self.draining = true;
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}
