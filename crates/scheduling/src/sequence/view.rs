//! What can be seen of the slots from outside.
use super::{SequenceBatcher, SequenceId};
use crate::InstanceId;

/// Who has a slot, for logs and pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotState<'a> {
    /// The instance.
    pub instance: InstanceId,
    /// The slot's number there.
    pub slot: u32,
    /// Whose it is; `None` is nobody's, while a request of the sequence before still runs.
    pub sequence: Option<&'a SequenceId>,
    /// How many of its requests wait.
    pub waiting: usize,
    /// Whether a request runs here, if not always one of this sequence.
    pub running: bool,
}

impl<T> SequenceBatcher<T> {
    /// The slots that somebody has, by instance and number.
    pub fn slots(&self) -> impl Iterator<Item = SlotState<'_>> {
        self.slots.iter().map(|(slot_id, slot)| SlotState {
            instance: slot_id.instance,
            slot: slot_id.slot,
            sequence: slot.occupant.as_ref().map(|occupant| &occupant.id),
            waiting: slot.occupant.as_ref().map_or(0, |occupant| occupant.requests.len()),
            running: slot.running,
        })
    }

    /// The sequences that wait for a slot, and how many requests each has, first come first.
    pub fn backlog(&self) -> impl Iterator<Item = (&SequenceId, usize)> {
        self.backlog.iter().map(|sequence| (&sequence.id, sequence.requests.len()))
    }
}
