//! The rules by tables: numbers in, sentences out.
use std::time::Duration;

use executor::snapshot::{
    InstanceSnapshot, InstancesSnapshot, QueueSnapshot, SequencesSnapshot, SlotSnapshot,
};
use inference::{BatchStatistic, DurationStatistic};
use scheduling::CutReason;

use super::*;
use crate::{
    ModelStatistics,
    account::FailureSnapshot,
    snapshot::{FailureCounts, SchedulerSnapshot, StepSnapshot},
};

/// A model with a dynamic batcher that has done nothing.
fn served() -> ServedSnapshot {
    ServedSnapshot {
        generation: 1,
        load_duration: Duration::ZERO,
        backend: "onnxruntime".to_owned(),
        max_batch_size: Some(8),
        scheduler: SchedulerSnapshot {
            kind: SchedulerKind::Dynamic,
            max_queue_delay: Duration::from_micros(100),
            preferred_batch_sizes: vec![8],
            max_queue_size: None,
            queue_timeout: None,
            priority_levels: 0,
            max_sequence_idle: None,
        },
        in_flight: 0,
        queue: QueueSnapshot::default(),
        instances: InstancesSnapshot { count: 2, ..InstancesSnapshot::default() },
        sequences: None,
        statistics: ModelStatistics::default(),
        failures: FailureCounts::default(),
        last_failure: None,
        batch_ends: Vec::new(),
        times: None,
        uses_cache: false,
        process_restarts: None,
        steps: Vec::new(),
    }
}

/// Requests of one millisecond each: so many of a hundred parts of it in the queue, in inputs and computing.
fn with_times(mut served: ServedSnapshot, (queue, input, infer): (u64, u64, u64)) -> ServedSnapshot {
    let part = |of_hundred: u64| DurationStatistic { count: 100, ns: of_hundred * 1_000_000 };
    served.statistics.totals.success = part(100);
    served.statistics.totals.queue = part(queue);
    served.statistics.totals.compute_input = part(input);
    served.statistics.totals.compute_infer = part(infer);
    served
}

fn with_batches(
    mut served: ServedSnapshot,
    ends: &[(CutReason, u64)],
    sizes: &[(u64, u64)],
) -> ServedSnapshot {
    served.batch_ends = ends.to_vec();
    served.statistics.totals.batches = sizes
        .iter()
        .map(|&(batch_size, count)| BatchStatistic {
            batch_size,
            compute_infer: DurationStatistic { count, ns: 0 },
            ..BatchStatistic::default()
        })
        .collect();
    served
}

fn of(served: ServedSnapshot) -> Vec<ModelFinding> {
    let served = Some(Box::new(served));
    findings(&ModelSnapshot {
        name: "m".into(),
        namespace: None,
        version: Some(1),
        state: Some(ModelState::Ready),
        reason: String::new(),
        served,
    })
}

/// The fact about one thing, and how its advice begins; empty without advice.
#[track_caller]
fn check(served: ServedSnapshot, about: &str, fact: &str, advice: &str) {
    let all = of(served);
    let found = all.iter().find(|finding| finding.about == about);
    let found = found.unwrap_or_else(|| panic!("nothing about {about}: {all:?}"));
    assert_eq!(found.fact, fact);
    let given = found.advice.as_deref().unwrap_or_default();
    assert!(given.starts_with(advice) && (given.is_empty() == advice.is_empty()), "{given:?} for {advice:?}");
}

#[test]
fn versions_that_do_not_serve_have_their_state_and_what_to_do() {
    let version = |state, reason: &str| ModelSnapshot {
        name: "m".into(),
        namespace: None,
        version: Some(1),
        state,
        reason: reason.to_owned(),
        served: None,
    };
    for (state, reason, fact, advice) in [
        (Some(ModelState::Loading), "", "The version is LOADING.", ""),
        (Some(ModelState::Unloading), "", "The version is UNLOADING.", ""),
        (Some(ModelState::Unavailable), "bad.\n", "The version is UNAVAILABLE: bad.", "Correct the cause"),
        (
            Some(ModelState::Unavailable),
            "Internal: ValueError: no\n\nAt:\n  /m/1/model.py(3): initialize\n",
            "The version is UNAVAILABLE: Internal: ValueError: no, at /m/1/model.py(3): initialize.",
            "The model's code in Python has raised this.",
        ),
        (
            Some(ModelState::Unavailable),
            "unloaded",
            "The version is UNAVAILABLE: unloaded.",
            "Load the model",
        ),
        (None, "", "The version is not loaded.", "Load the model"),
    ] {
        let [found] = &findings(&version(state, reason))[..] else { panic!("{state:?} has one finding") };
        assert_eq!((found.about, found.fact.as_str()), ("state", fact));
        let given = found.advice.as_deref().unwrap_or_default();
        assert!(given.starts_with(advice) && given.is_empty() == advice.is_empty(), "{given}");
    }
}

