//! Performs what an event asks for, outside of the lock of the driver.
use std::sync::{Arc, Weak};

use host::TimerTarget;
use inference::backend::Execution;
use scheduling::{Rejected, SequenceRestarted};

use super::{
    super::{driver::Actions, instance::WorkerMessage},
    Executor,
};
use crate::limiter::PendingGrants;

impl Executor {
    /// Performs the actions, except for the grants to instances, which may belong to other models: the caller notifies
    /// their listeners.
    pub(super) fn perform(self: &Arc<Self>, actions: Actions) -> PendingGrants {
        self.sequences.iter().for_each(|sequences| sequences.free_states(&actions.vacated));
        self.refuse(actions.rejected);
        for SequenceRestarted(id) in actions.restarts {
            log::warn!(
                "sequence {id} for model '{}' has a conflict. The previous sequence did not end before this sequence start. \
                 Previous sequence will be terminated early.",
                self.config.name
            );
        }
        if actions.sequences_have_ended {
            self.without_sequences.notify_waiters();
        }
        if let Some(at) = actions.scheduled_wakeup {
            self.threads.clock.wake_at(at, Arc::downgrade(self) as Weak<dyn TimerTarget>);
        }
        for (instance, movable) in actions.departed {
            self.instances.put(instance, WorkerMessage::Shutdown(movable));
        }
        for assignment in actions.assignments {
            self.instances.put(assignment.batch.instance, WorkerMessage::Work(assignment));
        }
        actions.pending_grants
    }

    /// Answers requests that no instance will run.
    pub(super) fn refuse(&self, rejected: Vec<Rejected<Box<Execution>>>) {
        for Rejected { payload, reason } in rejected {
            let error = self
                .fault
                .get()
                .cloned()
                .unwrap_or_else(|| self.rejection_errors.error(reason, &payload.request));
            payload.fail(error);
        }
    }
}
