//! The default scheduler: each request is its own batch, for any idle instance.
use crate::{
    batch::{CutReason, DueBatch, InstanceId, Row},
    rejection::{Rejected, Rejection},
    request::{Entry, EntryId, SchedulingAttributes},
    serial_queue::SerialQueue,
    time::Timestamp,
};

/// The policy of a model without a `scheduling_choice`: first come, first served, one request at a time.
///
/// The rows of a request pass unchanged. This policy ignores priorities and timeouts. Requests wait in a queue of
/// Nereid until an instance is idle, so that a cancellation takes effect at once.
#[derive(Debug)]
pub struct Unbatched<T> {
    waiting: SerialQueue<Entry<T>>,
    accepted: u64,
    draining: bool,
}

impl<T> Unbatched<T> {
    /// Starts without requests.
    #[must_use]
    pub fn new() -> Self {
        Self { waiting: SerialQueue::new(), accepted: 0, draining: false }
    }

    pub(crate) fn enqueue(
        &mut self,
        now: Timestamp,
        attributes: SchedulingAttributes,
        payload: T,
    ) -> Result<EntryId, Rejected<T>> {
        if self.draining {
            return Err(Rejected { payload, reason: Rejection::Draining });
        }
        let id = EntryId { queue: 0, serial: self.accepted };
        self.accepted += 1;
        let arrived = self.waiting.back().map_or(now, |last| last.arrived.max(now));
        self.waiting.push(id.serial, Entry { id, attributes, arrived, payload });
        Ok(id)
    }

    pub(crate) fn cancel(&mut self, entry: EntryId) -> Option<Rejected<T>> {
        Some(Rejected::new(self.waiting.remove(entry.serial)?, Rejection::Cancelled))
    }

    pub(crate) fn reject_all(&mut self) -> Vec<Rejected<T>> {
        self.waiting.take_all().map(|entry| Rejected::new(entry, Rejection::Cancelled)).collect()
    }

    pub(crate) fn due(&self, idle: &[InstanceId]) -> Option<DueBatch> {
        let &instance = idle.first()?;
        (!self.waiting.is_empty()).then_some(DueBatch { instance, requests: 1, end: CutReason::Unbatched })
    }

    pub(crate) fn take(&mut self) -> Option<Row<T>> {
        debug_assert!(!self.waiting.is_empty(), "the receipt is older than the queue");
        self.waiting.pop().map(|entry| Row::Request { entry, slot: None })
    }

    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Entry<T>> {
        self.waiting.iter()
    }

    pub(crate) fn queued(&self) -> usize {
        self.waiting.len()
    }
}

impl<T> Default for Unbatched<T> {
    fn default() -> Self {
        Self::new()
    }
}
