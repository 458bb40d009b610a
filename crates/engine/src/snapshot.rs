//! Plain types of what a server knows about itself at one moment: what waits, what runs, who holds what, where time goes.
//!
//! Executors and counters fill them in, [`explain`](crate::explain) puts them together and reads them.
use std::time::Duration;

use executor::snapshot::{InstancesSnapshot, QueueSnapshot, ResourceSnapshot, SequencesSnapshot};
use lifecycle::BudgetLine;
use scheduling::CutReason;
use vocabulary::Name;

use crate::{
    account::{FailureSnapshot, ModelStatistics},
    model_state::ModelState,
};

/// A snapshot describes so many versions of models.
pub const MOST_MODELS: usize = 100;
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
    /// What the memory of models is used for, if it has a budget.
    pub model_memory: Option<ModelMemorySnapshot>,
}

/// What the memory of models is used for, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelMemorySnapshot {
    /// Of all models together.
    pub totals: ModelMemoryTotals,
    /// The models: those in memory or on the way there, the largest first, and then the others by name. At most
    /// [`MOST_MODELS`].
    pub models: Vec<BudgetLine>,
    /// The number of models that are left out.
    pub models_left_out: usize,
}

/// The memory of all models together, and what has happened since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelMemoryTotals {
    /// The limit in bytes.
    pub limit: u64,
    /// What models have, or were promised, in bytes.
    pub used: u64,
    /// What has happened.
    pub counts: DemandCounts,
}

/// What has happened since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DemandCounts {
    /// Loads that have succeeded.
    pub loads: u64,
    /// Models that were unloaded for others.
    pub unloads: u64,
    /// Models that were refused, because they do not fit or could not be loaded.
    pub refusals: u64,
}

/// The server's response cache.
#[derive(Debug, Clone)]
pub struct CacheSnapshot {
    /// Its name on the command line.
    pub name: String,
    /// What it holds, if it knows.
    pub usage: Option<inference::cache::CacheUsage>,
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
    /// The last failure since the load that was no cancellation, and how long ago it was.
    pub last_failure: Option<(FailureSnapshot, Duration)>,
    /// Batches by the reason why they ended; those that occurred.
    pub batch_ends: Vec<(CutReason, u64)>,
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
