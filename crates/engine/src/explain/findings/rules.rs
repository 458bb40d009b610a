//! What the numbers of a model mean: facts in sentences, and what to change.
//!
//! Each rule is a function of the snapshot alone. A rule gives advice only if enough has happened, and if the advice has a
//! cost or a doubt, it says so.
use std::time::Duration;

use executor::snapshot::InstanceState;
use inference::ModelTotals;
use lifecycle::UNLOADED;
use scheduling::{CutReason, nanos};

use super::{
    failures::{last_failure, loses_processes, processes, requests},
    finding::{ModelFinding, finding},
};
use crate::{
    explain::words::{counted, duration, percent, seconds, share, summary},
    model_state::ModelState,
    snapshot::{ModelSnapshot, SchedulerKind, ServedSnapshot},
};

/// With fewer batches or requests than these, a share says little.
const ENOUGH: u64 = 20;

/// A shorter wait in a queue may be the time that a thread needs to wake.
const NOTABLE_WAIT_NANOS: u64 = 200_000;

/// All findings about a version, in the order in which a person wants to know them.
pub fn findings(model: &ModelSnapshot) -> Vec<ModelFinding> {
    let Some(served) = &model.served else { return vec![state(model)] };
    let is_ready = model.state == Some(ModelState::Ready);
    let mut findings: Vec<_> = (!is_ready).then(|| state(model)).into_iter().collect();
    findings.push(requests(served));
    findings.extend(last_failure(served));
    let rules = [time, batches, queue, instances, processes, sequences, cache, steps];
    findings.extend(rules.iter().filter_map(|rule| rule(served)));
    findings
}

fn state(model: &ModelSnapshot) -> ModelFinding {
    let state = model.state.map_or("not loaded", ModelState::as_str);
    let because =
        if model.reason.is_empty() { String::new() } else { format!(": {}", summary(&model.reason)) };
    let advice = match model.state {
        Some(ModelState::Loading | ModelState::Unloading | ModelState::Ready) => None,
        // Only a process that runs the model finds such a cause.
        Some(ModelState::Unavailable) if model.reason.contains("\n\nAt:\n") => Some(
            "The model's code in Python has raised this. Correct the code, or give its interpreter what it needs, and load \
             the model again.",
        ),
        Some(ModelState::Unavailable) if model.reason != UNLOADED => Some(
            "Correct the cause and load the model again. 'nereid check' shows all problems of its files at once.",
        ),
        Some(ModelState::Unavailable) | None => {
            Some("Load the model if clients need it: POST /v2/repository/models/<name>/load.")
        }
    };
    finding("state", format!("The version is {state}{because}."), advice)
}

fn time(served: &ServedSnapshot) -> Option<ModelFinding> {
    let statistics = &served.statistics;
    let whole = statistics.totals.success.ns;
    if statistics.totals.success.count == 0 || whole == 0 {
        return None;
    }
    let queue = share(statistics.totals.queue.ns, whole);
    let mean = Duration::from_nanos(whole / statistics.totals.success.count);
    let mut fact = format!(
        "A request takes {} on average: {} in the queue, {} for inputs, {} computing, {} for outputs",
        duration(mean),
        percent(statistics.totals.queue.ns, whole),
        percent(statistics.totals.compute_input.ns, whole),
        percent(statistics.totals.compute_infer.ns, whole),
        percent(statistics.totals.compute_output.ns, whole),
    );
    if served.scheduler.kind == SchedulerKind::Ensemble {
        let counted = [
            statistics.totals.queue,
            statistics.totals.compute_input,
            statistics.totals.compute_infer,
            statistics.totals.compute_output,
        ];
        let rest = whole.saturating_sub(counted.iter().map(|phase| phase.ns).sum());
        // The phases are those of the members' executions. Steps that run at the same time count each.
        fact.push_str(&format!(", {} in the queues of its steps and between them", percent(rest, whole)));
    }
    if let Some(times) = &served.times {
        let (half, most) = (seconds(times.request.p50), seconds(times.request.p99));
        fact.push_str(&format!("; half of them take up to {half}, 99 % up to {most}"));
    }
    fact.push('.');
    let is_enough = statistics.totals.success.count >= ENOUGH;
    let delay = served.scheduler.max_queue_delay;
    let ended_by_delay = share(ended(served, CutReason::Delay), all_batches(served));
    let advice = if !is_enough || served.scheduler.kind == SchedulerKind::Ensemble {
        None
    } else if queue >= 0.5 && ended_by_delay >= 0.5 && !delay.is_zero() {
        Some(
            "Most of the time requests wait for others to share their batch. Lower max_queue_delay_microseconds for \
             shorter waits.",
        )
    } else if queue >= 0.5 && share(waited_for_own(served), statistics.totals.queue.ns) >= 0.5 {
        Some(
            "Most of the time requests wait for earlier ones of their own sequence, which runs in its order. Instances and \
             batches do not change that: only faster executions do, or clients that send less ahead.",
        )
    } else if queue >= 0.5 && waits_for_instances(served) {
        Some(match served.scheduler.kind {
            SchedulerKind::Unbatched if can_batch(served) => {
                "Most of the time requests wait for an instance. Add instances (instance_group count) if processors are \
                 free, or let requests share batches (dynamic_batching)."
            }
            _ => {
                "Most of the time requests wait for an instance. Add instances (instance_group count) if processors are \
                 free."
            }
        })
    } else {
        None
    };
    Some(finding("time", fact, advice))
}

