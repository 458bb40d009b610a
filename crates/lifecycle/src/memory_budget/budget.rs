//! The models of the budget, and what changes them.
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    num::NonZeroUsize,
};

use scheduling::Timestamp;
use vocabulary::{Error, Name};

use super::{
    budgeted_model::{BudgetedModel, Residence, Turn},
    lines::{Absence, BudgetLine},
    load_times::RepeatedLoads,
    terms::{BudgetAction, DemandAnswer, LoadMeasure, ModelNeeds, ModelUse},
    uses::UseClock,
};

mod admission;
#[cfg(test)]
mod history_tests;
#[cfg(test)]
mod script_tests;
mod victims;

/// The memory of models. See the documentation of the module above.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: u64,
    /// So many models are loaded at once. Those that come later wait without memory.
    most_loads: usize,
    models: BTreeMap<Name, BudgetedModel>,
    /// Models that wait for memory or for a load thread, in the order of their turns.
    waiting: BTreeMap<Turn, Name>,
    next_turn: u64,
    /// Models that get their turns again when this one has been loaded, has failed or has ended.
    awaited: HashMap<Name, BTreeSet<Name>>,
    /// Models in memory that may be unloaded: by priority and worth, the least first.
    order: BTreeSet<(u32, u64, Name)>,
    /// Weighs uses by their times.
    clock: UseClock,
    repeated_loads: RepeatedLoads,
    /// Bytes of models that are loaded, are being loaded or finish their requests.
    used: u64,
    /// The part of these that finish their requests.
    leaving: u64,
    /// How many models are being loaded.
    loading: usize,
    /// How many candidates have been looked at.
    #[cfg(test)]
    steps: u64,
}

