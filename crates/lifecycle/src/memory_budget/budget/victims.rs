//! Which models are unloaded for others.
use std::collections::BTreeSet;

use scheduling::Timestamp;
use vocabulary::Name;

use super::{MemoryBudget, admission::Decision};
use crate::memory_budget::{budgeted_model::Residence, terms::ModelUse};

/// Models that may be unloaded, users before what they use.
pub(super) struct Victims {
    pub(super) models: Vec<Name>,
    /// What they give back.
    pub(super) bytes: u64,
}

impl MemoryBudget {
    /// The least worthy models that together have `wanted` bytes, or all that may be unloaded: idle, neither pinned nor of
    /// a priority above `priority`, not among `spared`, and not called by a model that must stay.
    pub(super) fn victims(
        &mut self,
        wanted: u64,
        priority: u32,
        spared: &BTreeSet<Name>,
        decision: &Decision<'_>,
    ) -> Victims {
        let &Decision { use_of, now, .. } = decision;
        let mut victims = Victims { models: Vec::new(), bytes: 0 };
        let mut passed = Vec::new();
        while victims.bytes < wanted
            && let Some(key) = self.order.pop_first()
        {
            #[cfg(test)]
            {
                self.steps += 1;
            }
            if key.0 > priority {
                passed.push(key);
                break;
            }
            let name = &key.2;
            let usage = use_of(name);
            if self.is_worth_more(name, usage.requests, now) {
                continue;
            }
            let users = self.users_to_unload(name, priority, spared, use_of);
            match users {
                Some(users) if !usage.is_busy && !spared.contains(name) => {
                    let new = users.into_iter().filter(|user| !victims.models.contains(user));
                    let new: Vec<_> = new.collect();
                    victims.models.extend(new);
                    victims.models.push(name.clone());
                    victims.bytes += self.bytes_in(name);
                }
                _ => {}
            }
            passed.push(key);
        }
        // Those that are unloaded leave the order then.
        self.order.extend(passed);
        victims
    }

    /// If the model was used since its worth was computed, it gets another one.
    fn is_worth_more(&mut self, name: &Name, requests: u64, now: Timestamp) -> bool {
        let weight = self.clock.weight(now);
        let Some(model) = self.models.get_mut(name) else { return true };
        let Residence::In { seen, .. } = model.residence else { return true };
        if requests <= seen {
            return false;
        }
        model.used(requests, weight, &self.repeated_loads);
        self.enter_order(name);
        true
    }

    /// The models in memory that call this one and would go with it. `None` if one of them must stay.
    fn users_to_unload(
        &self,
        name: &Name,
        priority: u32,
        spared: &BTreeSet<Name>,
        use_of: &dyn Fn(&Name) -> ModelUse,
    ) -> Option<Vec<Name>> {
        let model = self.models.get(name)?;
        let may_go = |user: &&Name| {
            let Some(model) = self.models.get(*user) else { return true };
            let is_in = matches!(model.residence, Residence::In { .. });
            is_in
                && !model.needs.is_pinned
                && model.needs.priority <= priority
                && !spared.contains(*user)
                && !use_of(user).is_busy
        };
        model.holders.iter().all(|user| may_go(&user)).then(|| model.holders.iter().cloned().collect())
    }

    /// The bytes of models that stay, whatever others need: they are pinned, or have a priority above `priority`, or are
    /// called by such models. Those of `beside` are left out.
    pub(super) fn fixed_bytes(&self, priority: u32, beside: &BTreeSet<Name>) -> u64 {
        let stays = |name: &Name| {
            self.models
                .get(name)
                .is_some_and(|model| model.needs.is_pinned || model.needs.priority > priority)
        };
        let fixed = self.models.iter().filter(|(name, model)| {
            !beside.contains(*name) && (stays(name) || model.holders.iter().any(stays))
        });
        fixed.map(|(name, _)| self.bytes_in(name)).sum()
    }

    /// The bytes of a model that is in memory or is being loaded.
    pub(super) fn bytes_in(&self, name: &Name) -> u64 {
        match self.models.get(name).map(|model| model.residence) {
            Some(Residence::In { bytes, .. }) => bytes,
            Some(Residence::Loading { reserved }) => reserved,
            Some(Residence::Out | Residence::Unloading { .. }) | None => 0,
        }
    }
}
