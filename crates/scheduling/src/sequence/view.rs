//! What callers outside the batcher learn of the slots.
use crate::{batch::InstanceId, sequence_position::SequenceId};

/// The occupant of a slot, for logs and diagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotState<'a> {
    /// The instance.
    pub instance: InstanceId,
    /// The slot's number in the instance.
    pub slot: u32,
    /// The sequence that occupies the slot. `None`: no sequence occupies it, but a request of the previous sequence
    /// still runs.
    pub sequence: Option<&'a SequenceId>,
    /// The number of the sequence's waiting requests.
    pub waiting: usize,
    /// Whether a request runs in the slot. It may belong to the previous sequence.
    pub running: bool,
}

/// A slot whose sequence is over, whatever has ended it, and in which no request of that sequence runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VacatedSlot {
    /// The instance.
    pub instance: InstanceId,
    /// The slot's number in the instance.
    pub slot: u32,
    /// This sequence and those with lower numbers use the slot no more ([`EntryId::sequence_number`]). A later sequence
    /// may already use it.
    ///
    /// [`EntryId::sequence_number`]: crate::EntryId::sequence_number
    pub sequence_number: u64,
}
