//! The oldest strategy: requests of different sequences form batches as in the dynamic batcher.
use super::{config::OldestStrategy, slots::InstanceSlots};
use crate::{
    batch::Row,
    cut::{Cut, CutRule, OpenBatch},
    time::Timestamp,
};

/// Decides where to cut the requests of an instance.
#[derive(Debug)]
pub(super) struct OldestCutRule {
    rule: CutRule,
}

impl OldestCutRule {
    pub(super) fn new(config: OldestStrategy, max_batch_size: u32) -> Self {
        let OldestStrategy { preferred_batch_sizes, max_queue_delay, .. } = config;
        Self { rule: CutRule::new(max_batch_size, preferred_batch_sizes, max_queue_delay) }
    }

    /// Records that a slot has a request that may run. Its turn and its queue delay start now, not at its arrival.
    /// Otherwise the requests of a sequence that arrive together would never wait for requests of other sequences.
    pub(super) fn became_ready<T>(&self, instance: &mut InstanceSlots<T>, slot: u32, now: Timestamp) {
        let attributes = &instance.next_request(slot).attributes;
        // A closed batch does not change. Another one takes the new request if that request is the next one.
        let open_batch = instance.open_batch.get().filter(|(open_batch, _)| !open_batch.is_closed());
        let open_batch =
            open_batch.map(|(open_batch, _)| self.rule.extended(open_batch, attributes, now, || true));
        let turn = instance.push_ready(slot, now);
        if let Some(open_batch) = open_batch {
            instance.open_batch.set(Some((open_batch, turn)));
        }
    }

    /// What to do with the requests of an instance.
    pub(super) fn decide<T>(&self, instance: &InstanceSlots<T>, now: Timestamp) -> Cut {
        self.rule.decide(&self.open_batch(instance), now)
    }

    /// The requests that a batch could contain now, if the batcher did not wait.
    pub(super) fn open_batch<T>(&self, instance: &InstanceSlots<T>) -> OpenBatch {
        if let Some((open_batch, _)) = instance.open_batch.get() {
            return open_batch;
        }
        let mut open_batch = OpenBatch::default();
        let mut last = 0;
        for (turn, ready) in instance.ready.numbered() {
            let attributes = &instance.next_request(ready.slot).attributes;
            open_batch = self.rule.extended(open_batch, attributes, ready.since, || true);
            last = turn;
            if open_batch.is_closed() {
                break;
            }
        }
        instance.open_batch.set(Some((open_batch, last)));
        open_batch
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
