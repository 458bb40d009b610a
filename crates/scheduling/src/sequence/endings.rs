//! How sequences end, and who has their slots then.
use std::collections::VecDeque;

use super::{Sequence, SequenceBatcher, SlotId};
use crate::{Entry, Rejected, Rejection};

impl<T> SequenceBatcher<T> {
    /// The sequence of a slot is over, and the next one has it.
    pub(super) fn vacate(&mut self, slot_id: SlotId) {
        if let Some(sequence) = self.slots.move_out(slot_id) {
            debug_assert!(sequence.requests.is_empty(), "sequence {} is not over", sequence.id);
            self.forget(&sequence);
        }
        if self.slots.is_leaving(slot_id.instance) {
            return self.slots.offer(slot_id);
        }
        match self.backlog.pop() {
            Some(next) => self.move_in(slot_id, next),
            None => self.slots.offer(slot_id),
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
    pub(super) fn sweep_slots(&mut self, is_cancelled: &dyn Fn(&T) -> bool, swept: &mut Vec<Rejected<T>>) {
        let touched = self.slots.iter().filter(|(_, slot)| {
            slot.occupant.as_ref().is_some_and(|occupant| occupant.has_cancelled_request(is_cancelled))
        });
        let touched: Vec<_> = touched.map(|(slot_id, _)| slot_id).collect();
        for &slot_id in &touched {
            let Some(occupant) = self.slots.slot(slot_id).and_then(|slot| slot.occupant.as_mut()) else {
                continue;
            };
            if occupant.open {
                self.open.remove(&occupant.id);
            }
            occupant.open = false;
            let requests = std::mem::take(&mut occupant.requests);
            self.reject_all(requests, Rejection::Cancelled, swept);
        }
        self.slots.remove_unready(&touched);
        for slot_id in touched {
            // A request that may run once more keeps its slot.
            let running = self.slots.slot(slot_id).is_some_and(|slot| slot.running);
            if !(self.config.iterative && running) {
                self.vacate(slot_id);
            }
        }
    }
}
