//! The scheduler under test, and the plain reference, which must give the same answers.
use std::collections::BTreeMap;

use scheduling::{
    DueBatch, EntryId, InstanceId, Rejected, Row, ScheduledBatch, Scheduler, SchedulingAttributes, Timestamp,
};

use crate::support::{driver::RequestId, reference::Reference};

pub(crate) struct Subject {
    real: Scheduler<RequestId>,
    plain: Option<Reference>,
    /// The requests of the batch that the reference would release now.
    expected: Vec<RequestId>,
    names: BTreeMap<RequestId, EntryId>,
}

impl Subject {
    pub(crate) fn new(real: Scheduler<RequestId>, plain: Option<Reference>) -> Self {
        Self { real, plain, expected: Vec::new(), names: BTreeMap::new() }
    }

    pub(crate) fn enqueue(
        &mut self,
        now: Timestamp,
        attributes: SchedulingAttributes,
        request: RequestId,
    ) -> Result<(), Rejected<RequestId>> {
        let plain = self.plain.as_mut().map(|plain| plain.enqueue(now, attributes.clone(), request));
        let real = self.real.enqueue(now, attributes, request);
        if let Some(plain) = plain {
            assert_eq!(real.as_ref().err().map(|it| it.reason), plain.err(), "enqueue({request})");
        }
        let name = real?;
        assert!(self.names.values().all(|other| *other != name), "{name:?} is given twice");
        self.names.insert(request, name);
        Ok(())
    }

    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<Rejected<RequestId>> {
        let real = self.real.expire(now);
        if let Some(plain) = &mut self.plain {
            let ids: Vec<_> = real.iter().map(|rejected| rejected.payload).collect();
            assert_eq!(ids, plain.expire(now), "expire({now:?})");
        }
        real
    }

    /// A rejected request has no id. A request that has left keeps its id.
    pub(crate) fn cancel(&mut self, request: RequestId) -> Vec<Rejected<RequestId>> {
        let real = self.names.get(&request).map(|&name| self.real.cancel(name)).unwrap_or_default();
        if let Some(plain) = &mut self.plain {
            let ids: Vec<_> = real.iter().map(|rejected| rejected.payload).collect();
            assert_eq!(ids, plain.cancel(request), "cancel({request})");
            assert_eq!(self.real.queued(), plain.queued());
        }
        real
    }

    pub(crate) fn due(&mut self, now: Timestamp, idle: &[InstanceId]) -> Option<DueBatch> {
        let due = self.real.due(now, idle);
        if let Some(plain) = &self.plain {
            self.expected = if idle.is_empty() { Vec::new() } else { plain.due(now) };
            assert_eq!(due.is_some(), !self.expected.is_empty(), "due({now:?})");
        }
        due
    }

    pub(crate) fn take(&mut self, due: DueBatch) -> ScheduledBatch<RequestId> {
        let batch = self.real.take(due);
        if let Some(plain) = &mut self.plain {
            let ids: Vec<_> = requests(&batch).collect();
            assert_eq!(ids, self.expected, "take");
            plain.take(&ids);
        }
        batch
    }

    pub(crate) fn next_wakeup(&mut self, now: Timestamp) -> Option<Timestamp> {
        let wakeup = self.real.next_wakeup(now);
        if let Some(plain) = &self.plain {
            assert_eq!(wakeup, plain.next_wakeup(now), "next_wakeup({now:?})");
        }
        wakeup
    }

    pub(crate) fn drain(&mut self) {
        self.real.drain();
        if let Some(plain) = &mut self.plain {
            plain.drain();
        }
    }

    pub(crate) fn end_queue_delay(&mut self) {
        self.real.end_queue_delay();
        if let Some(plain) = &mut self.plain {
            plain.end_queue_delay();
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.real.queued()
    }
}

/// The requests of a batch.
pub(crate) fn requests(batch: &ScheduledBatch<RequestId>) -> impl Iterator<Item = RequestId> {
    batch.rows.iter().filter_map(|row| match row {
        Row::Request { entry, .. } => Some(entry.payload),
        Row::Padding => None,
    })
}
