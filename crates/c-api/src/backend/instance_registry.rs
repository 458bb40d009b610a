//! The instances of a model whose library can be asked whether they are ready.
//!
//! A caller that asks counts as a user of the instances, as a request does. An instance is finalized after it has left this
//! registry and after all callers that found it there have finished.
use std::sync::{Arc, Weak};

use inference::lock::Mutex;
use vocabulary::Error;

use super::ModelInstance;

/// The instances that are initialized and not about to be finalized.
#[derive(Debug, Default)]
pub(super) struct InstanceRegistry {
    entered: Mutex<Vec<Weak<ModelInstance>>>,
}

impl InstanceRegistry {
    /// Adds an instance that has been initialized.
    pub(super) fn enter(&self, instance: &Arc<ModelInstance>) {
        self.entered.lock().push(Arc::downgrade(instance));
    }

    /// Removes an instance that is about to be finalized.
    pub(super) fn leave(&self, instance: &Arc<ModelInstance>) {
        let own = Arc::as_ptr(instance);
        self.entered.lock().retain(|entered| entered.as_ptr() != own);
    }

    /// Asks each instance until one returns an error. Blocks until the library has answered.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn ask(&self, question: impl Fn(&ModelInstance) -> Result<(), Error>) -> Result<(), Error> {
        let (holds, instances): (Vec<_>, Vec<_>) = {
            let entered = self.entered.lock();
            let instances = entered.iter().filter_map(Weak::upgrade);
            instances.map(|instance| (instance.hold(), instance)).unzip()
        };
        let answer = instances.iter().try_for_each(|instance| question(instance));
        // The order matters: the registry no longer contains an instance when it is finalized.
        drop(instances);
        drop(holds);
        answer
    }
}