#[test]
fn a_model_without_requests_says_so_and_nothing_that_follows_from_requests() {
    let abouts: Vec<_> = of(served()).into_iter().map(|finding| finding.about).collect();
    assert_eq!(abouts, ["requests", "instances"]);
    check(served(), "requests", "No request has ended since the load.", "");
}

#[test]
fn failed_requests_are_named_by_their_reasons() {
    let failed = |failures| ServedSnapshot { failures, ..with_times(served(), (10, 0, 90)) };
    let none = FailureCounts::default();
    let table = [
        (none, "no request has failed", ""),
        (FailureCounts { cancelled: 1, ..none }, "1 request has failed (1 cancelled by clients)", ""),
        (
            FailureCounts { rejected: 5, other: 1, ..none },
            "6 requests have failed (5 rejected by the queue, 1 failed for other reasons)",
            "More requests come than",
        ),
        (
            FailureCounts { backend: 2, ..none },
            "2 requests have failed (2 failed in the backend)",
            "The answers to clients have",
        ),
    ];
    for (failures, text, advice) in table {
        let fact = format!("Since the load, 100 requests have succeeded and {text}.");
        check(failed(failures), "requests", &fact, advice);
    }
}

#[test]
fn the_time_of_requests_leads_to_instances_or_delay() {
    let text = |queue, input, infer| {
        format!(
            "A request takes 1.0 ms on average: {queue} % in the queue, {input} % for inputs, {infer} % computing, 0 % for \
             outputs."
        )
    };
    let delayed = with_batches(served(), &[(CutReason::Delay, 30)], &[(2, 30)]);
    let full = with_batches(served(), &[(CutReason::Full, 30)], &[(8, 30)]);
    for (served, (queue, input, infer), advice) in [
        (delayed.clone(), (80, 1, 19), "Most of the time requests wait for others"),
        (full.clone(), (80, 1, 19), "Most of the time requests wait for an instance"),
        (full.clone(), (10, 50, 40), ""),
        (full, (10, 10, 80), ""),
    ] {
        check(with_times(served, (queue, input, infer)), "time", &text(queue, input, infer), advice);
    }
    let mut few = with_times(delayed, (80, 1, 19));
    few.statistics.totals.success.count = 10;
    let found = of(few).into_iter().find(|finding| finding.about == "time");
    assert_eq!(found.and_then(|found| found.advice), None, "ten requests say little");
}

#[test]
fn waiting_for_ones_own_sequence_is_told_apart_from_waiting_for_an_instance() {
    let with = |kind, of_hundred: u64, max_batch_size| {
        let waited_for_own = Duration::from_millis(of_hundred);
        let mut served = with_batches(served(), &[(CutReason::Full, 100)], &[(1, 100)]);
        served.scheduler.kind = kind;
        served.max_batch_size = max_batch_size;
        served.sequences = Some(SequencesSnapshot { waited_for_own, ..SequencesSnapshot::default() });
        with_times(served, (94, 0, 6))
    };
    let own = "Most of the time requests wait for earlier ones of their own sequence";
    let instance = "Most of the time requests wait for an instance. Add instances (instance_group count) if processors \
                    are free.";
    let fact = "A request takes 1.0 ms on average: 94 % in the queue, 0 % for inputs, 6 % computing, 0 % for outputs.";
    for (kind, waited, advice) in [
        (SchedulerKind::SequenceDirect, 94, own),
        (SchedulerKind::SequenceOldest, 60, own),
        // More than there is: requests that have failed count, too.
        (SchedulerKind::SequenceDirect, 200, own),
        (SchedulerKind::SequenceOldest, 40, instance),
        (SchedulerKind::SequenceDirect, 0, instance),
    ] {
        check(with(kind, waited, None), "time", fact, advice);
    }
    // A model without a batch dimension has no batches to tell of, and one that waits for its sequences needs no larger ones.
    let about = |served, about| of(served).into_iter().find(|finding| finding.about == about);
    assert_eq!(about(with(SchedulerKind::SequenceDirect, 94, None), "batches"), None);
    let batches = about(with(SchedulerKind::SequenceDirect, 94, Some(1)), "batches").unwrap();
    assert_eq!(batches.advice, None);
}

