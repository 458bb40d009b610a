//! The order of service, by one of the two strategies.
use super::{
    config::{SequenceBatching, SequenceStrategy},
    direct::DirectCutRule,
    oldest::OldestCutRule,
    slots::InstanceSlots,
};
use crate::{
    batch::{CutReason, Row},
    cut::Cut,
    time::Timestamp,
};

/// The strategy of a batcher.
#[derive(Debug)]
pub(super) enum StrategyState {
    Direct(DirectCutRule),
    Oldest(OldestCutRule),
}

impl StrategyState {
    pub(super) fn new(config: &SequenceBatching) -> Self {
        match config.strategy.clone() {
            SequenceStrategy::Direct(direct) => {
                Self::Direct(DirectCutRule::new(direct, config.slots_per_instance()))
            }
            SequenceStrategy::Oldest(oldest) => {
                Self::Oldest(OldestCutRule::new(oldest, config.max_batch_size))
            }
        }
    }

    /// Records that a slot has a request that may run.
    pub(super) fn became_ready<T>(&self, instance: &mut InstanceSlots<T>, slot: u32, now: Timestamp) {
        match self {
            Self::Direct(_) => DirectCutRule::became_ready(instance, slot),
            Self::Oldest(oldest) => oldest.became_ready(instance, slot, now),
        }
    }

    /// What to do with the requests of an instance. If `delay_ended`, they do not wait for further requests.
    pub(super) fn decide<T>(&self, instance: &InstanceSlots<T>, now: Timestamp, delay_ended: bool) -> Cut {
        let cut = match self {
            Self::Direct(direct) => direct.decide(instance, now),
            Self::Oldest(oldest) => oldest.decide(instance, now),
        };
        match (cut, self) {
            (Cut::Hold(_), service) if delay_ended => {
                let requests = match service {
                    Self::Direct(_) => instance.ready.len(),
                    Self::Oldest(oldest) => oldest.open_batch(instance).requests(),
                };
                Cut::Release(requests, CutReason::Drain)
            }
            (cut, _) => cut,
        }
    }

    /// Takes the batch that `decide` has found.
    pub(super) fn take<T>(&self, instance: &mut InstanceSlots<T>, requests: usize) -> Vec<Row<T>> {
        match self {
            Self::Direct(_) => DirectCutRule::take(instance),
            Self::Oldest(_) => OldestCutRule::take(instance, requests),
        }
    }
}
