//! The rate limiter, the only state that models share. It consists of arithmetic behind one leaf lock, and of the
//! notification of models whose claims were granted because of another model's action.
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
};

use config::{RateLimits, ResourceNeed};
use inference::lock::Mutex;
use scheduling::{
    Capacities, Claim, Claimant, Grants, InstanceDevice, InstanceId, Need, RateLimiter, Resources, Shortage,
};
use vocabulary::Error;

use crate::snapshot::ResourceSnapshot;

/// Claims resources for instances.
pub(crate) trait GrantListener: Send + Sync {
    /// The limiter has granted a claim of that instance, which had to wait. Must not block. Must not notify listeners
    /// of grants that follow from this one: returns those grants instead.
    fn granted(self: Arc<Self>, instance: InstanceId) -> PendingGrants;
}

/// Grants whose listeners must be notified, after all locks are released.
#[must_use = "whoever was granted something waits to be told"]
#[derive(Default)]
pub(crate) struct PendingGrants(Vec<(Arc<dyn GrantListener>, InstanceId)>);

impl PendingGrants {
    /// Notifies the listeners, and the listeners of the grants that follow, one after the other. The stack does not
    /// grow, however many models wait for each other.
    pub(crate) fn notify(self) {
        let mut untold = VecDeque::from(self.0);
        while let Some((owner, instance)) = untold.pop_front() {
            untold.extend(owner.granted(instance).0);
        }
    }

    /// Adds the grants of another call.
    pub(crate) fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// The server's limiter (`--rate-limit=execution_count`).
pub struct Limiter {
    state: Mutex<LimiterState>,
}

struct LimiterState {
    policy: RateLimiter,
    owners: BTreeMap<Claimant, (Weak<dyn GrantListener>, InstanceId)>,
}

impl Limiter {
    /// A limiter with these capacities of resources.
    pub fn new(capacities: Capacities) -> Self {
        Self {
            state: Mutex::new(LimiterState { policy: RateLimiter::new(capacities), owners: BTreeMap::new() }),
        }
    }

    /// Registers an instance on that device.
    ///
    /// # Errors
    /// INVALID_ARG: the claim of the instance could never be granted, or it declares a resource global that is not.
    pub(crate) fn register(&self, limits: &RateLimits, device: InstanceDevice) -> Result<Claimant, Error> {
        let need = |need: &ResourceNeed| Need {
            name: need.name.to_string(),
            global: need.global,
            count: need.count,
        };
        let needs = Resources { needs: limits.resources.iter().map(need).collect(), device };
        let (claimant, pending_grants) = {
            let mut state = self.state.lock();
            let (claimant, grants) = state.policy.register(&needs, limits.priority).map_err(refusal)?;
            (claimant, state.pending_grants(grants))
        };
        pending_grants.notify();
        Ok(claimant)
    }

    /// Sets `owner` as the listener for grants to this claimant.
    pub(crate) fn belongs_to(
        &self,
        claimant: Claimant,
        owner: Weak<dyn GrantListener>,
        instance: InstanceId,
    ) {
        self.state.lock().owners.insert(claimant, (owner, instance));
    }

    /// Unregisters an instance.
    pub(crate) fn unregister(&self, claimant: Claimant) -> PendingGrants {
        self.change(|state| {
            state.owners.remove(&claimant);
            state.policy.unregister(claimant)
        })
    }

    /// Claims what the instance needs. Returns true if the claim is granted at once. `renewed` means that the instance
    /// has just run a batch.
    pub(crate) fn claim(&self, claimant: Claimant, renewed: bool) -> (bool, PendingGrants) {
        let mut state = self.state.lock();
        let (claim, grants) = match renewed {
            true => state.policy.renew(claimant),
            false => (state.policy.claim(claimant), Grants::default()),
        };
        (claim == Claim::Granted, state.pending_grants(grants))
    }

    /// Releases the resources of an instance that has run a batch and has no next one.
    pub(crate) fn release(&self, claimant: Claimant) -> PendingGrants {
        self.change(|state| state.policy.release(claimant))
    }

    /// Cancels a claim that is not needed any more.
    pub(crate) fn cancel(&self, claimant: Claimant) -> PendingGrants {
        self.change(|state| state.policy.cancel(claimant))
    }

    /// The resources, and the number of instances that wait for some.
    pub fn usage(&self) -> (Vec<ResourceSnapshot>, usize) {
        let state = self.state.lock();
        let resources = state.policy.resources().map(|resource| ResourceSnapshot {
            name: resource.name.to_owned(),
            is_global: resource.device.is_none(),
            capacity: resource.capacity,
            used: resource.used,
        });
        (resources.collect(), state.policy.queued())
    }

    fn change(&self, change: impl FnOnce(&mut LimiterState) -> Grants) -> PendingGrants {
        let mut state = self.state.lock();
        let grants = change(&mut state);
        state.pending_grants(grants)
    }
}

impl LimiterState {
    fn pending_grants(&self, grants: Grants) -> PendingGrants {
        let owner = |claimant| {
            let (owner, instance) = self.owners.get(&claimant)?;
            Some((owner.upgrade()?, *instance))
        };
        PendingGrants(grants.into_iter().filter_map(owner).collect())
    }
}

fn refusal(shortage: Shortage) -> Error {
    Error::invalid(match shortage {
        Shortage::Limited { resource, limit, required } => format!(
            "Resource count for \"{resource}\" is limited to {limit} which will prevent scheduling of one or more model \
             instances, the minimum required count is {required}"
        ),
        Shortage::Conflict { resource } => format!(
            "Resource \"{resource}\" is present as both global and device-specific resource in the model configuration."
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    /// A listener whose every grant leads to the next one.
    struct Chain {
        told: AtomicUsize,
        last: InstanceId,
    }

    impl GrantListener for Chain {
        fn granted(self: Arc<Self>, instance: InstanceId) -> PendingGrants {
            assert_eq!(self.told.fetch_add(1, Relaxed), instance, "they are told in order, and once");
            if instance == self.last {
                PendingGrants::default()
            } else {
                PendingGrants(vec![(self, instance + 1)])
            }
        }
    }

    #[test]
    fn a_long_chain_of_grants_does_not_grow_the_stack() {
        let chain = Arc::new(Chain { told: AtomicUsize::new(0), last: 1_000_000 });
        PendingGrants(vec![(chain.clone(), 0)]).notify();
        assert_eq!(chain.told.load(Relaxed), 1_000_001);
    }
}
