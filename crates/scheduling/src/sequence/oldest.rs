//! The oldest strategy: requests of different sequences form batches as in the dynamic batcher.
use super::{config::OldestStrategy, slots::InstanceSlots};
use crate::{
    batch::Row,
    cut::{Cut, CutRule, Front},
    time::Timestamp,
};

/// Decides where to cut the requests of an instance.
#[derive(Debug)]
pub(super) struct Oldest {
    rule: CutRule,
}

impl Oldest {
    pub(super) fn new(config: OldestStrategy, max_batch_size: u32) -> Self {
        let OldestStrategy { preferred_batch_sizes, max_queue_delay, .. } = config;
        Self { rule: CutRule::new(max_batch_size, preferred_batch_sizes, max_queue_delay) }
    }

    /// Records that a slot has a request that may run. Its turn and its queue delay start now, not at its arrival.
    /// Otherwise the requests of a sequence that arrive together would never wait for requests of other sequences.
    pub(super) fn became_ready<T>(&self, instance: &mut InstanceSlots<T>, slot: u32, now: Timestamp) {
        let meta = &instance.next_request(slot).meta;
        // A closed front does not change. An open front takes the new request if that request is the next one.
        let front = instance.front.get().filter(|(front, _)| !front.is_closed());
        let front = front.map(|(front, _)| self.rule.extended(front, meta, now, || true));
        let turn = instance.push_ready(slot, now);
        if let Some(front) = front {
            instance.front.set(Some((front, turn)));
        }
    }

    /// What to do with the requests of an instance.
    pub(super) fn decide<T>(&self, instance: &InstanceSlots<T>, now: Timestamp) -> Cut {
        self.rule.decide(&self.front(instance), now)
    }

    /// The requests that a batch could contain now, if the batcher did not wait.
    pub(super) fn front<T>(&self, instance: &InstanceSlots<T>) -> Front {
        if let Some((front, _)) = instance.front.get() {
            return front;
        }
        let mut front = Front::default();
        let mut last = 0;
        for (turn, ready) in instance.ready.numbered() {
            let meta = &instance.next_request(ready.slot).meta;
            front = self.rule.extended(front, meta, ready.since, || true);
            last = turn;
            if front.is_closed() {
                break;
            }
        }
        instance.front.set(Some((front, last)));
        front
    }

    /// Takes the first `count` requests.
    pub(super) fn take<T>(instance: &mut InstanceSlots<T>, count: usize) -> Vec<Row<T>> {
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(&ready) = instance.ready.front() else { break };
            rows.push(instance.start(ready.slot));
        }
        rows
    }
}
