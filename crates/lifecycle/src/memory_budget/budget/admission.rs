//! Which of the models that wait are loaded now.
use std::collections::BTreeSet;

use scheduling::Timestamp;
use vocabulary::{Error, Name};

use super::MemoryBudget;
use crate::memory_budget::{
    budgeted_model::{BudgetedModel, Residence},
    lines::Absence,
    terms::{BudgetAction, ModelUse},
};

/// What becomes of a model whose turn has come.
enum TurnOutcome {
    /// It is being loaded, is in memory or waits for another model.
    Settled,
    /// It waits for memory, or for the end of a load. Nobody behind it takes that.
    Blocked,
    Refused(Error),
}

/// One decision: what it is based on besides the budget, and what follows.
pub(super) struct Decision<'u> {
    /// How a model in memory is used.
    pub(super) use_of: &'u dyn Fn(&Name) -> ModelUse,
    pub(super) now: Timestamp,
    pub(super) actions: Vec<BudgetAction>,
}

/// The memory of models that are to be loaded together.
#[derive(Clone, Copy)]
struct RoomNeed {
    /// What the models will have.
    tight: u64,
    /// The same with what their loads need besides.
    comfortable: u64,
    /// Models of a higher priority do not make room.
    priority: u32,
}

/// The memory that is there for models.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Tight,
    Comfortable,
}

impl MemoryBudget {
    /// What is to be done now. Called after each input. `use_of` tells how a model in memory is used.
    pub fn decide(&mut self, use_of: &dyn Fn(&Name) -> ModelUse, now: Timestamp) -> Vec<BudgetAction> {
        self.advance(now);
        let mut decision = Decision { use_of, now, actions: Vec::new() };
        self.shrink(&mut decision);
        while let Some((&turn, name)) = self.waiting.first_key_value() {
            let name = name.clone();
            let outcome = self.admit(&name, &mut decision);
            if matches!(outcome, TurnOutcome::Blocked) {
                break;
            }
            self.waiting.remove(&turn);
            let Some(model) = self.models.get_mut(&name) else { continue };
            model.turn = None;
            if let TurnOutcome::Refused(error) = outcome {
                model.refused(&error);
                self.end_holds(&name);
                decision.actions.push(BudgetAction::Refuse(name, error));
            }
        }
        decision.actions
    }

    /// Whether models wait for memory that others may give up when they have no more requests. Who waits for a load
    /// thread need not ask: the end of a load is an input.
    pub fn is_blocked(&self) -> bool {
        !self.waiting.is_empty() && self.loading < self.most_loads
    }

    /// Unloads models if those in memory have grown beyond the limit.
    fn shrink(&mut self, decision: &mut Decision<'_>) {
        let short = (self.used - self.leaving).saturating_sub(self.limit);
        if short > 0 {
            let victims = self.victims(short, u32::MAX, &BTreeSet::new(), decision);
            victims
                .models
                .iter()
                .for_each(|name| self.unload(name, Some(Absence::MadeRoom(None)), &mut decision.actions));
        }
    }

    fn admit(&mut self, name: &Name, decision: &mut Decision<'_>) -> TurnOutcome {
        let failed = self.models.get_mut(name).and_then(|model| model.failed_member.take());
        if let Some((member, error)) = failed {
            let text =
                format!("model '{name}' needs model '{member}', which failed to load: {}", error.message);
            return TurnOutcome::Refused(Error::unavailable(text));
        }
        let all = match self.closure(name) {
            Ok(all) => all,
            Err(error) => return TurnOutcome::Refused(error),
        };
        let residence = |name: &Name| self.models.get(name).map(|model| model.residence).unwrap_or_default();
        if matches!(residence(name), Residence::Loading { .. } | Residence::In { .. }) {
            return TurnOutcome::Settled;
        }
        if let Some(ending) = all.iter().find(|one| matches!(residence(one), Residence::Unloading { .. })) {
            let ending = ending.clone();
            return self.stage(name, [ending]);
        }
        // One that waits for a load thread must not have memory for which others were unloaded.
        if self.loading >= self.most_loads {
            return TurnOutcome::Blocked;
        }
        let absent: Vec<_> = all.iter().filter(|one| residence(one) == Residence::Out).cloned().collect();
        let sum = |bytes: fn(&BudgetedModel) -> u64| absent.iter().map(|one| bytes(&self.models[one])).sum();
        let need = RoomNeed {
            tight: sum(BudgetedModel::expected),
            comfortable: sum(BudgetedModel::expected_for_load),
            priority: self.models[name].needs.priority,
        };
        let reserved_for = match self.make_room(name, need, &all, decision) {
            Ok(Room::Comfortable) => BudgetedModel::expected_for_load,
            Ok(Room::Tight) => BudgetedModel::expected,
            Err(outcome) => return outcome,
        };
        self.hold_members(name);
        for one in &absent {
            let has_members = |needed: &Name| {
                self.models.get(needed).is_some_and(|model| matches!(model.residence, Residence::In { .. }))
            };
            let Some(model) = self.models.get(one) else { continue };
            if model.needs.members.iter().all(has_members) {
                if self.loading >= self.most_loads {
                    // It keeps its turn, so that the next thread is for the rest of them. Only models of a higher
                    // priority come before it, and may have the memory of those that are there.
                    self.end_holds(name);
                    return TurnOutcome::Blocked;
                }
                let reserved = reserved_for(model);
                self.models.get_mut(one).iter_mut().for_each(|model| {
                    model.residence = Residence::Loading { reserved };
                });
                self.used += reserved;
                self.loading += 1;
                self.hold_members(one);
                decision.actions.push(BudgetAction::Load(one.clone()));
            }
        }
        if self.models[name].residence == Residence::Out {
            let coming = all.into_iter().filter(|member| {
                member != name && !matches!(self.models[member].residence, Residence::In { .. })
            });
            let coming: Vec<_> = coming.collect();
            let is_loading =
                |member: &Name| matches!(self.models[member].residence, Residence::Loading { .. });
            if !coming.iter().any(is_loading) {
                let text = format!(
                    "model '{name}' cannot be loaded: models that it needs call each other in a circle"
                );
                return TurnOutcome::Refused(Error::invalid(text));
            }
            return self.stage(name, coming);
        }
        TurnOutcome::Settled
    }

