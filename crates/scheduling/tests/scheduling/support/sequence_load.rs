//! Random events for a model with sequences.
use std::{collections::BTreeSet, num::NonZeroU64, time::Duration};

use scheduling::{
    DirectStrategy, OldestStrategy, SchedulingAttributes, SequenceBatching, SequenceId, SequenceStrategy,
};

use crate::support::random::Random;

/// The next event. Its numbers select one of the elements that exist then, so that every part of a history is a
/// history.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Arrive {
        id: Option<SequenceId>,
        flags: u64,
        attributes: SchedulingAttributes,
        clock_lag: u64,
    },
    /// Releases a running request, or reschedules it.
    Return {
        which: u64,
        again: bool,
    },
    /// The execution of a busy instance ends. Its requests end with it or later.
    Finish {
        which: u64,
        all: bool,
    },
    Wait(Duration),
    WaitForWakeup,
    /// Cancels waiting requests, or with `any` requests that existed at any time.
    Cancel {
        first: u64,
        count: u64,
        any: bool,
    },
    RejectAll,
    AddInstance,
    RemoveInstance(u64),
    LoseInstance(u64),
    Drain,
    EndQueueDelay,
}

pub(crate) fn operation(random: &mut Random) -> Operation {
    let us = Duration::from_micros;
    match random.below(1_000) {
        0..400 => arrive(random),
        400..600 => Operation::Return { which: random.next(), again: random.one_in(3) },
        600..800 => Operation::Finish { which: random.next(), all: !random.one_in(3) },
        800..850 => Operation::Wait(us(random.below(20))),
        850..860 => Operation::Wait(us(random.below(800))),
        860..950 => Operation::WaitForWakeup,
        950..969 => {
            Operation::Cancel { first: random.next(), count: 1 + random.below(3), any: random.one_in(4) }
        }
        969 => Operation::RejectAll,
        970..982 => Operation::AddInstance,
        982..993 => Operation::RemoveInstance(random.next()),
        993..998 => Operation::LoseInstance(random.next()),
        _ if random.one_in(4) => Operation::Drain,
        _ if random.one_in(3) => Operation::EndQueueDelay,
        _ => Operation::Wait(Duration::ZERO),
    }
}

fn arrive(random: &mut Random) -> Operation {
    let number = 1 + random.below(5);
    let id = match random.below(24) {
        0 => None,
        1 => Some(SequenceId::Text("".into())),
        2..14 => Some(SequenceId::Text(number.to_string().into())),
        _ => NonZeroU64::new(number).map(SequenceId::Number),
    };
    let timeout = random.one_in(4).then(|| Duration::from_micros(random.below(150)));
    let attributes = SchedulingAttributes {
        batch_size: if random.one_in(40) { 2 } else { random.below(2) as u32 },
        timeout,
        shape_key: if random.one_in(5) { random.below(3) } else { 0 },
        ..SchedulingAttributes::default()
    };
    let clock_lag = if random.one_in(8) { random.below(6) } else { 0 };
    Operation::Arrive { id, flags: random.next(), attributes, clock_lag }
}

/// A model under test, with the data that repeats the test.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) config: SequenceBatching,
    pub(crate) instances: usize,
}

impl Setting {
    pub(crate) fn random(random: &mut Random, oldest: bool, iterative: bool) -> Self {
        let us = Duration::from_micros;
        let max_batch_size = random.below(5) as u32;
        let max_queue_delay = us(*random.pick(&[0, 0, 5, 20, 100]));
        let strategy = if oldest {
            let mut preferred_batch_sizes = BTreeSet::new();
            for _ in 0..random.below(3) {
                preferred_batch_sizes.insert(1 + random.below(u64::from(max_batch_size.max(1))) as u32);
            }
            SequenceStrategy::Oldest(OldestStrategy {
                max_candidate_sequences: random.below(6) as u32,
                preferred_batch_sizes,
                max_queue_delay,
                preserve_ordering: false,
            })
        } else {
            let minimum_slot_utilization = *random.pick(&[0.0, 0.3, 0.5, 0.75, 1.0]);
            SequenceStrategy::Direct(DirectStrategy { max_queue_delay, minimum_slot_utilization })
        };
        let held = random.one_in(8);
        let config = SequenceBatching {
            strategy,
            max_batch_size,
            max_sequence_idle: us(*random.pick(&[0, 10, 50, 200, 1_000_000])),
            iterative,
            hold_until_queued: if held { random.below(4) as usize } else { 0 },
            hold_until_backlogged: if held { random.below(3) as usize } else { 0 },
        };
        Self { config, instances: random.below(4) as usize }
    }
}
