//! Takes the snapshot: reads each model, and holds no lock for longer than its numbers take to copy.
use std::sync::Arc;

use config::Scheduling;
use executor::snapshot::ExecutorSnapshot;
use host::unix_time;
use inference::cache::ResponseCache;
use scheduling::{CutReason, SequenceStrategy};
use vocabulary::{ByteBudget, Error, FailureReason};

use super::order::{ModelActivity, rank};
use crate::{
    models::{ModelTable, loaded_version::LoadedVersion},
    snapshot::{
        CacheSnapshot, EngineSnapshot, FailureCounts, MOST_MODELS, ModelMemorySnapshot, ModelSnapshot,
        SchedulerKind, SchedulerSnapshot, ServedSnapshot,
    },
};

/// What the server does now, of the models that `shows` permits, of one model, or of one version.
///
/// # Errors
/// NOT_FOUND for a model or a version that the server does not know.
pub(crate) fn take(
    table: &ModelTable,
    model: Option<(&str, Option<i64>)>,
    shows: impl Fn(&str) -> bool,
    (cache, held): (Option<&Arc<dyn ResponseCache>>, &ByteBudget),
    model_memory: Option<ModelMemorySnapshot>,
) -> Result<EngineSnapshot, Error> {
    let mut entries = table.explained();
    entries.retain(|(entry, _)| match model {
        Some((name, version)) => *entry.name == *name && (version.is_none() || entry.version == version),
        None => shows(&entry.name),
    });
    if model_memory.is_some() {
        // A request would load it: the memory of models tells more.
        entries.retain(|(entry, _)| !entry.is_unloaded());
    }
    let is_absent = model_memory.as_ref().is_some_and(|memory| !memory.models.is_empty());
    if let (Some((name, version)), true, false) = (model, entries.is_empty(), is_absent) {
        let version = version.map_or_else(String::new, |version| format!(" version {version}"));
        return Err(Error::not_found(format!("Request for unknown model: '{name}'{version} is not found")));
    }
    entries.sort_by_cached_key(|(entry, copy)| {
        let activity = copy.as_ref().map(|copy| ModelActivity::of(&copy.loaded));
        rank(entry, activity.unwrap_or_default())
    });
    let models_left_out = entries.len().saturating_sub(MOST_MODELS);
    entries.truncate(MOST_MODELS);
    let limiter = table.built().iter().find_map(|loaded| loaded.work().limiter());
    let (resources, waiting_claims) = limiter.map(|limiter| limiter.usage()).unwrap_or_default();
    let models = entries.into_iter().map(|(entry, copy)| ModelSnapshot {
        name: entry.name,
        namespace: entry.namespace,
        version: entry.version,
        state: entry.state,
        reason: entry.reason,
        served: copy.map(|copy| Box::new(served(&copy.loaded, copy.generation))),
    });
    Ok(EngineSnapshot {
        models: models.collect(),
        models_left_out,
        held_bytes: held.used(),
        held_bytes_limit: held.limit(),
        cache: cache.map(|cache| CacheSnapshot { name: cache.name().to_owned(), usage: cache.usage() }),
        resources,
        waiting_claims,
        model_memory,
    })
}

fn served(loaded: &LoadedVersion, generation: u64) -> ServedSnapshot {
    let (model, record) = (loaded.model(), loaded.record());
    let config = model.config();
    let failures = FailureCounts {
        rejected: record.failures(FailureReason::Rejected),
        cancelled: record.failures(FailureReason::Cancelled),
        backend: record.failures(FailureReason::Backend),
        other: record.failures(FailureReason::Other),
    };
    let ends = CutReason::ALL.map(|end| (end, record.counters().batches_ended(end)));
    let ExecutorSnapshot { queue, instances, sequences } = loaded.work().look();
    ServedSnapshot {
        generation,
        load_duration: loaded.load_duration(),
        backend: config.backend.clone(),
        max_batch_size: config.max_batch_size.map(u32::from),
        scheduler: scheduler(&config.scheduling),
        in_flight: loaded.in_flight(),
        queue,
        instances,
        sequences,
        statistics: loaded.statistics(),
        failures,
        last_failure: record.last_failure().map(|last| {
            let ago = unix_time().saturating_sub(last.at);
            (last, ago)
        }),
        batch_ends: ends.into_iter().filter(|(_, count)| *count > 0).collect(),
        times: record.times(),
        uses_cache: model.uses_cache(),
        process_restarts: loaded.work().process_restarts(),
        steps: loaded.work().steps(),
    }
}

fn scheduler(scheduling: &Scheduling) -> SchedulerSnapshot {
    let plain = |kind| SchedulerSnapshot {
        kind,
        max_queue_delay: std::time::Duration::ZERO,
        preferred_batch_sizes: Vec::new(),
        max_queue_size: None,
        queue_timeout: None,
        priority_levels: 0,
        max_sequence_idle: None,
    };
    match scheduling {
        Scheduling::Unbatched => plain(SchedulerKind::Unbatched),
        Scheduling::Ensemble(_) => plain(SchedulerKind::Ensemble),
        Scheduling::Dynamic(dynamic) => SchedulerSnapshot {
            max_queue_delay: dynamic.max_queue_delay,
            preferred_batch_sizes: dynamic.preferred_batch_sizes.iter().copied().collect(),
            max_queue_size: dynamic.default_queue_policy.max_queue_size.map(usize::from),
            queue_timeout: dynamic.default_queue_policy.default_timeout.filter(|timeout| !timeout.is_zero()),
            priority_levels: dynamic.priority_levels,
            ..plain(SchedulerKind::Dynamic)
        },
        Scheduling::Sequence(sequence) => {
            let batching = &sequence.batching;
            let max_sequence_idle = Some(batching.max_sequence_idle);
            match &batching.strategy {
                SequenceStrategy::Direct(direct) => SchedulerSnapshot {
                    max_queue_delay: direct.max_queue_delay,
                    max_sequence_idle,
                    ..plain(SchedulerKind::SequenceDirect)
                },
                SequenceStrategy::Oldest(oldest) => SchedulerSnapshot {
                    max_queue_delay: oldest.max_queue_delay,
                    preferred_batch_sizes: oldest.preferred_batch_sizes.iter().copied().collect(),
                    max_sequence_idle,
                    ..plain(SchedulerKind::SequenceOldest)
                },
            }
        }
    }
}
