//! A view of the slots for callers outside the batcher.
use crate::{batch::InstanceId, step::SequenceId};

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
