//! The backlog: sequences that wait for a slot, first come, first served.
use std::collections::{BTreeMap, BTreeSet};

use super::requests::Sequence;
use crate::{request::Entry, time::Timestamp};

/// Sequences without a slot. Each one has at least one request.
#[derive(Debug)]
pub(super) struct Backlog<T> {
    /// Sequences by number. This is the order in which they began.
    waiting: BTreeMap<u64, BackloggedSequence<T>>,
    /// Deadlines and numbers of the sequences that have a deadline.
    deadlines: BTreeSet<(Timestamp, u64)>,
    requests: usize,
}

#[derive(Debug)]
struct BackloggedSequence<T> {
    sequence: Sequence<T>,
    /// The earliest deadline of the requests of the sequence.
    deadline: Option<Timestamp>,
}

impl<T> Backlog<T> {
    pub(super) fn new() -> Self {
        Self { waiting: BTreeMap::new(), deadlines: BTreeSet::new(), requests: 0 }
    }

    /// The number of requests in the backlog.
    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    /// The number of sequences in the backlog.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a sequence. `entry` is its first request.
    pub(super) fn push(&mut self, mut sequence: Sequence<T>, entry: Entry<T>) {
        debug_assert!(sequence.requests.is_empty(), "a sequence comes with its first request");
        let number = sequence.number;
        self.requests += 1;
        let deadline = deadline(&entry);
        self.deadlines.extend(deadline.map(|deadline| (deadline, number)));
        sequence.requests.push_back(entry);
        self.waiting.insert(number, BackloggedSequence { sequence, deadline });
    }

    /// Adds a request to a sequence. This may make the deadline of the sequence earlier.
    pub(super) fn append(&mut self, number: u64, entry: Entry<T>, end: bool) {
        let waiting = self.waiting.get_mut(&number).expect("an open sequence is where its id points to");
        if let Some(deadline) = deadline(&entry)
            && waiting.deadline.is_none_or(|earliest| deadline < earliest)
        {
            if let Some(later) = waiting.deadline.replace(deadline) {
                self.deadlines.remove(&(later, number));
            }
            self.deadlines.insert((deadline, number));
        }
        waiting.sequence.push(entry, end);
        self.requests += 1;
    }

    /// Removes the next sequence.
    pub(super) fn pop(&mut self) -> Option<Sequence<T>> {
        let (number, waiting) = self.waiting.pop_first()?;
        Some(self.left(number, waiting))
    }

    /// The earliest deadline of a sequence, if there is one.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Removes the sequence with the earliest deadline, if that deadline has passed.
    pub(super) fn pop_late(&mut self, now: Timestamp) -> Option<Sequence<T>> {
        let &(_, number) = self.deadlines.first().filter(|&&(deadline, _)| deadline < now)?;
        let waiting = self.waiting.remove(&number)?;
        Some(self.left(number, waiting))
    }

    /// Removes the sequence in which the request with that serial number waits, if it waits in the backlog.
    pub(super) fn remove(&mut self, number: u64, serial: u64) -> Option<Sequence<T>> {
        if !self.waiting.get(&number)?.sequence.has(serial) {
            return None;
        }
        let waiting = self.waiting.remove(&number)?;
        Some(self.left(number, waiting))
    }

    /// Sequences in the order in which they get slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Sequence<T>> {
        self.waiting.values().map(|waiting| &waiting.sequence)
    }

    fn left(&mut self, number: u64, waiting: BackloggedSequence<T>) -> Sequence<T> {
        if let Some(deadline) = waiting.deadline {
            self.deadlines.remove(&(deadline, number));
        }
        self.requests -= waiting.sequence.requests.len();
        waiting.sequence
    }
}

/// The time until which a request may wait in the backlog. A timeout of zero counts as none.
fn deadline<T>(entry: &Entry<T>) -> Option<Timestamp> {
    entry.attributes.timeout.filter(|timeout| !timeout.is_zero()).map(|timeout| entry.arrived + timeout)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        request::{EntryId, SchedulingAttributes},
        sequence_position::SequenceId,
    };

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn request(arrived: u64, timeout: Option<u64>) -> Entry<char> {
        let timeout = timeout.map(Duration::from_millis);
        let id = EntryId { queue: 0, serial: arrived };
        Entry {
            id,
            attributes: SchedulingAttributes { timeout, ..SchedulingAttributes::default() },
            arrived: ms(arrived),
            payload: 'x',
        }
    }

    fn sequence(number: u64) -> Sequence<char> {
        Sequence::new(number, SequenceId::ServerGenerated(number), true)
    }

    fn late(backlog: &mut Backlog<char>, now: Timestamp) -> Vec<SequenceId> {
        std::iter::from_fn(|| backlog.pop_late(now)).map(|sequence| sequence.id).collect()
    }

    #[test]
    fn the_shortest_timeout_of_a_sequence_sets_its_deadline() {
        let mut backlog = Backlog::new();
        backlog.push(sequence(1), request(0, None));
        backlog.push(sequence(2), request(0, Some(50)));
        assert_eq!(backlog.next_deadline(), Some(ms(50)));
        backlog.append(1, request(10, Some(30)), false);
        backlog.append(2, request(10, Some(90)), false);
        backlog.append(2, request(10, Some(0)), false);
        assert_eq!(backlog.next_deadline(), Some(ms(40)));
        assert_eq!(late(&mut backlog, ms(40)), [], "a deadline that is reached is kept");
        assert_eq!(late(&mut backlog, ms(40) + Timestamp::TICK), [SequenceId::ServerGenerated(1)]);
        assert_eq!(backlog.requests(), 3);
        assert_eq!(late(&mut backlog, ms(51)), [SequenceId::ServerGenerated(2)]);
        assert_eq!((backlog.requests(), backlog.next_deadline()), (0, None));
    }

    #[test]
    fn a_sequence_with_a_slot_has_no_deadline() {
        let mut backlog = Backlog::new();
        backlog.push(sequence(1), request(0, Some(5)));
        backlog.push(sequence(2), request(0, None));
        assert_eq!(backlog.pop().map(|sequence| sequence.id), Some(SequenceId::ServerGenerated(1)));
        assert_eq!(backlog.next_deadline(), None);
        assert_eq!(backlog.requests(), 1);
    }
}
