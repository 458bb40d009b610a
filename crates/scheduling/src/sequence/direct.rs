//! The direct strategy: slot `n` is row `n` of every batch, and a row without a request is padded.
use std::time::Duration;

use super::{config::DirectStrategy, slots::InstanceSlots};
use crate::{
    batch::{CutReason, Row},
    cut::Cut,
    time::Timestamp,
};

/// Decides when a batch should leave.
#[derive(Debug)]
pub(super) struct DirectCutRule {
    max_delay: Duration,
    /// This number of slots with a request is enough for a batch.
    enough: usize,
    /// All slots of an instance.
    slots: usize,
}

impl DirectCutRule {
    pub(super) fn new(config: DirectStrategy, slots: u32) -> Self {
        let enough = enough(config.minimum_slot_utilization, slots);
        Self { max_delay: config.max_queue_delay, enough, slots: slots as usize }
    }

    /// Records that a slot has a request that may run. The time that the request has already waited counts.
    pub(super) fn became_ready<T>(instance: &mut InstanceSlots<T>, slot: u32) {
        let since = instance.next_request(slot).arrived;
        let earliest = instance.earliest.get().map(|earliest| earliest.min(since));
        instance.push_ready(slot, since);
        instance.earliest.set(earliest);
    }

    /// What to do with the requests of an instance. A request of another shape counts too: it occupies a slot, and
    /// waiting does not change its shape.
    // As Triton: sequence_batch_scheduler.cc, DirectSequenceBatch::BatcherThread.
    pub(super) fn decide<T>(&self, instance: &InstanceSlots<T>, now: Timestamp) -> Cut {
        let ready = instance.ready.len();
        if ready == 0 {
            return Cut::Empty;
        }
        if ready >= self.slots {
            return Cut::Release(ready, CutReason::Full);
        }
        if self.max_delay.is_zero() {
            return Cut::Release(ready, CutReason::IdleInstance);
        }
        if ready >= self.enough {
            return Cut::Release(ready, CutReason::PreferredSize);
        }
        let idle_deadline = earliest(instance) + self.max_delay;
        if idle_deadline <= now { Cut::Release(ready, CutReason::Delay) } else { Cut::Hold(idle_deadline) }
    }

    /// Takes the requests that can share a batch with the first request that became ready. The other requests stay,
    /// and come before it next time. The batch has rows for all slots up to the last request.
    pub(super) fn take<T>(instance: &mut InstanceSlots<T>) -> Vec<Row<T>> {
        let Some(&first) = instance.ready.front() else { return Vec::new() };
        let shape_key = instance.next_request(first.slot).attributes.shape_key;
        let ready: Vec<_> = instance.ready.iter().map(|ready| ready.slot).collect();
        let last = ready.iter().copied().max().unwrap_or(first.slot);
        let mut rows: Vec<_> = (0..=last).map(|_| Row::Padding).collect();
        for slot in ready {
            if instance.next_request(slot).attributes.shape_key == shape_key {
                rows[slot as usize] = instance.start(slot);
            }
        }
        rows
    }
}

fn earliest<T>(instance: &InstanceSlots<T>) -> Timestamp {
    let earliest = instance.earliest.get();
    let earliest = earliest.or_else(|| instance.ready.iter().map(|ready| ready.since).min());
    instance.earliest.set(earliest);
    earliest.unwrap_or_default()
}

/// The smallest number of `slots` that is the fraction `utilization` of them, in Triton's arithmetic.
fn enough(utilization: f32, slots: u32) -> usize {
    let reached = |ready: u32| ready as f32 / slots as f32 >= utilization;
    // Rounding may give a neighbour of the product. An unreachable fraction gives a number above all slots.
    let close = (utilization * slots as f32) as u32;
    (close.saturating_sub(1)..=slots).find(|&ready| reached(ready)).map_or(usize::MAX, |ready| ready as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilization_is_a_number_of_slots() {
        let table = [(0.0, 4, 0), (0.25, 4, 1), (0.5, 4, 2), (0.51, 4, 3), (1.0, 4, 4), (0.1, 10, 1)];
        for (utilization, slots, expected) in table {
            assert_eq!(enough(utilization, slots), expected, "{utilization} of {slots}");
        }
        for slots in 1..200 {
            for ready in 1..=slots {
                assert_eq!(enough(ready as f32 / slots as f32, slots), ready as usize);
            }
        }
    }

    #[test]
    fn a_utilization_out_of_reach_is_never_reached() {
        assert_eq!(enough(1.5, 4), usize::MAX);
        assert_eq!(enough(f32::INFINITY, 4), usize::MAX);
        assert_eq!(enough(f32::NAN, 4), usize::MAX);
    }
}
