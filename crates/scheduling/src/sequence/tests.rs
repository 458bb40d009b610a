//! Tests of rules that the scripts and the random histories do not cover.
use std::num::NonZeroU64;

use super::*;
use crate::{Rejected, Rejection, SchedulingAttributes, Timestamp};

const NOW: Timestamp = Timestamp::from_nanos(1_000);

fn request(id: SequenceId, start: bool) -> SchedulingAttributes {
    SchedulingAttributes {
        sequence: SequencePosition { id: Some(id), start, end: false },
        ..SchedulingAttributes::default()
    }
}

fn number(id: u64) -> SequenceId {
    SequenceId::Number(NonZeroU64::new(id).expect("an id of a client"))
}

#[test]
fn a_second_start_is_noted_and_the_number_of_notes_is_limited() {
    let mut batcher = SequenceBatcher::new(SequenceBatching::default(), 1);
    for _ in 0..1_000 {
        assert!(batcher.enqueue(NOW, request(number(1), true), 'x').is_ok());
    }
    let restarts = batcher.take_restarts();
    assert_eq!(restarts[0], number(1));
    assert!(restarts.len() < 100);
    assert_eq!(batcher.take_restarts(), []);
}

#[test]
fn free_slots_cost_no_steps() {
    let oldest = OldestStrategy { max_candidate_sequences: u32::MAX, ..OldestStrategy::default() };
    let config =
        SequenceBatching { strategy: SequenceStrategy::Oldest(oldest), ..SequenceBatching::default() };
    let mut batcher = SequenceBatcher::new(config, 2);
    for id in 1..=4 {
        assert!(batcher.enqueue(NOW, request(number(id), true), 'x').is_ok());
    }
    let taken: Vec<_> = batcher.slots().map(|slot| (slot.instance, slot.slot)).collect();
    assert_eq!(taken, [(0, 0), (0, 1), (1, 0), (1, 1)]);
}

#[test]
fn clients_cannot_name_a_server_generated_sequence() {
    let own = || request(SequenceId::ServerGenerated(1), true);
    let refused = Rejected { payload: 'x', reason: Rejection::MissingSequence };
    let mut batcher = SequenceBatcher::new(SequenceBatching::default(), 1);
    assert_eq!(batcher.enqueue(NOW, own(), 'x'), Err(refused));
    let iterative = SequenceBatching { iterative: true, ..SequenceBatching::default() };
    let mut batcher = SequenceBatcher::new(iterative, 0);
    for _ in 0..2 {
        assert!(batcher.enqueue(NOW, own(), 'x').is_ok());
    }
    assert!(
        batcher.backlog().eq([(&SequenceId::ServerGenerated(1), 1), (&SequenceId::ServerGenerated(2), 1)])
    );
    assert_eq!(batcher.live_sequences(), 0, "nobody else can join them");
}

#[test]
fn an_ended_request_is_not_returned_twice() {
    let mut batcher = SequenceBatcher::new(SequenceBatching::default(), 1);
    assert!(batcher.enqueue(NOW, request(number(1), true), 'x').is_ok());
    let due = batcher.due(NOW, &[0]).expect("it can run");
    assert_eq!(batcher.take(due.instance, due.requests).len(), 1);
    assert!(batcher.enqueue(NOW, request(number(1), false), 'y').is_ok());
    batcher.released(NOW, 0, 0);
    batcher.released(NOW, 0, 0);
    batcher.released(NOW, 0, 7);
    batcher.released(NOW, 7, 0);
    let due = batcher.due(NOW, &[7, 0]).expect("the next one can run");
    assert_eq!(batcher.take(due.instance, due.requests).len(), 1);
    assert_eq!(batcher.due(NOW, &[0]), None);
}
