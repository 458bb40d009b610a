//! What the instances of a model hold of the server's shared resources, where there is a rate limiter.
use std::sync::{Arc, Weak};

use inference::{
    Error,
    backend::Device,
    config::{InstanceKind, ModelConfig},
};
use scheduling::{Claimant, InstanceId};

use crate::limiter::{Claims, Limiter, News};

/// The claims of one model's instances; part of its driver. Without a limiter everything is granted.
#[derive(Default)]
pub(super) struct Tenancy {
    limiter: Option<Arc<Limiter>>,
    claimants: Vec<Claimant>,
    states: Vec<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Claims nothing.
    Idle,
    /// Has claimed and waits.
    Queued,
    /// Holds what it needs, for a batch that is to come or runs.
    Granted,
    /// Holds what the batch needed that has just run.
    Spent,
}

impl Tenancy {
    /// Admits the instances of a configuration that will have work, in their order; none has claimed anything.
    ///
    /// # Errors
    /// INVALID_ARG for one that could never run.
    pub(super) fn register(limiter: Option<Arc<Limiter>>, config: &ModelConfig) -> Result<Self, Error> {
        let mut tenancy = Self::default();
        let Some(limiter) = limiter else { return Ok(tenancy) };
        tenancy.limiter = Some(limiter.clone());
        for group in config.instance_groups.iter().filter(|group| !group.passive) {
            let device = match group.kind {
                InstanceKind::Cpu => Device::Cpu,
                InstanceKind::Model => Device::Model,
            };
            for _ in 0..group.count.get() {
                tenancy.claimants.push(limiter.register(&group.rate_limiter, device)?);
                tenancy.states.push(State::Idle);
            }
        }
        Ok(tenancy)
    }

    /// Says who hears of grants.
    pub(super) fn belongs_to(&self, owner: &Weak<dyn Claims>) {
        let Some(limiter) = &self.limiter else { return };
        for (instance, &claimant) in self.claimants.iter().enumerate() {
            limiter.belongs_to(claimant, owner.clone(), instance);
        }
    }

    /// Whether the instance may be offered work: it does not wait for a grant.
    pub(super) fn may_be_offered(&self, instance: InstanceId) -> bool {
        self.states.get(instance) != Some(&State::Queued)
    }

    /// A batch is due for an idle instance: true if it may run now. Otherwise the instance waits for its grant.
    pub(super) fn may_run(&mut self, instance: InstanceId, news: &mut News) -> bool {
        let Some(limiter) = &self.limiter else { return true };
        let state = &mut self.states[instance];
        if *state != State::Granted {
            let (granted, others) = limiter.claim(self.claimants[instance], *state == State::Spent);
            news.join(others);
            *state = if granted { State::Granted } else { State::Queued };
        }
        *state == State::Granted
    }

    /// The instance has run its batch.
    pub(super) fn has_run(&mut self, instance: InstanceId) {
        if let Some(state) = self.states.get_mut(instance) {
            *state = State::Spent;
        }
    }

    /// A claim that had to wait has been granted.
    pub(super) fn granted(&mut self, instance: InstanceId) {
        if let Some(state) = self.states.get_mut(instance).filter(|state| **state == State::Queued) {
            *state = State::Granted;
        }
    }

    /// Gives back what idle instances hold without having work: a grant is never slept on.
    pub(super) fn give_back(&mut self, idle: &[InstanceId], news: &mut News) {
        let Some(limiter) = &self.limiter else { return };
        for &instance in idle {
            let claimant = self.claimants[instance];
            match self.states[instance] {
                State::Spent => news.join(limiter.release(claimant)),
                State::Granted => news.join(limiter.cancel(claimant)),
                State::Idle | State::Queued => continue,
            }
            self.states[instance] = State::Idle;
        }
    }

    /// Takes back the claims of instances for which no work is left.
    pub(super) fn withdraw(&mut self, news: &mut News) {
        let Some(limiter) = &self.limiter else { return };
        for (state, &claimant) in self.states.iter_mut().zip(&self.claimants) {
            if *state == State::Queued {
                news.join(limiter.cancel(claimant));
                *state = State::Idle;
            }
        }
    }

    /// The instance has died: what it held is free again.
    pub(super) fn forfeit(&mut self, instance: InstanceId) -> News {
        match (&self.limiter, self.states.get_mut(instance)) {
            (Some(limiter), Some(state)) => {
                *state = State::Idle;
                limiter.release(self.claimants[instance])
            }
            _ => News::default(),
        }
    }

    /// Forgets all instances.
    fn leave(&mut self) -> News {
        let mut news = News::default();
        if let Some(limiter) = &self.limiter {
            self.claimants.drain(..).for_each(|claimant| news.join(limiter.unregister(claimant)));
        }
        self.states.clear();
        self.limiter = None;
        news
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        self.leave().spread();
    }
}

#[cfg(test)]
mod tests;
