//! What the server does now, as JSON.
//!
//! The numbers come from [`Engine::explain`](engine::Engine::explain), the sentences from [`engine::explain::findings`].
//! Times are in seconds.
use std::time::Duration;

use engine::explain::{
    EngineSnapshot, FailureSnapshot, ModelFinding, ModelMemorySnapshot, ModelSnapshot, SequencesSnapshot,
    ServedSnapshot, TimeQuantiles, findings,
};
use inference::DurationStatistic;
use kserve::log_control::LogLine;
use serde_json::{Map, Value, json};

pub(super) fn log_line(line: &LogLine) -> Value {
    json!({ "level": line.level, "text": line.text })
}

pub(super) fn document(snapshot: &EngineSnapshot) -> Value {
    let mut document = json!({
        "server": {
            "held_bytes": snapshot.held_bytes,
            "held_bytes_limit": snapshot.held_bytes_limit,
        },
        "models": snapshot.models.iter().map(model).collect::<Vec<_>>(),
        "models_left_out": snapshot.models_left_out,
    });
    if let Some(cache) = &snapshot.cache {
        document["cache"] = json!({ "name": cache.name });
        if let Some(usage) = cache.usage {
            document["cache"]["entries"] = json!(usage.entries);
            document["cache"]["used_bytes"] = json!(usage.used_bytes);
            document["cache"]["limit_bytes"] = json!(usage.limit_bytes);
            document["cache"]["evictions"] = json!(usage.evictions);
        }
    }
    if !snapshot.resources.is_empty() {
        let resources = snapshot.resources.iter().map(|resource| {
            json!({
                "name": resource.name,
                "global": resource.is_global,
                "capacity": resource.capacity,
                "used": resource.used,
            })
        });
        document["rate_limiter"] = json!({
            "resources": resources.collect::<Vec<_>>(),
            "waiting_instances": snapshot.waiting_claims,
        });
    }
    if let Some(memory) = &snapshot.model_memory {
        document["model_memory"] = model_memory(memory);
    }
    document
}

fn model_memory(memory: &ModelMemorySnapshot) -> Value {
    let models = memory.models.iter().map(|line| {
        json!({
            "name": *line.name,
            "place": line.place.as_str(),
            "why": line.why(),
            "bytes": line.bytes,
            "measured": line.is_measured,
            "pinned": line.is_pinned,
            "priority": line.priority,
            "load_seconds": line.load_duration.as_secs_f64(),
        })
    });
    json!({
        "budget_bytes": memory.totals.limit,
        "used_bytes": memory.totals.used,
        "loads": memory.totals.counts.loads,
        "unloads": memory.totals.counts.unloads,
        "refusals": memory.totals.counts.refusals,
        "models": models.collect::<Vec<_>>(),
        "models_left_out": memory.models_left_out,
    })
}

fn model(model: &ModelSnapshot) -> Value {
    let mut shown = Map::new();
    shown.insert("name".to_owned(), json!(*model.name));
    let optional = [
        ("namespace", model.namespace.as_ref().map(|namespace| json!(**namespace))),
        ("version", model.version.map(|version| json!(version.to_string()))),
        ("state", model.state.map(|state| json!(state.as_str()))),
        ("reason", Some(json!(model.reason)).filter(|_| !model.reason.is_empty())),
    ];
    shown.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    let said: Vec<_> = findings(model).iter().map(finding).collect();
    shown.insert("findings".to_owned(), said.into());
    if let Some(served) = &model.served
        && let Value::Object(more) = numbers(served)
    {
        shown.extend(more);
    }
    Value::Object(shown)
}

fn finding(finding: &ModelFinding) -> Value {
    let mut shown = json!({ "about": finding.about, "fact": finding.fact });
    if let Some(advice) = &finding.advice {
        shown["advice"] = json!(advice);
    }
    shown
}

fn numbers(served: &ServedSnapshot) -> Value {
    let (scheduler, queue, failures) = (&served.scheduler, served.queue, served.failures);
    let seconds = |time: Duration| time.as_secs_f64();
    let mut shown = json!({
        "generation": served.generation,
        "load_seconds": seconds(served.load_duration),
        "backend": served.backend,
        "max_batch_size": served.max_batch_size,
        "scheduler": {
            "kind": scheduler.kind.as_str(),
            "max_queue_delay_seconds": seconds(scheduler.max_queue_delay),
            "preferred_batch_sizes": scheduler.preferred_batch_sizes,
            "max_queue_size": scheduler.max_queue_size,
            "queue_timeout_seconds": scheduler.queue_timeout.map(seconds),
            "priority_levels": scheduler.priority_levels,
            "max_sequence_idle_seconds": scheduler.max_sequence_idle.map(seconds),
        },
        "in_flight": served.in_flight,
        "queue": {
            "requests": queue.requests,
            "bytes": queue.bytes,
            "oldest_seconds": queue.oldest.map(seconds),
            "work_seconds": queue.work.map(seconds),
        },
        "instances": instances(served),
        "requests": {
            "succeeded": served.statistics.totals.success.count,
            "rejected": failures.rejected,
            "cancelled": failures.cancelled,
            "failed_in_backend": failures.backend,
            "failed_otherwise": failures.other,
        },
        "times": times(served),
        "batches": batches(served),
    });
    let optional = [
        ("sequences", served.sequences.as_ref().map(sequences)),
        ("cache", served.uses_cache.then(|| cache(served))),
        ("last_error", served.last_failure.as_ref().map(last_error)),
        ("process_restarts", served.process_restarts.map(Value::from)),
        ("steps", Some(steps(served)).filter(|_| !served.steps.is_empty())),
        ("memory", Some(memory(served)).filter(|_| !served.statistics.memory_usage.is_empty())),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            shown[key] = value;
        }
    }
    shown
}

