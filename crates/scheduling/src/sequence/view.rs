//! What can be seen of the slots from outside.
use crate::{batch::InstanceId, step::SequenceId};

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
