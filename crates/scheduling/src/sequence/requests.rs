//! One sequence: its id, its number, and its requests that wait.
use std::{collections::VecDeque, time::Duration};

use crate::{request::Entry, sequence_position::SequenceId, time::Timestamp};

/// A series of requests that share a correlation id.
#[derive(Debug)]
pub(super) struct Sequence<T> {
    /// Increases with each sequence of a batcher, and is never used again.
    pub(super) number: u64,
    pub(super) id: SequenceId,
    /// Whether more requests may join.
    pub(super) open: bool,
    /// Waiting requests by serial number.
    pub(super) requests: VecDeque<Entry<T>>,
    /// The time at which the sequence has been idle for too long, if it has a slot and no work.
    pub(super) idle_deadline: Option<Timestamp>,
    /// When its latest request began to run, until that is released.
    pub(super) runs_since: Option<Timestamp>,
}

impl<T> Sequence<T> {
    pub(super) fn new(number: u64, id: SequenceId, open: bool) -> Self {
        // Most sequences never have two requests waiting.
        Self { number, id, open, requests: VecDeque::with_capacity(1), idle_deadline: None, runs_since: None }
    }

    pub(super) fn push(&mut self, entry: Entry<T>, end: bool) {
        debug_assert!(self.open, "sequence {} is closed", self.id);
        self.open = !end;
        self.requests.push_back(entry);
    }

    /// How long its waiting requests have waited since then for the request that has run since `started`, all together.
    /// Looks at a request only once: at the end of the execution during which it arrived.
    pub(super) fn waited(&self, started: Timestamp, now: Timestamp) -> Duration {
        let later = self.requests.iter().rev().take_while(|entry| entry.arrived > started);
        let (count, waited) =
            later.fold((0, Duration::ZERO), |(count, sum), entry| (count + 1, sum + (now - entry.arrived)));
        let earlier = u32::try_from(self.requests.len() - count).unwrap_or(u32::MAX);
        waited + (now - started).saturating_mul(earlier)
    }

    pub(super) fn is_finished(&self) -> bool {
        !self.open && self.requests.is_empty()
    }

    /// Whether the request with that serial number is one of the waiting ones.
    pub(super) fn has(&self, serial: u64) -> bool {
        let compare = |entry: &Entry<T>| {
            crate::cost_counter::count();
            entry.id.serial.cmp(&serial)
        };
        self.requests.binary_search_by(compare).is_ok()
    }
}