impl MemoryBudget {
    /// A budget of so many bytes, without models. So many loads make progress at once.
    pub fn new(limit: u64, most_loads: NonZeroUsize) -> Self {
        Self {
            limit,
            most_loads: most_loads.get(),
            models: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_turn: 0,
            awaited: HashMap::new(),
            order: BTreeSet::new(),
            clock: UseClock::default(),
            repeated_loads: RepeatedLoads::default(),
            used: 0,
            leaving: 0,
            loading: 0,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// The limit, and the bytes that models have or were promised.
    pub fn totals(&self) -> (u64, u64) {
        (self.limit, self.used)
    }

    /// A repository has this model. What was measured stays.
    pub fn learn(&mut self, name: Name, needs: ModelNeeds) {
        let model = self.models.entry(name).or_default();
        if model.residence == Residence::Out {
            model.needs = needs;
        }
    }

    /// Forgets models out of memory that no repository has any more.
    pub fn retain(&mut self, exists: impl Fn(&Name) -> bool) {
        self.models.retain(|name, model| {
            model.residence != Residence::Out
                || model.turn.is_some()
                || model.staged.is_some()
                || exists(name)
        });
    }

    /// Whether a request for this model would be answered, now or after a load.
    pub fn takes_requests(&self, name: &Name, now: Timestamp) -> bool {
        self.models.get(name).is_some_and(|model| {
            let is_in = matches!(model.residence, Residence::In { .. });
            !model.is_withdrawn && (is_in || model.refusal(now).is_none())
        })
    }

    /// Models that stay in memory.
    pub fn pinned(&self) -> impl Iterator<Item = &Name> {
        self.models.iter().filter(|(_, model)| model.needs.is_pinned).map(|(name, _)| name)
    }

    /// A request needs a model.
    pub fn demand(&mut self, name: &Name, now: Timestamp) -> DemandAnswer {
        let Some(model) = self.models.get(name) else { return DemandAnswer::Unknown };
        if model.is_withdrawn {
            return DemandAnswer::Withdrawn;
        }
        if matches!(model.residence, Residence::In { .. }) {
            return DemandAnswer::Ready;
        }
        if let Some(error) = model.refusal(now) {
            return DemandAnswer::Refused(error);
        }
        self.queue(name, None);
        DemandAnswer::Waits
    }

    /// An operator wants a model in memory. What has failed is tried again.
    pub fn prefetch(&mut self, name: &Name, now: Timestamp) -> DemandAnswer {
        if let Some(model) = self.models.get_mut(name) {
            model.is_withdrawn = false;
            model.failure = None;
        }
        self.demand(name, now)
    }

    /// An operator unloads a model, which requests do not load any more.
    pub fn withdraw(&mut self, name: &Name) {
        if let Some(model) = self.models.get_mut(name) {
            model.is_withdrawn = true;
            model.absence = Absence::Withdrawn;
        }
        self.leave_queue(name);
    }

    /// A model has been loaded, and asks for this; the size of its files stays as it was. Returns what must be done if it
    /// does not fit, now that it has been measured.
    pub fn loaded(
        &mut self,
        name: &Name,
        measure: LoadMeasure,
        needs: ModelNeeds,
        now: Timestamp,
    ) -> Vec<BudgetAction> {
        self.advance(now);
        self.release(name);
        self.leave_queue(name);
        let model = self.models.entry(name.clone()).or_default();
        model.needs = ModelNeeds { file_bytes: model.needs.file_bytes, ..needs };
        model.failure = None;
        model.load_duration = measure.duration;
        model.load_times.add(measure.duration, &mut self.repeated_loads);
        let bytes = if model.is_ensemble() { 0 } else { model.bytes_of(measure.bytes) };
        model.measured = (measure.bytes > 0 || model.is_ensemble()).then_some(bytes);
        self.used += bytes;
        self.hold_members(name);
        let use_weight = self.clock.weight(now);
        let Some(model) = self.models.get_mut(name) else { return Vec::new() };
        // The request that has caused the load.
        model.uses += use_weight;
        let worth = model.worth(bytes, &self.repeated_loads);
        model.residence = Residence::In { bytes, worth, seen: 0 };
        self.enter_order(name);
        if self.used > self.limit
            && let fixed = self.fixed_bytes(u32::MAX, &BTreeSet::from([name.clone()]))
            && bytes + fixed > self.limit
        {
            let error = self.too_large(name, bytes, fixed);
            self.models.get_mut(name).iter_mut().for_each(|model| model.refused(&error));
            let mut actions = vec![BudgetAction::Refuse(name.clone(), error)];
            self.unload(name, None, &mut actions);
            return actions;
        }
        self.wake(name, None);
        Vec::new()
    }

    /// A model in memory has been replaced by a copy that asks for something else.
    pub fn replaced(&mut self, name: &Name, needs: ModelNeeds) {
        let Some(model) = self.models.get_mut(name) else { return };
        let Residence::In { worth, .. } = model.residence else { return };
        self.order.remove(&(model.needs.priority, worth, name.clone()));
        self.end_holds(name);
        if let Some(model) = self.models.get_mut(name) {
            model.needs = ModelNeeds { file_bytes: model.needs.file_bytes, ..needs };
        }
        self.hold_members(name);
        self.enter_order(name);
    }

    /// The load of a model has failed.
    pub fn failed(&mut self, name: &Name, error: &Error, now: Timestamp) {
        self.release(name);
        self.leave_queue(name);
        self.models.get_mut(name).iter_mut().for_each(|model| model.fail(error, now));
        self.wake(name, Some(error));
    }

    /// Nobody waits for a model any more. If it waits for memory, it does so no longer.
    pub fn give_up(&mut self, name: &Name, reason: &Error) {
        let Some(model) = self.models.get_mut(name) else { return };
        if model.turn.is_some() || model.staged.is_some() {
            model.refused(reason);
            self.leave_queue(name);
        }
    }

    /// A model has gone from memory.
    pub fn ended(&mut self, name: &Name) {
        self.release(name);
        self.end_holds(name);
        self.wake(name, None);
    }

    /// The memory of a model in use has been measured again.
    pub fn measured(&mut self, name: &Name, bytes: u64, usage: ModelUse, now: Timestamp) {
        self.advance(now);
        let Some(model) = self.models.get_mut(name) else { return };
        let is_ensemble = model.is_ensemble();
        let Residence::In { bytes: counted, worth, .. } = &mut model.residence else { return };
        self.order.remove(&(model.needs.priority, *worth, name.clone()));
        if bytes > 0 && !is_ensemble {
            self.used = self.used - *counted + bytes;
            *counted = bytes;
            model.measured = Some(bytes);
        }
        model.used(usage.requests, self.clock.weight(now), &self.repeated_loads);
        self.enter_order(name);
    }

    /// The models in memory.
    pub fn in_memory(&self) -> impl Iterator<Item = &Name> {
        let is_in = |model: &BudgetedModel| matches!(model.residence, Residence::In { .. });
        self.models.iter().filter(move |(_, model)| is_in(model)).map(|(name, _)| name)
    }

    /// All models by name, and where they are.
    pub fn lines(&self) -> impl Iterator<Item = BudgetLine> {
        self.models.iter().map(|(name, model)| model.line(name))
    }

    /// Time goes on. Weights that have become too large are made smaller, all by the same factor.
    fn advance(&mut self, now: Timestamp) {
        let Some(factor) = self.clock.advance(now) else { return };
        self.order.clear();
        let names: Vec<_> = self.models.keys().cloned().collect();
        for name in names {
            if let Some(model) = self.models.get_mut(&name) {
                model.uses *= factor;
                if let Residence::In { bytes, seen, .. } = model.residence {
                    let worth = model.worth(bytes, &self.repeated_loads);
                    model.residence = Residence::In { bytes, worth, seen };
                }
            }
            self.enter_order(&name);
        }
    }

    /// Gives a model a turn, unless it has one or is being loaded: the one that it had, or the last one.
    fn queue(&mut self, name: &Name, turn: Option<Turn>) {
        let Some(model) = self.models.get_mut(name) else { return };
        let is_coming = matches!(model.residence, Residence::Loading { .. } | Residence::In { .. });
        if is_coming || model.turn.is_some() || model.staged.is_some() {
            return;
        }
        let turn = turn.unwrap_or((Reverse(model.needs.priority), self.next_turn));
        self.next_turn += 1;
        model.turn = Some(turn);
        self.waiting.insert(turn, name.clone());
    }

    fn leave_queue(&mut self, name: &Name) {
        let Some(model) = self.models.get_mut(name) else { return };
        model.staged = None;
        model.failed_member = None;
        if let Some(turn) = model.turn.take() {
            self.waiting.remove(&turn);
        }
        if model.residence == Residence::Out {
            self.end_holds(name);
        }
    }

    /// Those who have waited for this model get their turns again. `failure` tells that it could not be loaded.
    fn wake(&mut self, name: &Name, failure: Option<&Error>) {
        for waiting in self.awaited.remove(name).into_iter().flatten() {
            let Some(model) = self.models.get_mut(&waiting) else { continue };
            let Some(turn) = model.staged.take() else { continue };
            model.failed_member =
                failure.filter(|_| waiting != *name).map(|error| (name.clone(), error.clone()));
            // Until its turn comes, others may have the memory of its members.
            self.end_holds(&waiting);
            self.queue(&waiting, Some(turn));
        }
    }

    /// A model in memory may be unloaded for others, unless it is pinned. An ensemble has no memory of its own.
    fn enter_order(&mut self, name: &Name) {
        let Some(model) = self.models.get(name) else { return };
        if let Residence::In { worth, .. } = model.residence
            && !model.is_ensemble()
            && !model.needs.is_pinned
        {
            self.order.insert((model.needs.priority, worth, name.clone()));
        }
    }

    /// Takes back the bytes of a model. From then on it is out.
    fn release(&mut self, name: &Name) {
        let Some(model) = self.models.get_mut(name) else { return };
        match model.residence {
            Residence::Out => {}
            Residence::Loading { reserved } => {
                self.used -= reserved;
                self.loading -= 1;
            }
            Residence::In { bytes, worth, .. } => {
                self.used -= bytes;
                self.order.remove(&(model.needs.priority, worth, name.clone()));
            }
            Residence::Unloading { bytes } => {
                self.used -= bytes;
                self.leaving -= bytes;
            }
        }
        model.residence = Residence::Out;
    }

    /// The members of a model stay while it needs them.
    fn hold_members(&mut self, name: &Name) {
        for member in self.closure(name).unwrap_or_default().iter().filter(|member| *member != name) {
            if let Some(member) = self.models.get_mut(member) {
                member.holders.insert(name.clone());
            }
        }
    }

    /// The model needs its members no more.
    fn end_holds(&mut self, name: &Name) {
        for member in self.closure(name).unwrap_or_default() {
            if let Some(member) = self.models.get_mut(&member) {
                member.holders.remove(name);
            }
        }
    }

    /// Unloads a model in memory for another one.
    fn unload(&mut self, name: &Name, reason: Option<Absence>, actions: &mut Vec<BudgetAction>) {
        let Some(model) = self.models.get_mut(name) else { return };
        let Residence::In { bytes, worth, .. } = model.residence else { return };
        self.order.remove(&(model.needs.priority, worth, name.clone()));
        model.residence = Residence::Unloading { bytes };
        reason.into_iter().for_each(|reason| model.absence = reason);
        self.leaving += bytes;
        actions.push(BudgetAction::Unload(name.clone()));
    }
}