#[test]
fn sequences_get_the_advice_of_their_strategy() {
    let with = |kind, end| {
        let mut served = with_batches(served(), &[(end, 100)], &[(1, 100)]);
        served.scheduler.kind = kind;
        with_times(served, (10, 0, 90))
    };
    for (kind, end, why, advice) in [
        (
            SchedulerKind::SequenceDirect,
            CutReason::PreferredSize,
            "enough slots have a request (minimum_slot_utilization)",
            "Batches leave when enough slots have a request.",
        ),
        (
            SchedulerKind::SequenceOldest,
            CutReason::PreferredSize,
            "they have a preferred size",
            "Batches leave at a preferred size",
        ),
        (
            SchedulerKind::SequenceDirect,
            CutReason::IdleInstance,
            "an instance is idle and nothing else waits",
            "Requests run at once, which is best for their latency. Where several sequences send at a time, \
             minimum_slot_utilization",
        ),
        (
            SchedulerKind::SequenceOldest,
            CutReason::IdleInstance,
            "an instance is idle and nothing else waits",
            "Requests run at once, which is best for their latency. Where several come at a time, \
             max_queue_delay_microseconds makes",
        ),
        (
            SchedulerKind::SequenceOldest,
            CutReason::Delay,
            "the queue delay is over",
            "Too few sequences have a request within the delay.",
        ),
    ] {
        let fact = format!("Batches end because {why} (100 %). A batch has 1.0 of 8 rows on average.");
        check(with(kind, end), "batches", &fact, advice);
    }
    let mut rejected = with(SchedulerKind::SequenceOldest, CutReason::Full);
    rejected.failures.rejected = 100;
    let fact = "Since the load, 100 requests have succeeded and 100 requests have failed (100 rejected by the queue).";
    check(
        rejected,
        "requests",
        fact,
        "Sequences wait for a slot for longer than their clients allow (timeout).",
    );
}

#[test]
fn the_last_error_is_told_in_one_line_with_its_age() {
    let text = "Failed to process the request(s) for model 'm_0', message: ValueError: no\n\nAt:\n  /m/1/model.py(5): execute\n";
    let last = FailureSnapshot { text: text.to_owned(), at: Duration::from_secs(1) };
    let served = ServedSnapshot { last_failure: Some((last, Duration::from_secs(12))), ..served() };
    check(
        served,
        "error",
        "The last error, 12 s ago: Failed to process the request(s) for model 'm_0', message: ValueError: no, at \
         /m/1/model.py(5): execute.",
        "",
    );
}

#[test]
fn batches_tell_why_they_end_and_what_makes_them_larger() {
    let ends = |ends: &[(CutReason, u64)], sizes: &[(u64, u64)], queue| {
        with_times(with_batches(served(), ends, sizes), (queue, 0, 100 - queue))
    };
    let table = [
        (
            ends(&[(CutReason::Full, 17), (CutReason::Delay, 83)], &[(2, 90), (5, 10)], 10),
            "Batches end because the queue delay is over (83 %), they are full (17 %). A batch has 2.3 of 8 rows on average.",
            "Too few requests come within the delay",
        ),
        (
            ends(&[(CutReason::Delay, 100)], &[(7, 100)], 10),
            "Batches end because the queue delay is over (100 %). A batch has 7.0 of 8 rows on average.",
            "",
        ),
        (
            ends(&[(CutReason::IdleInstance, 100)], &[(1, 100)], 10),
            "Batches end because an instance is idle and nothing else waits (100 %). A batch has 1.0 of 8 rows on average.",
            "Requests run at once",
        ),
        (
            ends(&[(CutReason::Full, 100)], &[(8, 100)], 60),
            "Batches end because they are full (100 %). A batch has 8.0 of 8 rows on average.",
            "The model has more requests",
        ),
        (
            ends(&[(CutReason::Full, 100)], &[(8, 100)], 10),
            "Batches end because they are full (100 %). A batch has 8.0 of 8 rows on average.",
            "",
        ),
        (
            ends(&[(CutReason::PreferredSize, 60), (CutReason::Drain, 40)], &[(2, 100)], 10),
            "Batches end because they have a preferred size (60 %), the model drains (40 %). A batch has 2.0 of 8 rows on \
             average.",
            "Batches leave at a preferred size",
        ),
        (
            ends(&[(CutReason::Shape, 60), (CutReason::Filter, 40)], &[(2, 100)], 10),
            "Batches end because the next request has another shape (60 %), the batching strategy refuses the next request \
             (40 %). A batch has 2.0 of 8 rows on average.",
            "Requests of different shapes",
        ),
        (
            ends(&[(CutReason::Filter, 60)], &[(2, 60)], 10),
            "Batches end because the batching strategy refuses the next request (100 %). A batch has 2.0 of 8 rows on \
             average.",
            "The library of the batching strategy",
        ),
        (
            ends(&[(CutReason::Unbatched, 100)], &[(1, 100)], 60),
            "Batches end because each request runs alone (100 %). A batch has 1.0 of 8 rows on average.",
            "Requests wait although the model can run several",
        ),
        (
            ends(&[(CutReason::Unbatched, 100)], &[(1, 100)], 5),
            "Batches end because each request runs alone (100 %). A batch has 1.0 of 8 rows on average.",
            "",
        ),
        (
            ends(&[(CutReason::Delay, 3)], &[(1, 3)], 5),
            "Batches end because the queue delay is over (100 %). A batch has 1.0 of 8 rows on average.",
            "",
        ),
    ];
    for (served, fact, advice) in table {
        check(served, "batches", fact, advice);
    }
}