fn ended(served: &ServedSnapshot, end: CutReason) -> u64 {
    served.batch_ends.iter().find(|(each, _)| *each == end).map_or(0, |(_, count)| *count)
}

fn all_batches(served: &ServedSnapshot) -> u64 {
    served.batch_ends.iter().map(|(_, count)| count).sum()
}

/// Whether a batch can have several rows.
fn can_batch(served: &ServedSnapshot) -> bool {
    served.max_batch_size.is_some_and(|most| most > 1)
}

/// How long requests have waited for earlier ones of their own sequence. Counts also requests that have failed.
fn waited_for_own(served: &ServedSnapshot) -> u64 {
    let waited = served.sequences.as_ref().map_or(0, |sequences| nanos(sequences.waited_for_own));
    waited.min(served.statistics.totals.queue.ns)
}

fn why(end: CutReason, kind: SchedulerKind) -> &'static str {
    match end {
        CutReason::PreferredSize if kind == SchedulerKind::SequenceDirect => {
            "enough slots have a request (minimum_slot_utilization)"
        }
        CutReason::Full => "they are full",
        CutReason::PreferredSize => "they have a preferred size",
        CutReason::Delay => "the queue delay is over",
        CutReason::Shape => "the next request has another shape",
        CutReason::Filter => "the batching strategy refuses the next request",
        CutReason::IdleInstance => "an instance is idle and nothing else waits",
        CutReason::Drain => "the model drains",
        CutReason::Unbatched => "each request runs alone",
    }
}

/// The mean number of rows, if a batch has been executed.
fn mean_rows(served: &ServedSnapshot) -> Option<f64> {
    let batches = &served.statistics.totals.batches;
    let count: u64 = batches.iter().map(|batch| batch.compute_infer.count).sum();
    let rows: u64 = batches.iter().map(|batch| batch.batch_size * batch.compute_infer.count).sum();
    (count > 0).then(|| rows as f64 / count as f64)
}

fn batches(served: &ServedSnapshot) -> Option<ModelFinding> {
    let all = all_batches(served);
    // Without a batch dimension each request runs alone, and nothing changes that.
    if all == 0 || served.max_batch_size.is_none() {
        return None;
    }
    let mut ends = served.batch_ends.clone();
    ends.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let kind = served.scheduler.kind;
    let reasons: Vec<_> = ends
        .iter()
        .take(3)
        .map(|(end, count)| format!("{} ({})", why(*end, kind), percent(*count, all)))
        .collect();
    let mut fact = format!("Batches end because {}", reasons.join(", "));
    let mean = mean_rows(served);
    if let Some((mean, most)) = mean.zip(served.max_batch_size) {
        fact.push_str(&format!(". A batch has {mean:.1} of {most} rows on average"));
    }
    fact.push('.');
    let is_small = mean.zip(served.max_batch_size).is_some_and(|(mean, most)| mean < f64::from(most) / 2.0);
    let usual = ends.first().filter(|(_, count)| all >= ENOUGH && share(*count, all) >= 0.5);
    Some(finding("batches", fact, usual.and_then(|(end, _)| batch_advice(served, *end, is_small))))
}

