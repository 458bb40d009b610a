//! The shared resources that the instances of a model hold, where the server has a rate limiter.
use std::sync::{Arc, Weak};

use inference::{
    Error,
    backend::Device,
    config::{InstanceKind, ModelConfig},
};
use scheduling::{Claimant, InstanceId};

use crate::limiter::{GrantListener, Limiter, PendingGrants};

/// The claims of one model's instances; part of its driver. Without a limiter every claim is granted.
#[derive(Default)]
pub(super) struct ResourceClaims {
    limiter: Option<Arc<Limiter>>,
    claimants: Vec<Claimant>,
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
        let Some(limiter) = limiter else { return Ok(resource_claims) };
        resource_claims.limiter = Some(limiter.clone());
        for group in config.instance_groups.iter().filter(|group| !group.passive) {
            let device = match group.kind {
                InstanceKind::Cpu => Device::Cpu,
                InstanceKind::Model => Device::Model,
            };
            for _ in 0..group.count.get() {
                resource_claims.claimants.push(limiter.register(&group.rate_limiter, device)?);
                resource_claims.states.push(GrantState::Idle);
            }
        }
        Ok(resource_claims)
    }

    /// Sets the listener for grants.
    pub(super) fn belongs_to(&self, owner: &Weak<dyn GrantListener>) {
        let Some(limiter) = &self.limiter else { return };
        for (instance, &claimant) in self.claimants.iter().enumerate() {
            limiter.belongs_to(claimant, owner.clone(), instance);
        }
    }

    /// Whether the driver may offer work to the instance: the instance does not wait for a grant.
    pub(super) fn may_be_offered(&self, instance: InstanceId) -> bool {
        self.states.get(instance) != Some(&GrantState::Queued)
    }

    /// A batch is due for an idle instance. Returns true if it may run now. Otherwise the instance waits for its grant.
    pub(super) fn may_run(&mut self, instance: InstanceId, pending_grants: &mut PendingGrants) -> bool {
        let Some(limiter) = &self.limiter else { return true };
        let state = &mut self.states[instance];
        if *state != GrantState::Granted {
            let (granted, others) = limiter.claim(self.claimants[instance], *state == GrantState::Spent);
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
            let claimant = self.claimants[instance];
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
        for (state, &claimant) in self.states.iter_mut().zip(&self.claimants) {
            if *state == GrantState::Queued {
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
                limiter.release(self.claimants[instance])
            }
            _ => PendingGrants::default(),
        }
    }

    /// Unregisters all instances.
    fn leave(&mut self) -> PendingGrants {
        let mut pending_grants = PendingGrants::default();
        if let Some(limiter) = &self.limiter {
            self.claimants.drain(..).for_each(|claimant| pending_grants.join(limiter.unregister(claimant)));
        }
        self.states.clear();
        self.limiter = None;
        pending_grants
    }
}

impl Drop for ResourceClaims {
    fn drop(&mut self) {
        self.leave().notify();
    }
}

#[cfg(test)]
mod tests;
