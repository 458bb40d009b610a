//! The instances of a model that its library can be asked about.
//!
//! Whoever asks holds the model as a request does: an instance is finalized when it has left the roster and what found it
//! there before has come back.
use std::sync::{Arc, Weak};

use inference::Error;
use parking_lot::Mutex;

use super::{ModelInstance, in_use::InUseCount};

/// Those that are initialized and not about to be finalized.
#[derive(Debug, Default)]
pub(super) struct InstanceRegistry {
    entered: Mutex<Vec<Weak<ModelInstance>>>,
}

impl InstanceRegistry {
    /// An instance has been initialized.
    pub(super) fn enter(&self, instance: &Arc<ModelInstance>) {
        self.entered.lock().push(Arc::downgrade(instance));
    }

    /// An instance is about to be finalized, after a wait for all that is held.
    pub(super) fn leave(&self, instance: &Arc<ModelInstance>) {
        let own = Arc::as_ptr(instance);
        self.entered.lock().retain(|entered| entered.as_ptr() != own);
    }

    /// Asks each instance, until there is an error. Blocks as long as the answers take.
    ///
    /// # Errors
    /// The first one.
    pub(super) fn ask(
        &self,
        in_use: &Arc<InUseCount>,
        question: impl Fn(&ModelInstance) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (hold, instances) = {
            let entered = self.entered.lock();
            let instances: Vec<_> = entered.iter().filter_map(Weak::upgrade).collect();
            (in_use.hold(), instances)
        };
        let answer = instances.iter().try_for_each(|instance| question(instance));
        // In this order: nothing of an instance is left here when it is finalized.
        drop(instances);
        drop(hold);
        answer
    }
}