/// Whether requests wait longer for an instance than their executions take. Short waits come from changes of threads.
fn waits_for_instances(served: &ServedSnapshot) -> bool {
    let ModelTotals { success, queue, compute_input, compute_infer, compute_output, .. } =
        &served.statistics.totals;
    let waited = queue.ns - waited_for_own(served);
    let mean = waited / success.count.max(1);
    mean >= NOTABLE_WAIT_NANOS && waited > compute_input.ns + compute_infer.ns + compute_output.ns
}

/// What to do about batches most of which end for this reason.
fn batch_advice(served: &ServedSnapshot, end: CutReason, is_small: bool) -> Option<&'static str> {
    let waits = waits_for_instances(served);
    let kind = served.scheduler.kind;
    let is_sequence = matches!(kind, SchedulerKind::SequenceDirect | SchedulerKind::SequenceOldest);
    match end {
        CutReason::Delay if is_small && is_sequence => Some(
            "Too few sequences have a request within the delay. Set max_queue_delay_microseconds to 0: then a request does \
             not wait for sequences that have none.",
        ),
        CutReason::Delay if is_small => Some(
            "Too few requests come within the delay. Raise max_queue_delay_microseconds for larger batches, or set it to 0: \
             then a request does not wait for others that do not come.",
        ),
        CutReason::IdleInstance if is_small && can_batch(served) => Some(match kind {
            SchedulerKind::SequenceDirect => {
                "Requests run at once, which is best for their latency. Where several sequences send at a time, \
                 minimum_slot_utilization with max_queue_delay_microseconds makes larger batches and more throughput."
            }
            SchedulerKind::Dynamic if served.instances.count > 1 => {
                "Requests run at once, which is best for their latency. Where several come at a time, \
                 max_queue_delay_microseconds or fewer instances make larger batches and more throughput."
            }
            _ => {
                "Requests run at once, which is best for their latency. Where several come at a time, \
                 max_queue_delay_microseconds makes larger batches and more throughput."
            }
        }),
        CutReason::Full if waits => Some(
            "The model has more requests than fit into its batches. Raise max_batch_size if a larger batch is faster per \
             row, or add instances.",
        ),
        CutReason::PreferredSize if is_small && kind == SchedulerKind::SequenceDirect => Some(
            "Batches leave when enough slots have a request. Raise minimum_slot_utilization, and with it \
             max_queue_delay_microseconds, for larger batches.",
        ),
        CutReason::PreferredSize if is_small => Some(
            "Batches leave at a preferred size below the maximum. Remove preferred_batch_size if the model has no reason for \
             such sizes.",
        ),
        CutReason::Shape => Some(
            "Requests of different shapes do not share a batch. Let clients pad their tensors, or set allow_ragged_batch for \
             inputs of a model that supports it.",
        ),
        CutReason::Filter => Some("The library of the batching strategy decides; look at its settings."),
        CutReason::Unbatched if waits && can_batch(served) => Some(
            "Requests wait although the model can run several of them together. Add 'dynamic_batching { }' to its \
             configuration.",
        ),
        CutReason::Delay
        | CutReason::IdleInstance
        | CutReason::Full
        | CutReason::PreferredSize
        | CutReason::Drain
        | CutReason::Unbatched => None,
    }
}

fn queue(served: &ServedSnapshot) -> Option<ModelFinding> {
    let queue = served.queue;
    if queue.requests == 0 {
        return None;
    }
    let mut fact = counted(queue.requests as u64, "request", ("waits now", "wait now"));
    if let Some(oldest) = queue.oldest {
        fact.push_str(&format!("; the oldest has waited for {}", duration(oldest)));
    }
    if let Some(work) = queue.work {
        fact.push_str(&format!("; the instances need about {} for all", duration(work)));
    }
    fact.push('.');
    let behind = served.sequences.as_ref().map_or(0, |sequences| sequences.behind_own);
    if behind > 0 {
        let waits = if behind == 1 { "waits" } else { "wait" };
        fact.push_str(&format!(" Of these, {behind} {waits} for an earlier one of the same sequence."));
    }
    let advice = if loses_processes(served) {
        Some("Requests wait while a process of the model has ended and the next one starts.")
    } else if behind * 2 >= queue.requests {
        None
    } else if queue.work.is_some_and(|work| work >= Duration::from_secs(1)) {
        Some(
            "The queue is longer than one second of work. Add instances or servers, or set max_queue_size, so that clients \
             hear at once that the server is full.",
        )
    } else {
        None
    };
    Some(finding("queue", fact, advice))
}

