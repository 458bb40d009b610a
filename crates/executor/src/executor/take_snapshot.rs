//! Takes the snapshot of an executor: its queue, its instances and its slots.
use std::{sync::Arc, time::Duration};

use config::{InstanceKind, Scheduling};
use host::now;
use inference::{Timestamp, lock::MutexGuard};

use super::{
    super::{
        driver::{Driver, Workload},
        instance_list::InstanceView,
        snapshot::{
            ExecutorSnapshot, InstanceSnapshot, InstanceState, InstancesSnapshot, MEASURED_REQUESTS,
            MOST_BACKLOGGED, MOST_INSTANCES, MOST_SLOTS, QueueSnapshot, SequencesSnapshot, SlotSnapshot,
            shown_id,
        },
    },
    Executor,
};
use crate::limiter::Limiter;

impl Executor {
    /// What the executor does now; of the queue only its length while a plug-in may be forming a batch. Holds the lock of
    /// the driver while numbers and slots are copied.
    pub fn look(&self) -> ExecutorSnapshot {
        let mut instances = self.instances.list();
        let Some(mut driver) = self.driver_at_rest() else {
            let Workload { requests, time, .. } = self.workload();
            let queue = QueueSnapshot { requests, work: time, ..QueueSnapshot::default() };
            return ExecutorSnapshot { queue, instances: instances_snapshot(instances), sequences: None };
        };
        let queue = driver.queue(now());
        let sequences = matches!(self.config.scheduling, Scheduling::Sequence(_)).then(|| driver.slots());
        for instance in &mut instances {
            instance.runs = !driver.instances().is_idle(instance.number);
            instance.awaits_resources = !driver.resource_claims().may_be_offered(instance.number);
        }
        drop(driver);
        let sequences = sequences.map(|sequences| {
            let slots_per_instance = match &self.config.scheduling {
                Scheduling::Sequence(sequence) => sequence.batching.slots_per_instance(),
                Scheduling::Unbatched | Scheduling::Dynamic(_) | Scheduling::Ensemble(_) => 0,
            };
            SequencesSnapshot { slots_per_instance, ..sequences }
        });
        ExecutorSnapshot { queue, instances: instances_snapshot(instances), sequences }
    }

    /// The driver, for a thread that looks at it and must not wait for a plug-in. `None` while a plug-in may be running.
    fn driver_at_rest(&self) -> Option<MutexGuard<'_, Driver>> {
        match &self.batching {
            None => Some(self.driver.lock()),
            Some(_) => self.driver.try_lock(),
        }
    }

    /// How much there is to do. While a plug-in may be running, how much there was before.
    pub fn workload(&self) -> Workload {
        let workload = self.driver_at_rest().map(|mut driver| driver.workload(now()));
        match (&self.batching, workload) {
            (Some(batching), workload) => batching.last_workload(workload),
            (None, Some(workload)) => workload,
            (None, None) => unreachable!("a driver without a plug-in can be looked at"),
        }
    }

    /// The server's rate limiter, if it has one and no plug-in may be forming a batch.
    pub fn limiter(&self) -> Option<Arc<Limiter>> {
        self.driver_at_rest()?.resource_claims().limiter().cloned()
    }
}

impl Driver {
    fn queue(&mut self, at: Timestamp) -> QueueSnapshot {
        let Workload { requests, time, .. } = self.workload(at);
        let scheduler = self.scheduler();
        let (mut measured, mut bytes) = (0, 0);
        for entry in scheduler.waiting().take(MEASURED_REQUESTS) {
            measured += 1;
            bytes += entry.payload.request.reserved_bytes();
        }
        // Of a long queue, the requests behind those count like the mean of them.
        if requests > measured {
            bytes = bytes.checked_div(measured).map_or(0, |mean| mean * requests);
        }
        // The clock of another processor may be behind.
        let waited = |since: Timestamp| if since < at { at - since } else { Duration::ZERO };
        QueueSnapshot { requests, bytes, oldest: scheduler.oldest_arrival().map(waited), work: time }
    }

    fn slots(&self) -> SequencesSnapshot {
        let scheduler = self.scheduler();
        let mut slots = scheduler.slots();
        let shown = slots.by_ref().take(MOST_SLOTS).map(|slot| SlotSnapshot {
            instance: slot.instance,
            slot: slot.slot,
            sequence: slot.sequence.map(shown_id),
            waiting: slot.waiting,
            running: slot.running,
        });
        let shown = shown.collect();
        // One of each sequence may be the next to run, but for those whose slot runs one.
        let next = scheduler.slots().filter(|slot| !slot.running && slot.waiting > 0).count();
        let behind_own = scheduler.queued().saturating_sub(next + scheduler.backlogged());
        let first = scheduler.backlog().take(MOST_BACKLOGGED);
        SequencesSnapshot {
            slots_per_instance: 0,
            slots: shown,
            slots_left_out: slots.count(),
            waited_for_own: scheduler.waited_for_own_sequence(),
            behind_own,
            backlog: scheduler.backlogged(),
            first_backlogged: first.map(|(id, requests)| (shown_id(id), requests)).collect(),
        }
    }
}

/// The instances, as the configuration and the driver describe them.
fn instances_snapshot(each: Vec<InstanceView>) -> InstancesSnapshot {
    let busy = each.iter().filter(|instance| instance.runs).count();
    let (count, left_out) = (each.len(), each.len().saturating_sub(MOST_INSTANCES));
    let each = each.into_iter().take(MOST_INSTANCES).map(|instance| InstanceSnapshot {
        number: instance.number,
        kind: match instance.kind {
            InstanceKind::Cpu => "CPU",
            InstanceKind::Model => "MODEL",
        },
        state: match instance {
            InstanceView { is_leaving: true, .. } => InstanceState::Leaving,
            InstanceView { runs: true, .. } => InstanceState::Busy,
            InstanceView { awaits_resources: true, .. } => InstanceState::AwaitsResources,
            InstanceView { .. } => InstanceState::Idle,
        },
        name: instance.name,
    });
    InstancesSnapshot { count, busy, each: each.collect(), left_out }
}
