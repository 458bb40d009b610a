//! Random histories: demands, results, uses and commands in any order, against what must always hold.
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    time::Duration,
};

use scheduling::Timestamp;
use vocabulary::{Error, Name};

use super::MemoryBudget;
use crate::history_tests::Random;
use crate::memory_budget::*;

const LIMIT: u64 = 150;
const MOST_LOADS: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// What the engine would do, and what really is in memory.
struct World {
    budget: MemoryBudget,
    random: Random,
    now: Timestamp,
    /// The memory that models really have: its loads, those that serve and those that end.
    loading: BTreeMap<Name, u64>,
    serving: BTreeMap<Name, u64>,
    ending: BTreeMap<Name, u64>,
    uses: RefCell<BTreeMap<Name, ModelUse>>,
    /// Names that somebody waits for.
    waiters: BTreeSet<Name>,
}

fn needs(name: &str, random: &mut Random) -> ModelNeeds {
    let members: &[&str] = match name {
        "e" => &["a", "b"],
        "f" => &["e", "c"],
        _ => &[],
    };
    ModelNeeds {
        file_bytes: if members.is_empty() { 10 + random.below(40) } else { 0 },
        is_pinned: name == "p",
        priority: u32::from(name == "d"),
        members: members.iter().map(|name| Name::new(name)).collect(),
    }
}

