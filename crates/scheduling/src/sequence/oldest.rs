//! The oldest strategy: requests of different sequences make batches as those of the dynamic batcher do.
use super::{config::OldestStrategy, slots::InstanceSlots};
use crate::{
    batch::Row,
    cut::{Cut, CutRule, Front},
    time::Timestamp,
};

/// Where to cut the requests of an instance.
#[derive(Debug)]
pub(super) struct Oldest {
    rule: CutRule,
}

impl Oldest {
    pub(super) fn new(config: OldestStrategy, max_batch_size: u32) -> Self {
        let OldestStrategy { preferred_batch_sizes, max_queue_delay, .. } = config;
        Self { rule: CutRule::new(max_batch_size, preferred_batch_sizes, max_queue_delay) }
    }

    /// A slot has a request that may run. Its turn and its patience begin now, and not when it came: else the
    /// requests of a sequence that come all together would never wait for those of others.
    pub(super) fn became_ready<T>(&self, instance: &mut InstanceSlots<T>, slot: u32, now: Timestamp) {
        let meta = &instance.next_request(slot).meta;
        // Behind one that may not join, it makes no difference; otherwise it is the next one.
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

    /// How many requests a batch could have now, were it not worth waiting.
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

    /// Sends off the first `count` requests.
    pub(super) fn take<T>(instance: &mut InstanceSlots<T>, count: usize) -> Vec<Row<T>> {
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(&ready) = instance.ready.front() else { break };
            rows.push(instance.start(ready.slot));
        }
        rows
    }
}