    /// The model gets another turn when something has become of one of the others.
    fn stage(&mut self, name: &Name, others: impl IntoIterator<Item = Name>) -> TurnOutcome {
        self.models.get_mut(name).iter_mut().for_each(|model| model.staged = model.turn);
        for other in others {
            self.awaited.entry(other).or_default().insert(name.clone());
        }
        TurnOutcome::Settled
    }

    /// Unloads others, if that gives enough memory.
    ///
    /// # Errors
    /// There is no room yet, or there will be none.
    fn make_room(
        &mut self,
        name: &Name,
        need: RoomNeed,
        all: &BTreeSet<Name>,
        decision: &mut Decision<'_>,
    ) -> Result<Room, TurnOutcome> {
        if self.unload_for(name, (need.comfortable, need.priority), all, decision)? {
            return Ok(Room::Comfortable);
        }
        // Others may end their requests, unless those that stay have too much.
        let fixed = self.fixed_bytes(need.priority, all);
        let kept: u64 = all.iter().map(|one| self.bytes_in(one)).sum();
        if need.comfortable + kept + fixed <= self.limit {
            return Err(TurnOutcome::Blocked);
        }
        if need.tight + kept + fixed > self.limit {
            return Err(TurnOutcome::Refused(self.too_large(name, need.tight + kept, fixed)));
        }
        match self.unload_for(name, (need.tight, need.priority), all, decision)? {
            true => Ok(Room::Tight),
            false => Err(TurnOutcome::Blocked),
        }
    }

    /// Unloads others, if that gives so many bytes. Returns whether the bytes are there; false if the others do not have
    /// enough.
    ///
    /// # Errors
    /// The bytes are there when the others have ended.
    fn unload_for(
        &mut self,
        name: &Name,
        (bytes, priority): (u64, u32),
        all: &BTreeSet<Name>,
        decision: &mut Decision<'_>,
    ) -> Result<bool, TurnOutcome> {
        if self.used + bytes <= self.limit {
            return Ok(true);
        }
        let short = (self.used - self.leaving + bytes).saturating_sub(self.limit);
        if short > 0 {
            let victims = self.victims(short, priority, all, decision);
            if victims.bytes < short {
                return Ok(false);
            }
            let reason = || Some(Absence::MadeRoom(Some(name.clone())));
            victims.models.iter().for_each(|victim| self.unload(victim, reason(), &mut decision.actions));
        }
        Err(TurnOutcome::Blocked)
    }

    /// The refusal of a model that does not fit beside those that stay.
    pub(super) fn too_large(&self, name: &Name, need: u64, fixed: u64) -> Error {
        let limit = self.limit;
        let beside = if fixed > 0 {
            format!(", of which {fixed} are taken by models that stay (pinned, or of a higher priority)")
        } else {
            String::new()
        };
        Error::unavailable(format!(
            "model '{name}' needs {need} bytes of memory, and --model-memory-budget has {limit}{beside}"
        ))
    }

    /// A model and all that it calls, directly or through others.
    ///
    /// # Errors
    /// NOT_FOUND for a member that is in no repository.
    pub(super) fn closure(&self, name: &Name) -> Result<BTreeSet<Name>, Error> {
        let mut all = BTreeSet::new();
        let mut open = vec![name.clone()];
        while let Some(next) = open.pop() {
            let Some(model) = self.models.get(&next) else {
                let text = format!("model '{name}' needs model '{next}', which is in no repository");
                return Err(Error::not_found(text));
            };
            if all.insert(next) {
                open.extend(model.needs.members.iter().cloned());
            }
        }
        Ok(all)
    }
}
