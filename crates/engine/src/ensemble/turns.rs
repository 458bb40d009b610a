//! The turns of a request whose sequence has others in the ensemble: steps of sequence models start in the order of
//! arrival. `scheduling::SequenceTurns` decides; this file wakes those whose turns have come.
use std::sync::Arc;

use futures_util::task::AtomicWaker;
use inference::{SequenceId, lock::Mutex};
use scheduling::{SequenceTurns, TurnPlace};
use smallvec::SmallVec;

/// The lines of all sequences of an ensemble, behind a leaf lock. Wakers are called without the lock.
pub(super) type TurnLines = Mutex<SequenceTurns<SequenceId, Arc<AtomicWaker>>>;

/// The turns of one request. Dropping it gives all of them to later requests.
pub(super) struct RequestTurns {
    lines: Arc<TurnLines>,
    place: TurnPlace<SequenceId>,
    /// Steps that wait for their turns.
    awaited: SmallVec<[usize; 2]>,
}

impl RequestTurns {
    /// The request arrives. `waker` is called when a turn comes.
    pub(super) fn enter(lines: &Arc<TurnLines>, sequence: SequenceId, waker: Arc<AtomicWaker>) -> Self {
        let place = lines.lock().enter(sequence, waker);
        Self { lines: lines.clone(), place, awaited: SmallVec::new() }
    }

    /// Whether a step may start now. Steps that may not are noted.
    pub(super) fn may_start(&mut self, step: usize) -> bool {
        let may = self.lines.lock().may_start(&self.place, step);
        if !may && !self.awaited.contains(&step) {
            self.awaited.push(step);
        }
        may
    }

    /// A step has started for the last time, and its member has its request.
    pub(super) fn started(&self, step: usize) {
        let next = self.lines.lock().started(&self.place, step);
        next.iter().for_each(|waker| waker.wake());
    }

    /// Whether the turn of a noted step has come.
    pub(super) fn has_come(&mut self) -> bool {
        if self.awaited.is_empty() {
            return false;
        }
        let lines = self.lines.lock();
        let has_come = self.awaited.iter().any(|step| lines.may_start(&self.place, *step));
        drop(lines);
        if has_come {
            self.awaited.clear();
        }
        has_come
    }
}

impl Drop for RequestTurns {
    fn drop(&mut self) {
        let woken = self.lines.lock().leave(&self.place);
        woken.iter().for_each(|waker| waker.wake());
    }
}
