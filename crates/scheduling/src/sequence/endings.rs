//! How sequences end, and who has their slots then.
use std::collections::VecDeque;

use super::{Seat, Sequence, SequenceBatcher};
use crate::{Entry, Rejected, Rejection};

impl<T> SequenceBatcher<T> {
    /// The sequence of a slot is over, and the next one has it.
    pub(super) fn vacate(&mut self, seat: Seat) {
        if let Some(sequence) = self.slots.move_out(seat) {
            debug_assert!(sequence.requests.is_empty(), "sequence {} is not over", sequence.id);
            self.forget(&sequence);
        }
        if self.slots.is_leaving(seat.instance) {
            return self.slots.offer(seat);
        }
        match self.backlog.pop() {
            Some(next) => self.move_in(seat, next),
            None => self.slots.offer(seat),
        }
    }

    /// No more requests join a sequence.
    pub(super) fn forget(&mut self, sequence: &Sequence<T>) {
        if sequence.open {
            self.open.remove(&sequence.id);
        }
    }

    pub(super) fn reject_all(
        &mut self,
        requests: VecDeque<Entry<T>>,
        reason: Rejection,
        into: &mut Vec<Rejected<T>>,
    ) {
        self.waiting -= requests.len();
        into.extend(requests.into_iter().map(|entry| Rejected { payload: entry.payload, reason }));
    }

    /// Closes and empties every sequence in a slot with a request that nobody waits for. What runs, runs on.
    pub(super) fn sweep_slots(&mut self, gone: &dyn Fn(&T) -> bool, swept: &mut Vec<Rejected<T>>) {
        let touched = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.tenant.as_ref().is_some_and(|tenant| tenant.is_touched(gone)));
        let touched: Vec<_> = touched.map(|(seat, _)| seat).collect();
        for &seat in &touched {
            let Some(tenant) = self.slots.slot(seat).and_then(|slot| slot.tenant.as_mut()) else { continue };
            if tenant.open {
                self.open.remove(&tenant.id);
            }
            tenant.open = false;
            let requests = std::mem::take(&mut tenant.requests);
            self.reject_all(requests, Rejection::Cancelled, swept);
        }
        self.slots.forget_unready(&touched);
        for seat in touched {
            // A request that may run once more keeps its slot.
            let running = self.slots.slot(seat).is_some_and(|slot| slot.running);
            if !(self.config.iterative && running) {
                self.vacate(seat);
            }
        }
    }
}
