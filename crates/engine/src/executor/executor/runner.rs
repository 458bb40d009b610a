//! The executor as a runner of a model.
use std::sync::Arc;

use inference::{
    CallerThread, EntryId, Error, ModelRunner, SequenceId, SequenceStep, Timestamp, backend::Execution,
};
use scheduling::Meta;

use super::Executor;

impl ModelRunner for Executor {
    fn enqueue(
        self: Arc<Self>,
        meta: Meta,
        execution: Box<Execution>,
        queued: Timestamp,
        thread: CallerThread,
    ) -> Result<(), Error> {
        Self::enqueue(&self, meta, execution, queued, thread)
    }

    fn cancel(self: Arc<Self>, entry: EntryId) {
        Self::cancel(&self, entry);
    }

    fn fault(&self) -> Option<&Error> {
        self.fault()
    }

    fn ready_here(&self) -> bool {
        self.ready_here()
    }

    fn has_sequence(&self, id: &SequenceId) -> bool {
        self.has_sequence(id)
    }

    fn continues(&self, step: &SequenceStep) -> bool {
        !step.start && step.id.as_ref().is_some_and(|id| self.has_sequence(id))
    }

    fn live_sequences(&self) -> usize {
        self.live_sequences()
    }

    fn end_queue_delay(self: Arc<Self>) {
        Self::end_queue_delay(&self);
    }

    fn drain(self: Arc<Self>) {
        Self::drain(&self);
    }

    fn close(self: Arc<Self>) {
        Self::drain(&self);
        Self::close(&self);
    }
}