#[test]
fn what_waits_now_is_told_with_its_age_and_its_work() {
    let waiting = |requests, work| ServedSnapshot {
        queue: QueueSnapshot { requests, bytes: 0, oldest: Some(Duration::from_millis(12)), work },
        ..served()
    };
    check(
        waiting(7, Some(Duration::from_millis(30))),
        "queue",
        "7 requests wait now; the oldest has waited for 12 ms; the instances need about 30 ms for all.",
        "",
    );
    check(
        waiting(1, Some(Duration::from_secs(2))),
        "queue",
        "1 request waits now; the oldest has waited for 12 ms; the instances need about 2.0 s for all.",
        "The queue is longer than one second",
    );
    check(waiting(1, None), "queue", "1 request waits now; the oldest has waited for 12 ms.", "");
    let of_sequences = |behind_own| {
        let sequences = Some(SequencesSnapshot { behind_own, ..SequencesSnapshot::default() });
        ServedSnapshot { sequences, ..waiting(4, Some(Duration::from_secs(2))) }
    };
    let fact =
        "4 requests wait now; the oldest has waited for 12 ms; the instances need about 2.0 s for all.";
    check(
        of_sequences(3),
        "queue",
        &format!("{fact} Of these, 3 wait for an earlier one of the same sequence."),
        "",
    );
    check(
        of_sequences(1),
        "queue",
        &format!("{fact} Of these, 1 waits for an earlier one of the same sequence."),
        "The queue is longer than one second",
    );
}

#[test]
fn instances_tell_what_they_do() {
    let with = |count, busy, states: &[InstanceState]| {
        let each = states.iter().enumerate().map(|(number, &state)| InstanceSnapshot {
            number,
            name: "g".into(),
            kind: "CPU",
            state,
        });
        let instances = InstancesSnapshot { count, busy, each: each.collect(), left_out: 0 };
        ServedSnapshot { instances, ..served() }
    };
    check(with(1, 1, &[InstanceState::Busy]), "instances", "Of 1 instance, 1 runs a batch now.", "");
    check(
        with(2, 0, &[InstanceState::Idle, InstanceState::AwaitsResources]),
        "instances",
        "Of 2 instances, 0 run a batch now; 1 waits for resources of the rate limiter.",
        "Instances with work stand still",
    );
    check(with(0, 0, &[]), "instances", "No instance is left: all have failed.", "The log has the cause");
}

#[test]
fn processes_that_end_are_told_before_more_instances_are_advised() {
    let with = |restarts, backend, succeeded| {
        let queue =
            QueueSnapshot { requests: 5, work: Some(Duration::from_secs(9)), ..QueueSnapshot::default() };
        let failures = FailureCounts { backend, ..FailureCounts::default() };
        let mut served = ServedSnapshot { queue, failures, process_restarts: restarts, ..served() };
        served.statistics.totals.success.count = succeeded;
        served.backend = "python".to_owned();
        served
    };
    let waiting = "5 requests wait now; the instances need about 9.0 s for all.";
    check(
        with(Some(3), 40, 0),
        "processes",
        "Since the load, processes of the model have ended and were started again 3 times.",
        "A process that ends fails its requests",
    );
    check(with(Some(3), 40, 0), "queue", waiting, "Requests wait while a process of the model has ended");
    check(
        with(Some(3), 40, 0),
        "requests",
        "Since the load, no request has succeeded and 40 requests have failed (40 failed in the backend).",
        "The answers to clients have the errors. The log has some of them",
    );
    check(
        with(Some(1), 1, 5000),
        "processes",
        "Since the load, processes of the model have ended and were started again once.",
        "",
    );
    check(with(Some(1), 1, 5000), "queue", waiting, "The queue is longer than one second");
    let elsewhere =
        "The answers to clients have the errors. The log has only what the backend writes itself.";
    let fact =
        "Since the load, no request has succeeded and 40 requests have failed (40 failed in the backend).";
    check(with(None, 40, 0), "requests", fact, elsewhere);
    let mut ensemble = with(None, 40, 0);
    ensemble.scheduler.kind = SchedulerKind::Ensemble;
    check(
        ensemble,
        "requests",
        fact,
        "The answers to clients have the errors. Look at the models of the steps.",
    );
    for restarts in [None, Some(0)] {
        assert!(of(with(restarts, 40, 0)).iter().all(|finding| finding.about != "processes"));
        check(with(restarts, 40, 0), "queue", waiting, "The queue is longer than one second");
    }
}

