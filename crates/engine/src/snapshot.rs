//! Plain types of what a server knows about itself at one moment: what waits, what runs, who holds what, where time goes.
//!
//! Executors and counters fill them in, [`explain`](crate::explain) puts them together and reads them.
use std::time::Duration;

use inference::Name;
use scheduling::BatchEnd;

use crate::{model_state::ModelState, observe::ModelStatistics};

/// A snapshot describes so many versions of models.
pub const MOST_MODELS: usize = 100;
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

/// What a server knows about itself at one moment.
#[derive(Debug, Clone)]
pub struct EngineSnapshot {
    /// The versions: those that are not ready, then the busiest, then by name and number.
    pub models: Vec<ModelSnapshot>,
    /// The number of versions that are left out.
    pub models_left_out: usize,
    /// The bytes of requests that the server holds.
    pub held_bytes: usize,
    /// The limit of these bytes.
    pub held_bytes_limit: usize,
    /// The server's response cache, if it has one.
    pub cache: Option<CacheSnapshot>,
    /// The resources of the rate limiter, if the server has one.
    pub resources: Vec<ResourceSnapshot>,
    /// The instances that wait for such resources.
    pub waiting_claims: usize,
}

/// The server's response cache.
#[derive(Debug, Clone)]
pub struct CacheSnapshot {
    /// Its name on the command line.
    pub name: String,
    /// What it holds, if it knows.
    pub usage: Option<inference::cache::CacheUsage>,
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

/// A version of a model.
#[derive(Debug, Clone)]
pub struct ModelSnapshot {
    /// The model's name.
    pub name: Name,
    /// The repository, if the server uses namespaces.
    pub namespace: Option<Name>,
    /// The number; absent for a model without versions.
    pub version: Option<i64>,
    /// The state; absent for a model that was never loaded.
    pub state: Option<ModelState>,
    /// Why the version is not ready; may be empty.
    pub reason: String,
    /// What it does, if it is ready or finishes its requests and sequences.
    pub served: Option<Box<ServedSnapshot>>,
}

/// What a version does that is ready, or that finishes its requests and sequences.
#[derive(Debug, Clone)]
pub struct ServedSnapshot {
    /// Increases with each load of any model.
    pub generation: u64,
    /// How long the load took.
    pub load_duration: Duration,
    /// The name of the backend; empty for an ensemble.
    pub backend: String,
    /// Rows in a batch. `None`: tensors have no batch dimension.
    pub max_batch_size: Option<u32>,
    /// How requests become batches.
    pub scheduler: SchedulerSnapshot,
    /// Accepted requests whose last response has not been sent.
    pub in_flight: usize,
    /// The requests that wait.
    pub queue: QueueSnapshot,
    /// The instances. An ensemble has none.
    pub instances: InstancesSnapshot,
    /// Slots and backlog, of a model with sequences.
    pub sequences: Option<SequencesSnapshot>,
    /// The counters since the load.
    pub statistics: ModelStatistics,
    /// Failed requests by reason.
    pub failures: FailureCounts,
    /// Batches by the reason why they ended; those that occurred.
    pub batch_ends: Vec<(BatchEnd, u64)>,
    /// How the times of requests are distributed, if the server keeps histograms and there were requests.
    pub times: Option<TimesSnapshot>,
    /// Whether the model uses the response cache.
    pub uses_cache: bool,
    /// How often processes of the model were started again; `None` for a model without processes of its own.
    pub process_restarts: Option<u64>,
    /// The steps of an ensemble.
    pub steps: Vec<StepSnapshot>,
}

/// Which policy makes batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerKind {
    /// One request at a time.
    Unbatched,
    /// The dynamic batcher.
    Dynamic,
    /// The sequence batcher with the direct strategy.
    SequenceDirect,
    /// The sequence batcher with the oldest strategy.
    SequenceOldest,
    /// Other models do the work.
    Ensemble,
}

impl SchedulerKind {
    /// The word for it in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unbatched => "unbatched",
            Self::Dynamic => "dynamic",
            Self::SequenceDirect => "sequence_direct",
            Self::SequenceOldest => "sequence_oldest",
            Self::Ensemble => "ensemble",
        }
    }
}

/// How requests become batches. What a policy does not have is zero, empty or absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerSnapshot {
    /// The policy.
    pub kind: SchedulerKind,
    /// The longest time that a request is held back for a larger batch.
    pub max_queue_delay: Duration,
    /// The sizes that the batcher waits for.
    pub preferred_batch_sizes: Vec<u32>,
    /// The number of requests that may wait in a queue without a policy of its own.
    pub max_queue_size: Option<usize>,
    /// The longest time that a request may wait there.
    pub queue_timeout: Option<Duration>,
    /// The number of priorities.
    pub priority_levels: u64,
    /// How long a sequence keeps its slot without a request.
    pub max_sequence_idle: Option<Duration>,
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

/// Failed requests by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailureCounts {
    /// A queue was full, or a request waited for too long.
    pub rejected: u64,
    /// The client cancelled the request.
    pub cancelled: u64,
    /// The backend failed.
    pub backend: u64,
    /// Everything else.
    pub other: u64,
}

/// How the times of successful requests are distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimesSnapshot {
    /// From arrival to last response.
    pub request: TimeQuantiles,
    /// In the queue.
    pub queue: TimeQuantiles,
    /// In the execution.
    pub compute: TimeQuantiles,
}

/// Quantiles of durations in seconds. They come from a histogram, so each is as exact as the bucket is narrow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeQuantiles {
    /// Half are not longer.
    pub p50: f64,
    /// 90 of 100 are not longer.
    pub p90: f64,
    /// 99 of 100 are not longer.
    pub p99: f64,
}

/// A step of an ensemble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSnapshot {
    /// The name of the member.
    pub model: Name,
    /// The version that the configuration asks for.
    pub version: Option<i64>,
    /// How often the step has ended.
    pub runs: u64,
    /// The time that all its runs took together.
    pub time: Duration,
}

/// A correlation id as it is shown.
pub(crate) fn shown_id(id: &scheduling::SequenceId) -> String {
    let text = id.to_string();
    match text.char_indices().nth(MOST_CHARACTERS) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
