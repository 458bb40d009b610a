//! One priority level of a queue: who is on time, who is late, and who will be late next.
use std::collections::{BTreeSet, VecDeque};

use crate::{Entry, Timestamp};

/// The requests of one priority level.
#[derive(Debug)]
pub(crate) struct PriorityLevel<T> {
    /// On time, oldest first, which is also the order of the serial numbers.
    waiting: VecDeque<QueuedRequest<T>>,
    /// Late, in the order in which they became late.
    delayed: VecDeque<Entry<T>>,
    next_serial: u64,
    /// Deadlines and serial numbers of `waiting`, if requests may shorten theirs. Otherwise `None`, for
    /// then all grant the same time and the oldest request is the first to be late.
    by_deadline: Option<BTreeSet<(Timestamp, u64)>>,
}

#[derive(Debug)]
struct QueuedRequest<T> {
    serial: u64,
    deadline: Option<Timestamp>,
    entry: Entry<T>,
}

impl<T> PriorityLevel<T> {
    pub(crate) fn new(timeouts_differ: bool) -> Self {
        Self {
            waiting: VecDeque::new(),
            delayed: VecDeque::new(),
            next_serial: 0,
            by_deadline: timeouts_differ.then(BTreeSet::new),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.delayed.len()
    }

    /// How many requests are on time: a new one is served after these.
    pub(crate) fn on_time(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a request that is on time. If timeouts do not differ, deadlines must not run backwards.
    pub(crate) fn push(&mut self, entry: Entry<T>, deadline: Option<Timestamp>) {
        let serial = self.next_serial;
        self.next_serial += 1;
        if let (Some(by_deadline), Some(deadline)) = (&mut self.by_deadline, deadline) {
            by_deadline.insert((deadline, serial));
        }
        self.waiting.push_back(QueuedRequest { serial, deadline, entry });
    }

    /// Removes the request that is served next.
    pub(crate) fn pop(&mut self) -> Option<Entry<T>> {
        let Some(first) = self.waiting.pop_front() else { return self.delayed.pop_front() };
        remove_deadline(&mut self.by_deadline, &first);
        Some(first.entry)
    }

    /// When the next request will be late, if ever.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        match &self.by_deadline {
            Some(by_deadline) => by_deadline.first().map(|&(deadline, _)| deadline),
            None => self.waiting.front()?.deadline,
        }
    }

    /// Serves a late request after all that are here.
    pub(crate) fn delay(&mut self, entry: Entry<T>) {
        self.delayed.push_back(entry);
    }

    /// Removes the request with the earliest deadline, if that has passed.
    pub(crate) fn pop_late(&mut self, now: Timestamp) -> Option<Entry<T>> {
        if self.next_deadline()? >= now {
            return None;
        }
        let Some(by_deadline) = &mut self.by_deadline else {
            return self.waiting.pop_front().map(|waiting| waiting.entry);
        };
        let (_, serial) = by_deadline.pop_first()?;
        let index = self.waiting.binary_search_by_key(&serial, |waiting| waiting.serial);
        debug_assert!(index.is_ok(), "a deadline of a request that does not wait");
        // Cheap near either end, and late requests are mostly old ones.
        self.waiting.remove(index.ok()?).map(|waiting| waiting.entry)
    }

    /// Removes every request that `is_cancelled` says nobody waits for, delayed ones too.
    pub(crate) fn sweep(&mut self, is_cancelled: &dyn Fn(&T) -> bool) -> impl Iterator<Item = Entry<T>> {
        let waiting = sweep(&mut self.waiting, |waiting| is_cancelled(&waiting.entry.payload));
        for swept in &waiting {
            remove_deadline(&mut self.by_deadline, swept);
        }
        let delayed = sweep(&mut self.delayed, |entry| is_cancelled(&entry.payload));
        waiting.into_iter().map(|waiting| waiting.entry).chain(delayed)
    }

    /// The request that is served last.
    pub(crate) fn last(&self) -> Option<&Entry<T>> {
        self.delayed.back().or_else(|| Some(&self.waiting.back()?.entry))
    }

    /// Requests in order of service.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        self.waiting.iter().map(|waiting| &waiting.entry).chain(&self.delayed)
    }
}

fn remove_deadline<T>(by_deadline: &mut Option<BTreeSet<(Timestamp, u64)>>, left: &QueuedRequest<T>) {
    if let (Some(by_deadline), Some(deadline)) = (by_deadline, left.deadline) {
        by_deadline.remove(&(deadline, left.serial));
    }
}

/// Removes what is `is_cancelled` from a queue and leaves the rest in its order.
pub(crate) fn sweep<E>(queue: &mut VecDeque<E>, is_cancelled: impl Fn(&E) -> bool) -> Vec<E> {
    let mut swept = Vec::new();
    if !queue.iter().any(&is_cancelled) {
        return swept;
    }
    for _ in 0..queue.len() {
        let Some(first) = queue.pop_front() else { break };
        if is_cancelled(&first) {
            swept.push(first);
        } else {
            queue.push_back(first);
        }
    }
    swept
}