#[test]
fn an_ensemble_tells_how_long_its_steps_wait() {
    let mut ensemble = with_times(served(), (2, 3, 17));
    ensemble.scheduler.kind = SchedulerKind::Ensemble;
    check(
        ensemble,
        "time",
        "A request takes 1.0 ms on average: 2 % in the queue, 3 % for inputs, 17 % computing, 0 % for outputs, 78 % in the \
         queues of its steps and between them.",
        "",
    );
}

#[test]
fn sequences_tell_who_keeps_others_waiting() {
    let with = |slots: &[(usize, bool)], backlog| {
        let slots = (0..).zip(slots).map(|(slot, &(waiting, running))| SlotSnapshot {
            instance: 0,
            slot,
            sequence: Some("s".to_owned()),
            waiting,
            running,
        });
        let sequences = SequencesSnapshot {
            slots_per_instance: 2,
            slots: slots.collect(),
            backlog,
            ..SequencesSnapshot::default()
        };
        let mut served = ServedSnapshot { sequences: Some(sequences), ..served() };
        served.scheduler.kind = SchedulerKind::SequenceDirect;
        served
    };
    let text = |silent, running, waits: &str| {
        format!(
            "Sequences hold 2 of 4 slots: {running} with a request that runs, {silent} without any request; {waits} for a \
             slot."
        )
    };
    let silent = [(0, false), (0, false)];
    check(with(&silent, 0), "sequences", &text(2, 0, "no sequence waits"), "");
    check(with(&silent, 3), "sequences", &text(2, 0, "3 sequences wait"), "Silent sequences keep slots");
    let active = [(0, true), (1, false)];
    let fact = text(0, 1, "1 sequence waits");
    check(
        with(&active, 1),
        "sequences",
        &fact,
        "All slots are in use. Raise max_batch_size, or add instances.",
    );
    let mut unbatched = with(&active, 1);
    unbatched.max_batch_size = None;
    check(unbatched.clone(), "sequences", &fact, "All slots are in use. Add instances.");
    unbatched.scheduler.kind = SchedulerKind::SequenceOldest;
    check(unbatched, "sequences", &fact, "All slots are in use. Raise max_candidate_sequences");
}

#[test]
fn a_cache_that_never_hits_is_not_worth_its_look_ups() {
    let with = |hits, misses| {
        let mut served = ServedSnapshot { uses_cache: true, ..served() };
        served.statistics.totals.cache_hit.count = hits;
        served.statistics.totals.cache_miss.count = misses;
        served
    };
    check(with(0, 0), "cache", "The response cache has not been asked.", "");
    check(with(40, 60), "cache", "The response cache has answered 40 % of 100 requests.", "");
    check(with(0, 99), "cache", "The response cache has answered 0 % of 99 requests.", "");
    check(
        with(1, 199),
        "cache",
        "The response cache has answered 0.5 % of 200 requests.",
        "Requests hardly ever",
    );
    assert!(of(served()).iter().all(|finding| finding.about != "cache"));
}

#[test]
fn the_slowest_step_of_an_ensemble_is_named() {
    let with = |millis: &[(&str, u64)]| {
        let steps = millis.iter().map(|&(model, millis)| StepSnapshot {
            model: model.into(),
            version: None,
            runs: 1,
            time: Duration::from_millis(millis),
        });
        ServedSnapshot { steps: steps.collect(), ..served() }
    };
    let fact = "The steps take these shares of their time: 'a' 80 %, 'b' 20 %.";
    check(with(&[("a", 80), ("b", 20)]), "steps", fact, "Look at 'a' first");
    let fact = "The steps take these shares of their time: 'a' 50 %, 'b' 50 %.";
    check(with(&[("a", 50), ("b", 50)]), "steps", fact, "");
}
