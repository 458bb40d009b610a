//! A copy of a model with other instances, over the executor of the copy before.
//!
//! If only the instances of a version change, nothing else is built anew: queue, sequences, statistics and the instances
//! that remain stay. The new copy takes the executor over when it comes into service.
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use inference::{Error, config::ResolvedConfig, lock::Mutex};

use super::{Model, ModelCache, Replacement};
use crate::{
    executor::{ExecutorUpdateParts, PreparedUpdate},
    fingerprint::Fingerprint,
    host_policy::Placed,
    in_flight::InFlight,
};

/// Which copy an executor belongs to, if several copies use it.
#[derive(Default)]
pub(super) struct Handover {
    /// Another copy closes the executor.
    is_foreign: AtomicBool,
    /// The instances of this copy, before it comes into service.
    update: Mutex<Option<PreparedUpdate>>,
    /// The requests of the copies that had the executor before and may not have ended.
    earlier: Vec<Arc<InFlight>>,
}

/// What differs between two copies that use the same executor.
pub(crate) struct UpdateParts {
    pub(crate) config: ResolvedConfig,
    /// The model's directory.
    pub(crate) directory: PathBuf,
    pub(crate) instances: Vec<Placed>,
    pub(crate) cached: Option<Arc<ModelCache>>,
    pub(crate) fingerprint: Option<Fingerprint>,
}

impl Model {
    /// A copy with other instances. Builds those that are missing; this copy goes on as it is. Blocks.
    ///
    /// # Errors
    /// The first error of an instance.
    pub(crate) fn with_instances(&self, parts: UpdateParts) -> Result<Arc<Self>, Error> {
        let UpdateParts { config: ResolvedConfig { typed, shown, .. }, directory, instances, .. } = parts;
        let UpdateParts { cached, fingerprint, .. } = parts;
        let config = Arc::new(typed);
        let executor = self.work.executor().ok_or_else(|| Error::internal("an ensemble has no instances"))?;
        let update =
            executor.prepare(ExecutorUpdateParts { config: config.clone(), directory, instances })?;
        let earlier = self.handover.earlier.iter().filter(|in_flight| !in_flight.have_ended()).cloned();
        let handover = Handover {
            is_foreign: AtomicBool::new(true),
            update: Mutex::new(Some(update)),
            earlier: earlier.chain([self.in_flight.clone()]).collect(),
        };
        Ok(Arc::new(Self {
            namespace: self.namespace.clone(),
            version: self.version,
            config,
            shown,
            validator: self.validator.clone(),
            record: self.record.clone(),
            in_flight: Arc::default(),
            orders: self.orders.clone(),
            cached,
            fingerprint,
            inflight: self.inflight.clone(),
            unread: self.unread.clone(),
            work: self.work.clone(),
            load_duration: self.load_duration,
            replacement: Replacement::new(self.replacement.inferer()),
            handover,
            ensemble_origin: None,
        }))
    }

    /// If this copy was made from `old`, which it replaces now, it takes the executor over, and the instances change.
    /// Returns whether it was.
    pub(crate) fn take_over(&self, old: &Self) -> bool {
        let (Some(executor), Some(earlier)) = (self.work.executor(), old.work.executor()) else {
            return false;
        };
        if !Arc::ptr_eq(executor, earlier) {
            return false;
        }
        // Not in the condition of the `if`, which would hold the lock to its end.
        let update = self.handover.update.lock().take();
        if let Some(update) = update {
            self.replacement.follow_as(&old.replacement);
            old.handover.is_foreign.store(true, SeqCst);
            self.handover.is_foreign.store(false, SeqCst);
            executor.update(update, &self.shown);
        }
        true
    }

    pub(super) fn owns_executor(&self) -> bool {
        !self.handover.is_foreign.load(SeqCst)
    }

    /// The copy does not come into service: its instances end. Blocks.
    pub(super) fn discard_update(&self) {
        let update = self.handover.update.lock().take();
        drop(update);
    }

    /// Returns when the last request of the copies has ended that had the executor before.
    pub(super) async fn earlier_requests_ended(&self) {
        for in_flight in &self.handover.earlier {
            in_flight.close();
            in_flight.last_ended().await;
        }
    }

    /// As [`earlier_requests_ended`](Self::earlier_requests_ended). Blocks.
    pub(super) fn wait_for_earlier_requests(&self) {
        for in_flight in &self.handover.earlier {
            in_flight.close();
            in_flight.wait_for_the_last();
        }
    }
}
