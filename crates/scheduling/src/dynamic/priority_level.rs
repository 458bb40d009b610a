//! One priority level of a queue: its requests that are on time, its late requests, and the deadlines.
use std::collections::{BTreeSet, HashMap};

use super::service_key::ServiceKey;
use crate::{request::Entry, serial_queue::SerialQueue, time::Timestamp};

/// The requests of one priority level.
#[derive(Debug)]
pub(super) struct PriorityLevel<T> {
    number: u64,
    /// Requests on time, oldest first. This is also the order of the serial numbers.
    waiting: SerialQueue<Waiting<T>>,
    /// Late requests, in the order in which they became late.
    delayed: SerialQueue<Entry<T>>,
    /// Maps the serial number of each late request to its number in `delayed`.
    delayed_numbers: HashMap<u64, u64>,
    next_delayed: u64,
    /// Deadlines and serial numbers of `waiting`. `None` as long as no request has had an earlier deadline than the one
    /// before it: then the oldest request is the first that becomes late.
    by_deadline: Option<BTreeSet<(Timestamp, u64)>>,
}

#[derive(Debug)]
struct Waiting<T> {
    deadline: Option<Timestamp>,
    entry: Entry<T>,
}

impl<T> PriorityLevel<T> {
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            waiting: SerialQueue::new(),
            delayed: SerialQueue::new(),
            delayed_numbers: HashMap::new(),
            next_delayed: 0,
            by_deadline: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.delayed.len()
    }

    /// Adds a request that is on time. Either all requests of a level have a deadline, or none has.
    pub(super) fn push(&mut self, entry: Entry<T>, deadline: Option<Timestamp>) {
        let serial = entry.id.serial;
        if let Some(deadline) = deadline {
            self.sort_deadline(deadline, serial);
        }
        self.waiting.push(serial, Waiting { deadline, entry });
    }

    /// Adds the deadline of a request that comes, if the deadlines are sorted or must be from now on.
    fn sort_deadline(&mut self, deadline: Timestamp, serial: u64) {
        let last = self.waiting.back().and_then(|last| last.deadline);
        if last.is_none() {
            self.by_deadline = None;
        } else if self.by_deadline.is_none() && Some(deadline) < last {
            let waiting = self.waiting.numbered();
            let by_deadline = waiting.filter_map(|(serial, waiting)| Some((waiting.deadline?, serial)));
            self.by_deadline = Some(by_deadline.collect());
        }
        if let Some(by_deadline) = &mut self.by_deadline {
            by_deadline.insert((deadline, serial));
        }
    }

    /// Removes the next request in the order of service.
    pub(super) fn pop(&mut self) -> Option<Entry<T>> {
        if let Some(first) = self.waiting.pop() {
            remove_deadline(&mut self.by_deadline, &first);
            return Some(first.entry);
        }
        let first = self.delayed.pop()?;
        self.delayed_numbers.remove(&first.id.serial);
        Some(first)
    }

    /// Removes the request with that serial number, delayed or not, and returns the key that it had.
    pub(super) fn remove(&mut self, serial: u64) -> Option<(ServiceKey, Entry<T>)> {
        if let Some(waiting) = self.waiting.remove(serial) {
            remove_deadline(&mut self.by_deadline, &waiting);
            return Some((ServiceKey::on_time(self.number, serial), waiting.entry));
        }
        let number = self.delayed_numbers.remove(&serial)?;
        Some((ServiceKey::late(self.number, number), self.delayed.remove(number)?))
    }

    /// The earliest deadline, if there is one.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        match &self.by_deadline {
            Some(by_deadline) => by_deadline.first().map(|&(deadline, _)| deadline),
            None => self.waiting.front()?.deadline,
        }
    }

    /// Serves a late request after all requests that are in this level now.
    pub(super) fn delay(&mut self, entry: Entry<T>) {
        let number = self.next_delayed;
        self.next_delayed += 1;
        self.delayed_numbers.insert(entry.id.serial, number);
        self.delayed.push(number, entry);
    }

    /// Removes the request with the earliest deadline, if that deadline has passed.
    pub(super) fn pop_late(&mut self, now: Timestamp) -> Option<Entry<T>> {
        if self.next_deadline()? >= now {
            return None;
        }
        let Some(by_deadline) = &mut self.by_deadline else {
            return self.waiting.pop().map(|waiting| waiting.entry);
        };
        let (_, serial) = by_deadline.pop_first()?;
        let late = self.waiting.remove(serial);
        debug_assert!(late.is_some(), "a deadline of a request that does not wait");
        late.map(|waiting| waiting.entry)
    }

    /// Removes all requests, in order of service.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Entry<T>> + use<T> {
        self.delayed_numbers.clear();
        if let Some(by_deadline) = &mut self.by_deadline {
            by_deadline.clear();
        }
        let waiting = self.waiting.take_all().map(|waiting| waiting.entry);
        waiting.chain(self.delayed.take_all())
    }

    /// When the oldest of the first request on time and the first late request arrived.
    pub(super) fn oldest_arrival(&self) -> Option<Timestamp> {
        let on_time = self.waiting.front().map(|waiting| waiting.entry.arrived);
        on_time.into_iter().chain(self.delayed.front().map(|entry| entry.arrived)).min()
    }

    /// The request that is served last.
    pub(super) fn last(&self) -> Option<&Entry<T>> {
        self.delayed.back().or_else(|| Some(&self.waiting.back()?.entry))
    }

    /// Requests in order of service.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ServiceKey, &Entry<T>)> {
        let waiting = self.waiting.numbered();
        let waiting =
            waiting.map(|(serial, waiting)| (ServiceKey::on_time(self.number, serial), &waiting.entry));
        let delayed = self.delayed.numbered();
        waiting.chain(delayed.map(|(number, entry)| (ServiceKey::late(self.number, number), entry)))
    }
}

fn remove_deadline<T>(by_deadline: &mut Option<BTreeSet<(Timestamp, u64)>>, left: &Waiting<T>) {
    if let (Some(by_deadline), Some(deadline)) = (by_deadline, left.deadline) {
        by_deadline.remove(&(deadline, left.entry.id.serial));
    }
}
