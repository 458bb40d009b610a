//! The order of service, by one of the two strategies.
use super::{
    config::{SequenceBatching, Strategy},
    direct::Direct,
    oldest::Oldest,
    slots::InstanceSlots,
};
use crate::{
    batch::{BatchEnd, Row},
    cut::Cut,
    time::Timestamp,
};

/// The strategy of a batcher.
#[derive(Debug)]
pub(super) enum StrategyState {
    Direct(Direct),
    Oldest(Oldest),
}

impl StrategyState {
    pub(super) fn new(config: &SequenceBatching) -> Self {
        match config.strategy.clone() {
            Strategy::Direct(direct) => Self::Direct(Direct::new(direct, config.slots_per_instance())),
            Strategy::Oldest(oldest) => Self::Oldest(Oldest::new(oldest, config.max_batch_size)),
        }
    }

    /// Records that a slot has a request that may run.
    pub(super) fn became_ready<T>(&self, instance: &mut InstanceSlots<T>, slot: u32, now: Timestamp) {
        match self {
            Self::Direct(_) => Direct::became_ready(instance, slot),
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
                    Self::Oldest(oldest) => oldest.front(instance).requests(),
                };
                Cut::Release(requests, BatchEnd::Drain)
            }
            (cut, _) => cut,
        }
    }

    /// Takes the batch that `decide` has found.
    pub(super) fn take<T>(&self, instance: &mut InstanceSlots<T>, requests: usize) -> Vec<Row<T>> {
        match self {
            Self::Direct(_) => Direct::take(instance),
            Self::Oldest(_) => Oldest::take(instance, requests),
        }
    }
}
