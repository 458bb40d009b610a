//! The ensemble as a runner of a model.
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Waker},
};

use futures_util::task::AtomicWaker;
use inference::{
    EntryId, ModelRunner, RunThread, SequenceId, SequencePosition, Timestamp, backend::Execution,
};
use scheduling::SchedulingAttributes;
use vocabulary::Error;

use super::{Ensemble, request::EnsembleRequest};
use crate::ensemble::binding::{MemberBinding, Pins};

impl ModelRunner for Ensemble {
    fn enqueue(
        self: Arc<Self>,
        attributes: SchedulingAttributes,
        execution: Box<Execution>,
        queued: Timestamp,
        thread: RunThread,
    ) -> Result<(), Error> {
        let Execution { request, responder, .. } = *execution;
        responder.timeline().queued(queued, request.tensors());
        let (binding, pins) = match self.pin() {
            Ok(pinned) => pinned,
            Err(error) => {
                responder.timeline().not_queued();
                drop(request);
                responder.fail(error.clone());
                return Err(error);
            }
        };
        let entry = EntryId::of_serial(self.next_entry.fetch_add(1, Relaxed));
        let cancelled = Arc::new(AtomicWaker::new());
        self.open.lock().insert(entry, cancelled.clone());
        if responder.entry_setter().set(entry) {
            // The request looks for a cancellation before it waits.
            cancelled.wake();
        }
        let rows = attributes.batch_size.max(1);
        let begun = EnsembleRequest::new(
            self.clone(),
            (binding, pins),
            (request, rows),
            responder,
            (entry, cancelled),
        );
        match self.admission.admit() {
            Ok(admitted) => {
                let mut running = Box::pin(begun.run(admitted));
                // A thread that must not execute leaves the request to the runtime.
                if thread == RunThread::OnlyOwn
                    || running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
                {
                    self.runtime.spawn(running);
                }
            }
            Err(waiting) => drop(self.runtime.spawn(begun.run_later(waiting))),
        }
        Ok(())
    }

    fn cancel(self: Arc<Self>, entry: EntryId) {
        let waker = self.open.lock().get(&entry).cloned();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The members have their own.
    fn fault(&self) -> Option<&Error> {
        None
    }

    fn ready_here(&self) -> bool {
        true
    }

    /// One of the requests of the sequence is on its way, or a member has the sequence.
    fn has_sequence(&self, id: &SequenceId) -> bool {
        self.turns.lock().has(id) || self.binding().members().any(|member| member.has_sequence(id))
    }

    fn continues(&self, step: &SequencePosition) -> bool {
        step.id.as_ref().is_some_and(|id| self.turns.lock().has(id))
    }

    /// The members count them.
    fn live_sequences(&self) -> usize {
        0
    }

    fn end_queue_delay(self: Arc<Self>) {}

    fn drain(self: Arc<Self>) {}

    fn close(self: Arc<Self>) {}
}

impl Ensemble {
    /// The latest members, all of which stay until the pins are dropped.
    fn pin(&self) -> Result<(Arc<MemberBinding>, Pins), Error> {
        let mut binding = self.binding();
        loop {
            match binding.pin() {
                Ok(pins) => return Ok((binding, pins)),
                Err(error) => {
                    let latest = self.binding();
                    if Arc::ptr_eq(&latest, &binding) {
                        return Err(self.told(&error));
                    }
                    binding = latest;
                }
            }
        }
    }
}
