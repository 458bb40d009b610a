//! Keeps the order of the requests of a sequence through the steps of an ensemble.
//!
//! Requests of one sequence that are in the ensemble at the same time stand in a line, in the order of their arrival. A
//! step that keeps order is started by one after the other: a request may start it when each earlier one has started it
//! for the last time, or has left. So the order does not depend on the thread or the time at which a step before it has
//! ended.
use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use super::StepIndex;
use crate::cost_counter;

/// The lines of all sequences.
///
/// `K` identifies a sequence. `W` wakes a request whose turn has come; it should be cheap to clone.
#[derive(Debug)]
pub struct SequenceTurns<K, W> {
    lines: HashMap<K, SequenceLine<W>>,
    /// The number of steps of the ensemble.
    steps: usize,
}

/// The place of a request in the line of its sequence.
#[derive(Debug)]
pub struct TurnPlace<K> {
    sequence: K,
    serial: u64,
}

#[derive(Debug)]
struct SequenceLine<W> {
    /// The serial number of the first request in `requests`.
    first: u64,
    requests: VecDeque<LinedUp<W>>,
    /// For each step the serial number of the request whose turn it is.
    turns: Vec<u64>,
}

#[derive(Debug)]
struct LinedUp<W> {
    has_left: bool,
    waker: W,
}

impl<K: Clone + Eq + Hash, W: Clone> SequenceTurns<K, W> {
    /// No sequence has a line. The ensemble has so many steps.
    #[must_use]
    pub fn new(steps: usize) -> Self {
        Self { lines: HashMap::new(), steps }
    }

    /// A request of a sequence arrives. It must [`leave`](Self::leave) at its end.
    pub fn enter(&mut self, sequence: K, waker: W) -> TurnPlace<K> {
        let line = self.lines.entry(sequence.clone()).or_insert_with(|| SequenceLine {
            first: 0,
            requests: VecDeque::new(),
            turns: vec![0; self.steps],
        });
        let serial = line.first + line.requests.len() as u64;
        line.requests.push_back(LinedUp { has_left: false, waker });
        TurnPlace { sequence, serial }
    }

    /// Whether a request may start a step now.
    #[must_use]
    pub fn may_start(&self, place: &TurnPlace<K>, step: StepIndex) -> bool {
        // A request that has left starts nothing.
        self.lines.get(&place.sequence).is_some_and(|line| line.turns[step] == place.serial)
    }

    /// A request has started a step for the last time. Returns what wakes the request whose turn it is then.
    pub fn started(&mut self, place: &TurnPlace<K>, step: StepIndex) -> Option<W> {
        let line = self.lines.get_mut(&place.sequence)?;
        debug_assert_eq!(line.turns[step], place.serial, "a step is started in its turn");
        line.advance(step)
    }

    /// A request has ended, whatever it has started. Returns what wakes the requests whose turns have come.
    pub fn leave(&mut self, place: &TurnPlace<K>) -> Vec<W> {
        let Some(line) = self.lines.get_mut(&place.sequence) else { return Vec::new() };
        if let Some(request) = line.get_mut(place.serial) {
            request.has_left = true;
        }
        let mut woken = Vec::new();
        for step in 0..line.turns.len() {
            if line.turns[step] == place.serial {
                woken.extend(line.advance(step));
            }
        }
        while line.requests.front().is_some_and(|request| request.has_left) {
            cost_counter::count();
            line.requests.pop_front();
            line.first += 1;
        }
        if line.requests.is_empty() {
            self.lines.remove(&place.sequence);
        }
        woken
    }

    /// Whether a sequence has requests in the ensemble.
    #[must_use]
    pub fn has(&self, sequence: &K) -> bool {
        self.lines.contains_key(sequence)
    }

    /// The number of sequences that have requests.
    #[must_use]
    pub fn sequences(&self) -> usize {
        self.lines.len()
    }
}

impl<W: Clone> SequenceLine<W> {
    fn get_mut(&mut self, serial: u64) -> Option<&mut LinedUp<W>> {
        let index = usize::try_from(serial.checked_sub(self.first)?).ok()?;
        self.requests.get_mut(index)
    }

    /// Gives the turn of a step to the next request that has not left.
    fn advance(&mut self, step: StepIndex) -> Option<W> {
        loop {
            cost_counter::count();
            self.turns[step] += 1;
            let serial = self.turns[step];
            match self.get_mut(serial) {
                Some(next) if next.has_left => {}
                Some(next) => return Some(next.waker.clone()),
                None => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(turns: &mut SequenceTurns<u64, u64>, sequence: u64, request: u64) -> TurnPlace<u64> {
        turns.enter(sequence, request)
    }

    #[test]
    fn a_later_request_starts_a_step_after_the_earlier_one() {
        let mut turns = SequenceTurns::new(2);
        let (first, second) = (enter(&mut turns, 7, 1), enter(&mut turns, 7, 2));
        assert!(turns.may_start(&first, 0) && turns.may_start(&first, 1));
        assert!(!turns.may_start(&second, 0));
        assert_eq!(turns.started(&first, 0), Some(2));
        assert!(turns.may_start(&second, 0) && !turns.may_start(&second, 1));
        assert_eq!(turns.started(&second, 0), None);
    }

    #[test]
    fn requests_of_other_sequences_do_not_wait() {
        let mut turns = SequenceTurns::new(1);
        let (_first, other) = (enter(&mut turns, 7, 1), enter(&mut turns, 8, 2));
        assert!(turns.may_start(&other, 0));
    }

    #[test]
    fn a_request_that_leaves_gives_all_its_turns_away_also_before_they_come() {
        let mut turns = SequenceTurns::new(2);
        let [first, second, third] = [1, 2, 3].map(|request| enter(&mut turns, 7, request));
        assert_eq!(turns.leave(&second), []);
        assert_eq!(turns.started(&first, 1), Some(3));
        assert!(turns.may_start(&third, 1) && !turns.may_start(&third, 0));
        assert_eq!(turns.leave(&first), [3]);
        assert!(turns.may_start(&third, 0));
        assert_eq!(turns.leave(&third), []);
        assert_eq!(turns.sequences(), 0);
    }

    #[test]
    fn a_sequence_that_comes_again_begins_a_new_line() {
        let mut turns = SequenceTurns::new(1);
        let first = enter(&mut turns, 7, 1);
        turns.started(&first, 0);
        turns.leave(&first);
        let again = enter(&mut turns, 7, 2);
        assert!(turns.may_start(&again, 0));
    }

    /// Requests that leave in any order cost steps in proportion to their number.
    #[test]
    fn a_line_costs_steps_in_proportion_to_its_requests() {
        let cost = |count: u64| {
            let mut turns = SequenceTurns::new(3);
            let mut places: Vec<_> = (0..count).map(|request| enter(&mut turns, 7, request)).collect();
            let cost = cost_counter::of(|| {
                // The first one holds all others up, and leaves last.
                let first = places.remove(0);
                places.iter().rev().for_each(|place| drop(turns.leave(place)));
                turns.leave(&first);
            });
            assert_eq!(turns.sequences(), 0);
            cost
        };
        let (small, large) = (cost(1_000), cost(10_000));
        assert!(large <= 11 * small, "{small} and {large} steps");
    }
}