fn last_error((last, ago): &(FailureSnapshot, Duration)) -> Value {
    json!({ "text": last.text, "seconds_ago": ago.as_secs_f64() })
}

fn instances(served: &ServedSnapshot) -> Value {
    let instances = &served.instances;
    let each = instances.each.iter().map(|each| {
        json!({ "number": each.number, "name": *each.name, "kind": each.kind, "state": each.state.as_str() })
    });
    json!({
        "count": instances.count,
        "busy": instances.busy,
        "each": each.collect::<Vec<_>>(),
        "left_out": instances.left_out,
    })
}

/// The sums of all successful requests, and quantiles where the server has them.
fn times(served: &ServedSnapshot) -> Value {
    let statistics = &served.statistics;
    let sum = |sum: DurationStatistic| json!({ "count": sum.count, "seconds": sum.ns as f64 / 1e9 });
    let mut times = json!({
        "request": sum(statistics.totals.success),
        "queue": sum(statistics.totals.queue),
        "compute_input": sum(statistics.totals.compute_input),
        "compute_infer": sum(statistics.totals.compute_infer),
        "compute_output": sum(statistics.totals.compute_output),
    });
    let quantiles = |of: TimeQuantiles| json!({ "p50": of.p50, "p90": of.p90, "p99": of.p99 });
    if let Some(known) = served.times {
        times["request"]["quantiles"] = quantiles(known.request);
        times["queue"]["quantiles"] = quantiles(known.queue);
        times["compute_quantiles"] = quantiles(known.compute);
    }
    times
}

fn batches(served: &ServedSnapshot) -> Value {
    let ends: Map<_, _> =
        served.batch_ends.iter().map(|(end, count)| (end.as_str().to_owned(), json!(count))).collect();
    let sizes = served.statistics.totals.batches.iter();
    let sizes = sizes.map(|batch| json!({ "rows": batch.batch_size, "count": batch.compute_infer.count }));
    json!({
        "executed": served.statistics.totals.execution_count,
        "rows": served.statistics.totals.inference_count,
        "ends": ends,
        "sizes": sizes.collect::<Vec<_>>(),
    })
}

fn sequences(sequences: &SequencesSnapshot) -> Value {
    let slots = sequences.slots.iter().map(|slot| {
        json!({
            "instance": slot.instance,
            "slot": slot.slot,
            "sequence": slot.sequence,
            "waiting": slot.waiting,
            "running": slot.running,
        })
    });
    let first = sequences.first_backlogged.iter();
    let first = first.map(|(sequence, waiting)| json!({ "sequence": sequence, "waiting": waiting }));
    json!({
        "slots_per_instance": sequences.slots_per_instance,
        "slots": slots.collect::<Vec<_>>(),
        "slots_left_out": sequences.slots_left_out,
        "waited_for_own_seconds": sequences.waited_for_own.as_secs_f64(),
        "backlog": sequences.backlog,
        "first_backlogged": first.collect::<Vec<_>>(),
    })
}

fn cache(served: &ServedSnapshot) -> Value {
    let (hit, miss) = (served.statistics.totals.cache_hit, served.statistics.totals.cache_miss);
    json!({ "hits": hit.count, "misses": miss.count })
}

fn steps(served: &ServedSnapshot) -> Value {
    let whole: f64 = served.steps.iter().map(|step| step.time.as_secs_f64()).sum();
    let steps = served.steps.iter().map(|step| {
        let took = step.time.as_secs_f64();
        json!({
            "model": *step.model,
            "version": step.version.map(|version| version.to_string()),
            "runs": step.runs,
            "seconds": took,
            "share": if whole > 0.0 { took / whole } else { 0.0 },
        })
    });
    steps.collect::<Vec<_>>().into()
}

fn memory(served: &ServedSnapshot) -> Value {
    let memory = served.statistics.memory_usage.iter();
    let memory =
        memory.map(|one| json!({ "type": one.kind.as_str(), "id": one.id, "byte_size": one.byte_size }));
    memory.collect::<Vec<_>>().into()
}