fn instances(served: &ServedSnapshot) -> Option<ModelFinding> {
    let instances = &served.instances;
    if instances.count == 0 {
        return (served.scheduler.kind != SchedulerKind::Ensemble).then(|| {
            finding(
                "instances",
                "No instance is left: all have failed.".to_owned(),
                Some("The log has the cause. Load the model again."),
            )
        });
    }
    let runs = if instances.busy == 1 { "runs" } else { "run" };
    let noun = if instances.count == 1 { "instance" } else { "instances" };
    let mut fact = format!("Of {} {noun}, {} {runs} a batch now", instances.count, instances.busy);
    let blocked = instances.each.iter().filter(|each| each.state == InstanceState::AwaitsResources).count();
    if blocked > 0 {
        let waits = if blocked == 1 { "waits" } else { "wait" };
        fact.push_str(&format!("; {blocked} {waits} for resources of the rate limiter"));
    }
    fact.push('.');
    let advice = (blocked > 0).then_some(
        "Instances with work stand still until other models release resources. Raise --rate-limit-resource if the machine \
         has more.",
    );
    Some(finding("instances", fact, advice))
}

fn sequences(served: &ServedSnapshot) -> Option<ModelFinding> {
    let sequences = served.sequences.as_ref()?;
    let held = sequences.slots.len() + sequences.slots_left_out;
    let slots = served.instances.count * sequences.slots_per_instance as usize;
    let running = sequences.slots.iter().filter(|slot| slot.running).count();
    let silent = sequences.slots.iter().filter(|slot| !slot.running && slot.waiting == 0).count();
    let fact = format!(
        "Sequences hold {held} of {slots} slots: {running} with a request that runs, {silent} without any request; {} for a slot.",
        counted(sequences.backlog as u64, "sequence", ("waits", "wait")),
    );
    let advice = if sequences.backlog == 0 {
        None
    } else if silent * 2 >= held.max(1) {
        Some(
            "Silent sequences keep slots that others wait for. Let clients end their sequences, or lower \
             max_sequence_idle_microseconds.",
        )
    } else {
        Some(match served.scheduler.kind {
            SchedulerKind::SequenceOldest => {
                "All slots are in use. Raise max_candidate_sequences, or add instances."
            }
            _ if served.max_batch_size.is_some() => {
                "All slots are in use. Raise max_batch_size, or add instances."
            }
            _ => "All slots are in use. Add instances.",
        })
    };
    Some(finding("sequences", fact, advice))
}

fn cache(served: &ServedSnapshot) -> Option<ModelFinding> {
    if !served.uses_cache {
        return None;
    }
    let (hits, misses) =
        (served.statistics.totals.cache_hit.count, served.statistics.totals.cache_miss.count);
    let all = hits + misses;
    if all == 0 {
        return Some(finding("cache", "The response cache has not been asked.".to_owned(), None));
    }
    let fact = format!("The response cache has answered {} of {all} requests.", percent(hits, all));
    let is_useless = all >= 100 && share(hits, all) < 0.02;
    let advice = is_useless.then_some(
        "Requests hardly ever repeat, or their answers leave too early. Enlarge the cache, or switch it off for the model \
         (response_cache), because each look-up takes time.",
    );
    Some(finding("cache", fact, advice))
}

fn steps(served: &ServedSnapshot) -> Option<ModelFinding> {
    let whole: Duration = served.steps.iter().map(|step| step.time).sum();
    let longest = served.steps.iter().max_by_key(|step| step.time).filter(|step| step.runs > 0)?;
    let shares: Vec<_> = served
        .steps
        .iter()
        .map(|step| format!("'{}' {}", step.model, percent(nanos(step.time), nanos(whole))))
        .collect();
    let fact = format!("The steps take these shares of their time: {}.", shares.join(", "));
    let is_uneven = served.steps.len() > 1 && share(nanos(longest.time), nanos(whole)) >= 0.7;
    let advice =
        is_uneven.then(|| format!("Look at '{}' first: it decides how fast the ensemble is.", longest.model));
    Some(ModelFinding { about: "steps", fact, advice })
}

#[cfg(test)]
mod tests;
