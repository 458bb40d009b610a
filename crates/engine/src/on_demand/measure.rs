//! How much memory models have, and how they are used.
use std::time::Duration;

use lifecycle::{ModelNeeds, ModelUse};
use vocabulary::{MemoryKind, Name};

use crate::models::{ModelTable, loaded_version::LoadedVersion};

/// The bytes of all versions of a model in the memory of the host, as its backend measures them; 0 if it does not.
pub(super) fn bytes_of(table: &ModelTable, name: &str) -> u64 {
    let versions = table.usable_of(name);
    let memory = versions.iter().flat_map(|loaded| loaded.work().memory_usage());
    memory.filter(|memory| memory.kind != MemoryKind::Gpu).map(|memory| memory.byte_size).sum()
}

/// How long the loads of all versions of a model took.
pub(super) fn load_duration_of(table: &ModelTable, name: &str) -> Duration {
    table.usable_of(name).iter().map(|loaded| loaded.load_duration()).sum()
}

/// How a model in memory is used.
pub(super) fn use_of(table: &ModelTable, name: &str) -> ModelUse {
    let versions = table.usable_of(name);
    let is_busy = |loaded: &LoadedVersion| loaded.in_flight() > 0 || loaded.live_sequences() > 0;
    ModelUse {
        requests: versions.iter().map(|loaded| loaded.record().counters().succeeded()).sum(),
        is_busy: versions.iter().any(|loaded| is_busy(loaded)),
    }
}

/// What a loaded model asks for. The size of its files is as it was.
pub(super) fn needs_of(table: &ModelTable, name: &str, is_given: bool) -> ModelNeeds {
    let mut needs = ModelNeeds::default();
    for loaded in table.usable_of(name) {
        let config = loaded.model().config();
        needs.is_pinned |= config.memory.is_pinned;
        needs.priority = needs.priority.max(config.memory.priority);
        if let config::Scheduling::Ensemble(ensemble) = &config.scheduling {
            needs.members.extend(ensemble.steps.iter().map(|step| Name::new(&step.model)));
        }
    }
    // What an operator has brought is nowhere else: the model cannot be loaded again.
    needs.is_pinned |= is_given;
    needs
}
