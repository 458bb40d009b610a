//! What an executor does at one moment, for people: what waits, what runs, which sequence has which slot.
use std::time::Duration;

use vocabulary::Name;

/// So many instances of a model.
pub(crate) const MOST_INSTANCES: usize = 64;
/// So many slots of a model that sequences hold.
pub(crate) const MOST_SLOTS: usize = 512;
/// So many sequences of a model that wait for a slot.
pub(crate) const MOST_BACKLOGGED: usize = 16;
/// So many characters of a correlation id.
const MOST_CHARACTERS: usize = 64;
/// The bytes of so many waiting requests are added up. Those of the others are estimated.
pub(crate) const MEASURED_REQUESTS: usize = 64;

/// What an executor does at one moment.
#[derive(Default)]
pub struct ExecutorSnapshot {
    /// The requests that wait.
    pub queue: QueueSnapshot,
    /// The instances.
    pub instances: InstancesSnapshot,
    /// The sequences; `None` if the model has none.
    pub sequences: Option<SequencesSnapshot>,
}

/// The requests that wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueSnapshot {
    /// Their number.
    pub requests: usize,
    /// Their bytes. Of a long queue this is an estimate from its first requests.
    pub bytes: usize,
    /// How long the oldest has waited.
    pub oldest: Option<Duration>,
    /// How long the instances probably need for all of them.
    pub work: Option<Duration>,
}

/// The instances of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstancesSnapshot {
    /// Their number, without passive ones.
    pub count: usize,
    /// Those that run a batch.
    pub busy: usize,
    /// Each of them, by number.
    pub each: Vec<InstanceSnapshot>,
    /// Those that are left out.
    pub left_out: usize,
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceSnapshot {
    /// Its number, which slots name.
    pub number: usize,
    /// Its name in logs and errors.
    pub name: Name,
    /// `CPU` or `MODEL`.
    pub kind: &'static str,
    /// What it does.
    pub state: InstanceState,
}

/// What an instance does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceState {
    /// Nothing.
    Idle,
    /// It runs a batch.
    Busy,
    /// It has a batch, and waits for resources of the rate limiter.
    AwaitsResources,
    /// It leaves when its work is done, because the configuration has fewer instances now.
    Leaving,
}

impl InstanceState {
    /// The word for it in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::AwaitsResources => "awaits_resources",
            Self::Leaving => "leaving",
        }
    }
}

/// The sequences of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SequencesSnapshot {
    /// The slots of each instance.
    pub slots_per_instance: u32,
    /// Slots that are not free.
    pub slots: Vec<SlotSnapshot>,
    /// Those that are left out.
    pub slots_left_out: usize,
    /// How long requests have waited while an earlier one of their own sequence ran, all together since the load.
    pub waited_for_own: Duration,
    /// The requests that wait for an earlier one of their own sequence.
    pub behind_own: usize,
    /// The number of sequences that wait for a slot.
    pub backlog: usize,
    /// The first of them, with the number of their requests.
    pub first_backlogged: Vec<(String, usize)>,
}

/// A slot that is not free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotSnapshot {
    /// The instance.
    pub instance: usize,
    /// The number of the slot in the instance.
    pub slot: u32,
    /// The correlation id of the sequence, cut if it is long. `None`: the last request of a sequence that has left still
    /// runs.
    pub sequence: Option<String>,
    /// The requests of the sequence that wait.
    pub waiting: usize,
    /// Whether a request runs.
    pub running: bool,
}

/// A resource of the rate limiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSnapshot {
    /// Its name.
    pub name: String,
    /// Whether the whole server shares it. Otherwise it belongs to a device.
    pub is_global: bool,
    /// The number of units.
    pub capacity: u32,
    /// The number of units in use.
    pub used: u64,
}

/// A correlation id as it is shown.
pub(crate) fn shown_id(id: &scheduling::SequenceId) -> String {
    let text = id.to_string();
    match text.char_indices().nth(MOST_CHARACTERS) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
