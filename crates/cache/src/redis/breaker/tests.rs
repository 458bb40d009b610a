//! Scripts on virtual time: each line is an event at a time in milliseconds, and what the breaker says then.
use proptest::prelude::*;

use super::{ConnectionFailure::*, StoreChange::*, *};

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// A breaker, and the connections that its operations use.
struct Script {
    breaker: CircuitBreaker,
    generation: ConnectionGeneration,
}

impl Script {
    fn new() -> Self {
        let breaker = CircuitBreaker::new();
        Self { generation: breaker.admit().unwrap(), breaker }
    }

    fn fails(&mut self, millis: u64, failure: ConnectionFailure) -> Option<StoreChange> {
        self.breaker.failed(self.generation, failure, at(millis))
    }

    /// Three operations time out at this time.
    fn hangs(&mut self, millis: u64) -> Option<StoreChange> {
        assert_eq!((self.fails(millis, TimedOut), self.fails(millis, TimedOut)), (None, None));
        self.fails(millis, TimedOut)
    }

    /// A probe is due at exactly this time, and ends at once.
    fn probe(&mut self, millis: u64, was_successful: bool) -> Option<StoreChange> {
        assert_eq!(self.breaker.next_probe(), Some(at(millis)));
        assert!(!self.breaker.begin_probe(at(millis - 1)));
        assert!(self.breaker.begin_probe(at(millis)));
        let change = self.breaker.probed(was_successful, at(millis));
        if let Some(generation) = self.breaker.admit() {
            self.generation = generation;
        }
        change
    }
}

#[test]
fn a_few_operations_without_a_reply_open_the_breaker_once() {
    let mut script = Script::new();
    assert_eq!(script.fails(1, TimedOut), None);
    assert_eq!(script.fails(2, TimedOut), None);
    assert!(script.breaker.is_closed());
    assert_eq!(script.fails(3, TimedOut), Some(Away));
    assert!(!script.breaker.is_closed() && script.breaker.admit().is_none());
    assert_eq!(script.fails(4, TimedOut), None);
    assert_eq!(script.fails(5, Lost), None);
    assert_eq!(script.breaker.next_probe(), Some(at(103)));
}

#[test]
fn a_reply_between_two_time_outs_keeps_the_breaker_closed() {
    let mut script = Script::new();
    for millis in 0..100 {
        assert_eq!(script.fails(millis, TimedOut), None);
        assert_eq!(script.fails(millis, TimedOut), None);
        script.breaker.succeeded(script.generation);
    }
    assert!(script.breaker.is_closed());
}

#[test]
fn probes_become_rarer_up_to_one_a_second() {
    let mut script = Script::new();
    assert_eq!(script.hangs(1000), Some(Away));
    for millis in [1100, 1300, 1700, 2500, 3500, 4500] {
        assert_eq!(script.probe(millis, false), None);
    }
    assert_eq!(script.probe(5500, true), Some(Back));
    assert!(script.breaker.is_closed());
    assert_eq!(script.breaker.next_probe(), None);
}

#[test]
fn there_is_one_probe_at_a_time() {
    let mut script = Script::new();
    script.hangs(0);
    assert!(script.breaker.begin_probe(at(100)));
    assert!(!script.breaker.begin_probe(at(200)));
    assert_eq!(script.breaker.next_probe(), None);
    assert!(script.breaker.admit().is_none());
    assert_eq!(script.breaker.probed(true, at(300)), Some(Back));
    assert_eq!(script.breaker.probed(false, at(300)), None, "no probe is under way");
    assert!(script.breaker.is_closed());
}

#[test]
fn a_lost_connection_is_replaced_at_once_and_silently() {
    let mut script = Script::new();
    assert_eq!(script.fails(50, Lost), None);
    assert!(script.breaker.admit().is_none());
    assert_eq!(script.probe(50, true), None);
    assert!(script.breaker.is_closed());
}

#[test]
fn a_lost_connection_that_cannot_be_replaced_is_told_once() {
    let mut script = Script::new();
    assert_eq!(script.fails(50, Lost), None);
    assert_eq!(script.probe(50, false), Some(Away));
    assert_eq!(script.probe(150, false), None);
    assert_eq!(script.probe(350, true), Some(Back));
}

#[test]
fn failures_of_old_connections_do_not_count() {
    let mut script = Script::new();
    let old = script.generation;
    script.fails(10, Lost);
    script.probe(10, true);
    assert_ne!(old, script.generation);
    for failure in [Lost, TimedOut, TimedOut, TimedOut] {
        assert_eq!(script.breaker.failed(old, failure, at(11)), None);
    }
    assert!(script.breaker.is_closed());
    assert_eq!((script.fails(12, TimedOut), script.fails(12, TimedOut)), (None, None));
    script.breaker.succeeded(old);
    assert_eq!(script.fails(12, TimedOut), Some(Away), "an old reply says nothing about the new connections");
}

#[test]
fn time_outs_before_the_return_do_not_count_afterwards() {
    let mut script = Script::new();
    script.hangs(0);
    script.probe(100, true);
    assert_eq!((script.fails(200, TimedOut), script.fails(200, TimedOut)), (None, None));
    assert!(script.breaker.is_closed());
}

#[test]
fn a_store_that_fails_soon_after_its_return_is_probed_less_often() {
    let mut script = Script::new();
    script.hangs(0);
    script.probe(100, true);
    script.hangs(1000);
    script.probe(1200, true);
    script.fails(2000, Lost);
    script.probe(2400, true);
    // It was back for long enough.
    script.hangs(12_400);
    script.probe(12_500, true);
    script.fails(30_000, Lost);
    assert_eq!(script.probe(30_000, true), None);
}

#[derive(Debug, Clone)]
enum Event {
    Fails(ConnectionFailure),
    Succeeds,
    Probes(bool),
}

proptest! {
    /// Whatever happens: away and back alternate, an open breaker has a probe within a second, and a closed one none.
    #[test]
    fn the_log_alternates_and_an_open_breaker_has_a_probe(
        events in prop::collection::vec(
            (0_u64..2000, prop_oneof![
                Just(Event::Fails(TimedOut)), Just(Event::Fails(Lost)), Just(Event::Succeeds),
                any::<bool>().prop_map(Event::Probes),
            ]),
            0..200,
        )
    ) {
        let mut breaker = CircuitBreaker::new();
        let (mut now, mut last) = (at(0), Back);
        for (pause, event) in events {
            now = now + Duration::from_millis(pause);
            let change = match event {
                Event::Fails(failure) => {
                    breaker.admit().and_then(|generation| breaker.failed(generation, failure, now))
                }
                Event::Succeeds => {
                    if let Some(generation) = breaker.admit() {
                        breaker.succeeded(generation);
                    }
                    None
                }
                Event::Probes(was_successful) => {
                    if breaker.begin_probe(now) { breaker.probed(was_successful, now) } else { None }
                }
            };
            if let Some(change) = change {
                prop_assert_ne!(change, last);
                last = change;
            }
            match breaker.next_probe() {
                Some(probe_at) => prop_assert!(probe_at - now <= LONGEST_DELAY && !breaker.is_closed()),
                None => prop_assert!(breaker.is_closed()),
            }
        }
    }
}