const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "p"];

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut budget = MemoryBudget::new(LIMIT, MOST_LOADS);
        NAMES.iter().for_each(|name| budget.learn(Name::new(name), needs(name, &mut random)));
        Self {
            budget,
            random,
            now: Timestamp::from_nanos(0),
            loading: BTreeMap::new(),
            serving: BTreeMap::new(),
            ending: BTreeMap::new(),
            uses: RefCell::default(),
            waiters: BTreeSet::new(),
        }
    }

    fn size(&self, name: &Name) -> u64 {
        // A model has the memory of its files. A load with much room reserves twice as much.
        self.budget.models[name].needs.file_bytes
    }

    fn perform(&mut self, actions: Vec<BudgetAction>) {
        for action in actions {
            match action {
                BudgetAction::Load(name) => {
                    let needs = &self.budget.models[&name].needs;
                    assert!(
                        needs.members.iter().all(|member| self.serving.contains_key(member)),
                        "'{name}' is loaded before its members"
                    );
                    assert!(!self.serving.contains_key(&name) && !self.ending.contains_key(&name));
                    let size = self.budget.models[&name].line(&name).bytes;
                    assert_eq!(self.loading.insert(name, size), None, "one load at a time");
                }
                BudgetAction::Unload(name) => {
                    let usage = self.uses.borrow()[&name];
                    assert!(!usage.is_busy, "'{name}' has requests");
                    assert_ne!(&*name, "p", "it is pinned");
                    let size = self.serving.remove(&name).expect("it serves");
                    self.ending.insert(name, size);
                }
                BudgetAction::Refuse(name, _) => {
                    assert!(self.waiters.remove(&name), "'{name}' is refused, and nobody waits");
                }
            }
        }
        for name in self.serving.keys() {
            let members = &self.budget.models[name].needs.members;
            assert!(
                members.iter().all(|member| self.serving.contains_key(member)),
                "'{name}' has lost a member"
            );
        }
        let all = self.loading.values().chain(self.serving.values()).chain(self.ending.values());
        let real: u64 = all.sum();
        assert!(self.loading.len() <= MOST_LOADS.get(), "a load thread for each load");
        assert!(real <= LIMIT, "{real} bytes of {LIMIT}");
        assert_eq!(real, self.budget.totals().1);
    }

    fn decide(&mut self) {
        let uses = &self.uses;
        let actions =
            self.budget.decide(&|name| uses.borrow().get(name).copied().unwrap_or_default(), self.now);
        self.perform(actions);
    }

    fn any(&mut self, of: impl Fn(&Self) -> &BTreeMap<Name, u64>) -> Option<Name> {
        let count = of(self).len() as u64;
        let place = if count > 0 { self.random.below(count) } else { return None };
        of(self).keys().nth(place as usize).cloned()
    }

    fn end_a_load(&mut self, may_fail: bool) {
        let Some(name) = self.any(|world| &world.loading) else { return };
        self.loading.remove(&name);
        let bytes = self.size(&name);
        if may_fail && self.random.one_in(6) {
            self.budget.failed(&name, &Error::internal("broken"), self.now);
            self.waiters.remove(&name);
            return;
        }
        let needs = self.budget.models[&name].needs.clone();
        let duration = Duration::from_millis(1 + self.random.below(100));
        self.serving.insert(name.clone(), bytes);
        self.uses.borrow_mut().insert(name.clone(), ModelUse::default());
        let actions = self.budget.loaded(&name, LoadMeasure { bytes, duration }, needs, self.now);
        self.waiters.remove(&name);
        self.perform(actions);
    }

    fn end_an_unload(&mut self) {
        let Some(name) = self.any(|world| &world.ending) else { return };
        self.ending.remove(&name);
        self.budget.ended(&name);
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(self.random.below(500));
        match self.random.below(10) {
            0..=3 => {
                let name = Name::new(NAMES[self.random.below(NAMES.len() as u64) as usize]);
                match self.budget.demand(&name, self.now) {
                    DemandAnswer::Ready => {
                        assert!(self.serving.contains_key(&name));
                        let is_busy = self.random.one_in(2);
                        let mut uses = self.uses.borrow_mut();
                        let usage = uses.get_mut(&name).unwrap();
                        (usage.requests, usage.is_busy) = (usage.requests + 1, is_busy);
                    }
                    DemandAnswer::Waits => drop(self.waiters.insert(name)),
                    DemandAnswer::Refused(_) => assert!(!self.serving.contains_key(&name)),
                    DemandAnswer::Withdrawn | DemandAnswer::Unknown => panic!("'{name}' is known"),
                }
            }
            4..=5 => self.end_a_load(true),
            6 => self.end_an_unload(),
            7 => self.uses.borrow_mut().values_mut().for_each(|usage| usage.is_busy = false),
            8 => {
                if let Some(name) = self.any(|world| &world.serving)
                    && self.random.one_in(4)
                    && self.budget.models[&name].holders.is_empty()
                {
                    self.budget.withdraw(&name);
                    self.serving.remove(&name);
                    self.budget.ended(&name);
                    self.budget.prefetch(&name, self.now);
                    self.waiters.insert(name);
                }
            }
            _ => {
                if let Some(name) = self.waiters.iter().next().cloned()
                    && self.random.one_in(8)
                {
                    self.budget.give_up(&name, &Error::unavailable("late"));
                    if !self.loading.contains_key(&name) {
                        self.waiters.remove(&name);
                    }
                }
            }
        }
        self.decide();
    }

    /// Ends all that is under way. Then nobody waits any more.
    fn settle(&mut self) {
        for _ in 0..1000 {
            self.uses.borrow_mut().values_mut().for_each(|usage| usage.is_busy = false);
            self.end_a_load(false);
            self.end_an_unload();
            self.decide();
            if self.loading.is_empty() && self.ending.is_empty() && self.waiters.is_empty() {
                assert!(!self.budget.is_blocked());
                return;
            }
        }
        let lines: Vec<_> = self.budget.lines().collect();
        panic!("{:?} wait for ever: {lines:#?}", self.waiters);
    }
}

#[test]
fn memory_is_never_exceeded_and_everybody_gets_an_answer() {
    let (mut loads, mut steps) = (0, 0);
    for seed in 1..=3000_u64 {
        let mut world = World::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for _ in 0..100 {
            let before = world.serving.len();
            world.step();
            loads += usize::from(world.serving.len() > before);
            steps += 1;
        }
        world.settle();
    }
    assert!(loads > steps / 50, "{loads} loads in {steps} steps");
}
