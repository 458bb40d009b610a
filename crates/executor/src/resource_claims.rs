//! The shared resources that the instances of a model hold, where the server has a rate limiter.
use std::sync::{Arc, Weak};

use config::{InstanceGroup, InstanceKind, ModelConfig};
use inference::backend::InstanceDevice;
use scheduling::{Claimant, InstanceId};
use vocabulary::Error;

use crate::limiter::{GrantListener, Limiter, PendingGrants};

/// The claims of one model's instances; part of its driver. Without a limiter every claim is granted.
#[derive(Default)]
pub(super) struct ResourceClaims {
    limiter: Option<Arc<Limiter>>,
    /// By instance. `None` for one that has been removed.
    claimants: Vec<Option<Claimant>>,
    states: Vec<GrantState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GrantState {
    /// Has no claim.
    Idle,
    /// Has a claim and waits for the grant.
    Queued,
    /// Holds its resources for a batch that runs or will run.
    Granted,
    /// Still holds its resources after a batch has ended.
    Spent,
}

impl ResourceClaims {
    /// Registers the active instances of a configuration, in their order. No instance has a claim yet.
    ///
    /// # Errors
    /// INVALID_ARG for an instance whose claim could never be granted.
    pub(super) fn register(limiter: Option<Arc<Limiter>>, config: &ModelConfig) -> Result<Self, Error> {
        let mut resource_claims = Self::default();
        resource_claims.limiter = limiter;
        for group in config.instance_groups.iter().filter(|group| !group.passive) {
            for _ in 0..group.count.get() {
                let claimant = register_one(resource_claims.limiter.as_ref(), group)?;
                resource_claims.add(resource_claims.claimants.len(), claimant);
            }
        }
        Ok(resource_claims)
    }

    /// Gives an instance its claimant.
    pub(super) fn add(&mut self, instance: InstanceId, claimant: Option<Claimant>) {
        if claimant.is_some() {
            let instances = self.claimants.len().max(instance + 1);
            self.claimants.resize(instances, None);
            self.states.resize(instances, GrantState::Idle);
            self.claimants[instance] = claimant;
            self.states[instance] = GrantState::Idle;
        }
    }

    /// Unregisters an instance, which is idle.
    pub(super) fn remove(&mut self, instance: InstanceId, pending_grants: &mut PendingGrants) {
        if let Some(limiter) = &self.limiter
            && let Some(claimant) = self.claimants[instance].take()
        {
            self.states[instance] = GrantState::Idle;
            pending_grants.join(limiter.unregister(claimant));
        }
    }

    /// The limiter, for claimants that no instance has yet.
    pub(super) fn limiter(&self) -> Option<&Arc<Limiter>> {
        self.limiter.as_ref()
    }

    /// Sets the listener for grants.
    pub(super) fn belongs_to(&self, owner: &Weak<dyn GrantListener>) {
        let Some(limiter) = &self.limiter else { return };
        for (instance, claimant) in self.claimants.iter().enumerate() {
            if let Some(claimant) = *claimant {
                limiter.belongs_to(claimant, owner.clone(), instance);
            }
        }
    }

    /// Whether the driver may offer work to the instance: the instance does not wait for a grant.
    pub(super) fn may_be_offered(&self, instance: InstanceId) -> bool {
        self.states.get(instance) != Some(&GrantState::Queued)
    }

    /// A batch is due for an idle instance. Returns true if it may run now. Otherwise the instance waits for its grant.
    pub(super) fn may_run(&mut self, instance: InstanceId, pending_grants: &mut PendingGrants) -> bool {
        let Some(limiter) = &self.limiter else { return true };
        let Some(claimant) = self.claimants[instance] else { return true };
        let state = &mut self.states[instance];
        if *state != GrantState::Granted {
            let (granted, others) = limiter.claim(claimant, *state == GrantState::Spent);
            pending_grants.join(others);
            *state = if granted { GrantState::Granted } else { GrantState::Queued };
        }
        *state == GrantState::Granted
    }

    /// The instance has finished its batch.
    pub(super) fn has_run(&mut self, instance: InstanceId) {
        if let Some(state) = self.states.get_mut(instance) {
            *state = GrantState::Spent;
        }
    }

    /// The limiter has granted a claim that had to wait.
    pub(super) fn granted(&mut self, instance: InstanceId) {
        if let Some(state) = self.states.get_mut(instance).filter(|state| **state == GrantState::Queued) {
            *state = GrantState::Granted;
        }
    }

    /// Releases the resources of idle instances without work: an idle instance never keeps a grant.
    pub(super) fn give_back(&mut self, idle: &[InstanceId], pending_grants: &mut PendingGrants) {
        let Some(limiter) = &self.limiter else { return };
        for &instance in idle {
            let Some(claimant) = self.claimants[instance] else { continue };
            match self.states[instance] {
                GrantState::Spent => pending_grants.join(limiter.release(claimant)),
                GrantState::Granted => pending_grants.join(limiter.cancel(claimant)),
                GrantState::Idle | GrantState::Queued => continue,
            }
            self.states[instance] = GrantState::Idle;
        }
    }

    /// Cancels the claims of instances that have no more work.
    pub(super) fn withdraw(&mut self, pending_grants: &mut PendingGrants) {
        let Some(limiter) = &self.limiter else { return };
        for (state, claimant) in self.states.iter_mut().zip(&self.claimants) {
            if let Some(claimant) = *claimant
                && *state == GrantState::Queued
            {
                pending_grants.join(limiter.cancel(claimant));
                *state = GrantState::Idle;
            }
        }
    }

    /// The instance has panicked: releases its resources.
    pub(super) fn forfeit(&mut self, instance: InstanceId) -> PendingGrants {
        match (&self.limiter, self.states.get_mut(instance)) {
            (Some(limiter), Some(state)) => {
                *state = GrantState::Idle;
                self.claimants[instance].map(|claimant| limiter.release(claimant)).unwrap_or_default()
            }
            _ => PendingGrants::default(),
        }
    }

    /// Unregisters all instances.
    fn leave(&mut self) -> PendingGrants {
        let mut pending_grants = PendingGrants::default();
        if let Some(limiter) = &self.limiter {
            let claimants = self.claimants.drain(..).flatten();
            claimants.for_each(|claimant| pending_grants.join(limiter.unregister(claimant)));
        }
        self.states.clear();
        self.limiter = None;
        pending_grants
    }
}

/// Registers one instance of a group with the limiter. `None` without a limiter.
///
/// # Errors
/// INVALID_ARG for an instance whose claim could never be granted.
pub(super) fn register_one(
    limiter: Option<&Arc<Limiter>>,
    group: &InstanceGroup,
) -> Result<Option<Claimant>, Error> {
    let device = match group.kind {
        InstanceKind::Cpu => InstanceDevice::Cpu,
        InstanceKind::Model => InstanceDevice::Model,
    };
    limiter.map(|limiter| limiter.register(&group.rate_limiter, device)).transpose()
}

impl Drop for ResourceClaims {
    fn drop(&mut self) {
        self.leave().notify();
    }
}

#[cfg(test)]
mod tests;
