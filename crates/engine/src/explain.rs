//! What a server knows about itself at one moment, for people: what waits, what runs, who holds what, where time goes.
//!
//! [`Engine::explain`](crate::Engine::explain) takes the snapshot when somebody asks. Nothing is collected before. Each
//! model is locked for as long as its few numbers are copied, one model after the other. Lists have bounds, and tell how
//! much they leave out. [`findings`] says in sentences what the numbers mean.
mod findings;
mod order;
mod take;
mod words;

pub use crate::account::FailureSnapshot;
pub use crate::snapshot::{
    CacheSnapshot, DemandCounts, EngineSnapshot, FailureCounts, MOST_MODELS, ModelMemorySnapshot,
    ModelMemoryTotals, ModelSnapshot, SchedulerKind, SchedulerSnapshot, ServedSnapshot, StepSnapshot,
    TimeQuantiles, TimesSnapshot,
};
pub use executor::snapshot::{
    InstanceSnapshot, InstanceState, InstancesSnapshot, QueueSnapshot, ResourceSnapshot, SequencesSnapshot,
    SlotSnapshot,
};
pub use findings::{ModelFinding, findings};
pub(crate) use take::take;
