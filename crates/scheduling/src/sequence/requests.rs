//! One sequence: who it is, and its requests that wait.
use std::collections::VecDeque;

use crate::{request::Entry, step::SequenceId, time::Timestamp};

/// A run of requests that share a correlation id.
#[derive(Debug)]
pub(super) struct Sequence<T> {
    /// Rises from sequence to sequence of a batcher, and is never used again.
    pub(super) number: u64,
    pub(super) id: SequenceId,
    /// Whether more requests may join.
    pub(super) open: bool,
    /// By serial number.
    pub(super) requests: VecDeque<Entry<T>>,
    /// When it will have been silent for too long, if it has a slot and nothing to do.
    pub(super) idle_deadline: Option<Timestamp>,
}

impl<T> Sequence<T> {
    pub(super) fn new(number: u64, id: SequenceId, open: bool) -> Self {
        // Most sequences never have two requests waiting.
        Self { number, id, open, requests: VecDeque::with_capacity(1), idle_deadline: None }
    }

    pub(super) fn push(&mut self, entry: Entry<T>, end: bool) {
        debug_assert!(self.open, "sequence {} is closed", self.id);
        self.open = !end;
        self.requests.push_back(entry);
    }

    pub(super) fn is_finished(&self) -> bool {
        !self.open && self.requests.is_empty()
    }

    /// Whether the request of that serial number is one of those that wait.
    pub(super) fn has(&self, serial: u64) -> bool {
        let compare = |entry: &Entry<T>| {
            crate::steps::count();
            entry.id.serial.cmp(&serial)
        };
        self.requests.binary_search_by(compare).is_ok()
    }
}
