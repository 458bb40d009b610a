//! Compares random histories with plain bookkeeping: the promises of the limiter must hold after every step.
//!
//! The test shrinks a failing history and prints it. `PROPTEST_CASES=100000` tries more histories than the default.
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
};

use proptest::{collection, prelude::*, sample::Index};
use scheduling::{
    Capacities, Capacity, Claim, Claimant, Grants, InstanceDevice, Need, RateLimiter, Resources, Shortage,
};

use super::priority;

#[derive(Debug, Clone)]
enum Step {
    Register { needs: Vec<(usize, u32)>, device: InstanceDevice, priority: u32 },
    Unregister(Index),
    Claim(Index),
    Release(Index),
    Renew(Index),
    Cancel(Index),
}

/// Two of them are names of global resources.
const NAMES: [&str; 5] = ["a", "b", "c", "global a", "global b"];

/// One resource within its scope.
type Pool = (&'static str, Option<InstanceDevice>);

fn device() -> impl Strategy<Value = InstanceDevice> {
    prop_oneof![Just(InstanceDevice::Cpu), Just(InstanceDevice::Gpu(0)), Just(InstanceDevice::Gpu(1))]
}

fn step() -> impl Strategy<Value = Step> {
    let needs = collection::vec((0..NAMES.len(), 0..6u32), 0..4);
    prop_oneof![
        2 => (needs, prop_oneof![4 => Just(InstanceDevice::Cpu), 1 => device()], 1..4u32)
            .prop_map(|(needs, device, priority)| Step::Register { needs, device, priority }),
        1 => any::<Index>().prop_map(Step::Unregister),
        8 => any::<Index>().prop_map(Step::Claim),
        4 => any::<Index>().prop_map(Step::Release),
        4 => any::<Index>().prop_map(Step::Renew),
        2 => any::<Index>().prop_map(Step::Cancel),
    ]
}

fn capacities() -> impl Strategy<Value = Vec<Capacity>> {
    let entry = (0..NAMES.len(), 3..8u32, prop_oneof![4 => Just(None), 1 => (0..2u32).prop_map(Some)]);
    let entry =
        entry.prop_map(|(name, count, device)| Capacity { name: NAMES[name].to_owned(), count, device });
    prop_oneof![Just(Vec::new()), collection::vec(entry, 1..12)]
}

#[derive(Debug, PartialEq)]
enum State {
    Idle,
    Waiting {
        /// Number of grants to competitors so far.
        passed: u64,
        bound: u64,
        overdue: Option<Overdue>,
    },
    /// The number of the grant that the claimant holds.
    Holding(u64),
}

#[derive(Debug, PartialEq)]
struct Overdue {
    /// The number of the grant that made the claim overdue. If one grant made several claims overdue, any of them may
    /// be first.
    since: u64,
    /// Grants for which the claim may still have to wait.
    blocked_by: BTreeSet<u64>,
    /// Claimants that became overdue earlier, until they are granted.
    behind: BTreeSet<Claimant>,
}

struct Member {
    needs: BTreeMap<Pool, u32>,
    priority: u64,
    state: State,
}

/// The limiter, and what an observer can know of it.
struct History {
    limiter: RateLimiter,
    capacities: Vec<Capacity>,
    members: BTreeMap<Claimant, Member>,
    /// All claimants that ever existed.
    known: Vec<Claimant>,
    grants: u64,
}

impl History {
    fn new(capacities: Vec<Capacity>) -> Self {
        let limiter = RateLimiter::new(capacities.iter().cloned().collect::<Capacities>());
        Self { limiter, capacities, members: BTreeMap::new(), known: Vec::new(), grants: 0 }
    }

    fn limit(&self, (name, device): Pool) -> u32 {
        let mut best = 0;
        for scope in self.capacities.iter().filter(|entry| entry.name == name).map(|entry| entry.device) {
            if device.is_some()
                && scope.is_some_and(|number| device.map(InstanceDevice::number) != Some(number))
            {
                continue;
            }
            let same = self.capacities.iter().filter(|entry| entry.name == name && entry.device == scope);
            best = best.max(same.map(|entry| entry.count).min().unwrap_or(0));
        }
        best
    }

    fn capacity(&self, pool: Pool) -> u32 {
        if !self.capacities.is_empty() {
            return self.limit(pool);
        }
        self.members.values().filter_map(|member| member.needs.get(&pool).copied()).max().unwrap_or(0)
    }

    fn used(&self, pool: Pool) -> u32 {
        let holding = self.members.values().filter(|member| matches!(member.state, State::Holding(_)));
        holding.filter_map(|member| member.needs.get(&pool)).sum()
    }

    fn free(&self, pool: Pool) -> u32 {
        self.capacity(pool).saturating_sub(self.used(pool))
    }

    fn fits(&self, claimant: Claimant) -> bool {
        self.members[&claimant].needs.iter().all(|(&pool, &count)| count == 0 || count <= self.free(pool))
    }

    fn holders(&self) -> BTreeSet<u64> {
        let grant =
            |member: &Member| if let State::Holding(grant) = member.state { Some(grant) } else { None };
        self.members.values().filter_map(grant).collect()
    }

    fn overdue(&self) -> impl Iterator<Item = (Claimant, &Overdue)> {
        self.members.iter().filter_map(|(&claimant, member)| match &member.state {
            State::Waiting { overdue: Some(overdue), .. } => Some((claimant, overdue)),
            _ => None,
        })
    }

    fn register(&mut self, needs: &[(usize, u32)], device: InstanceDevice, its_priority: u32) {
        let need = |&(name, count): &(usize, u32)| {
            let name: &'static str = NAMES[name];
            Need { name: name.to_owned(), global: name.starts_with("global"), count }
        };
        let resources = Resources { needs: needs.iter().map(need).collect(), device };
        let mut pools = BTreeMap::new();
        for &(name, count) in needs {
            pools.insert((NAMES[name], (!NAMES[name].starts_with("global")).then_some(device)), count);
        }
        let too_much =
            |(&pool, &count): (&Pool, &u32)| !self.capacities.is_empty() && self.limit(pool) < count;
        let refused = pools.iter().any(too_much);
        match self.limiter.register(&resources, priority(its_priority)) {
            Ok((claimant, grants)) => {
                assert!(!refused, "{pools:?} is more than there is");
                let member = Member { needs: pools, priority: its_priority.into(), state: State::Idle };
                assert!(self.members.insert(claimant, member).is_none());
                self.known.push(claimant);
                self.granted(grants);
            }
            Err(Shortage::Limited { .. }) => assert!(refused, "there is enough of {pools:?}"),
            Err(Shortage::Conflict { resource }) => panic!("{resource} has one reach only"),
        }
    }

    fn unregister(&mut self, claimant: Claimant) {
        if let Some(member) = self.members.get_mut(&claimant) {
            member.state = State::Idle;
        }
        self.members.remove(&claimant);
        self.forget(claimant);
        if self.capacities.is_empty() {
            // Capacities may have shrunk below the promised units.
            let holders = self.holders();
            for member in self.members.values_mut() {
                if let State::Waiting { overdue: Some(Overdue { blocked_by, .. }), .. } = &mut member.state {
                    blocked_by.extend(&holders);
                }
            }
        }
        let grants = self.limiter.unregister(claimant);
        self.granted(grants);
    }

    fn claim(&mut self, claimant: Claimant) {
        let waits = self.wait(claimant);
        let claim = self.limiter.claim(claimant);
        self.answered(claimant, waits, claim);
    }

    fn renew(&mut self, claimant: Claimant) {
        if let Some(member) = self.members.get_mut(&claimant)
            && let State::Holding(_) = member.state
        {
            member.state = State::Idle;
        }
        let waits = self.wait(claimant);
        let (claim, grants) = self.limiter.renew(claimant);
        self.answered(claimant, waits, claim);
        self.granted(grants);
    }

    /// Records that the claimant waits from now on. Returns `false` if it already waited, or holds its resources.
    fn wait(&mut self, claimant: Claimant) -> bool {
        let Some(member) = self.members.get(&claimant) else { return false };
        if member.state != State::Idle {
            return false;
        }
        let competitors: usize = member
            .needs
            .keys()
            .map(|pool| self.members.values().filter(|other| other.needs.contains_key(pool)).count() - 1)
            .sum();
        let bound = RateLimiter::ROUNDS * member.priority * u64::try_from(competitors).expect("few");
        if let Some(member) = self.members.get_mut(&claimant) {
            member.state = State::Waiting { passed: 0, bound, overdue: None };
        }
        true
    }

    fn answered(&mut self, claimant: Claimant, waits: bool, claim: Claim) {
        let Some(member) = self.members.get(&claimant) else { return assert_eq!(claim, Claim::Queued) };
        let holds = matches!(member.state, State::Holding(_));
        match claim {
            Claim::Granted if waits => self.grant(claimant),
            Claim::Granted => assert!(holds, "a waiting claim is granted without a word"),
            Claim::Queued => assert!(!holds, "what was granted is taken away"),
        }
    }

    fn granted(&mut self, grants: Grants) {
        for claimant in grants {
            self.grant(claimant);
        }
    }

    fn grant(&mut self, claimant: Claimant) {
        let member = self.members.get(&claimant).expect("only registered claimants are granted something");
        let State::Waiting { overdue, .. } = &member.state else { panic!("{claimant:?} does not wait") };
        assert!(self.fits(claimant), "{claimant:?} is granted more than there is");
        let since = overdue.as_ref().map_or(u64::MAX, |overdue| overdue.since);
        self.grants += 1;
        let grant = self.grants;
        self.member(claimant).state = State::Holding(grant);
        let needs = self.members[&claimant].needs.clone();
        for (&pool, _) in needs.iter().filter(|&(_, &count)| count > 0) {
            let ahead = self.overdue().filter(|(_, overdue)| overdue.since < since);
            let promised: u32 = ahead.filter_map(|(other, _)| self.members[&other].needs.get(&pool)).sum();
            assert!(promised <= self.free(pool), "{claimant:?} takes what is promised to others");
        }
        for member in self.members.values_mut() {
            let State::Waiting { overdue: Some(overdue), .. } = &mut member.state else { continue };
            if overdue.behind.remove(&claimant) || overdue.since == since {
                overdue.blocked_by.insert(grant);
            }
        }
        let behind: BTreeSet<_> = self.overdue().map(|(claimant, _)| claimant).collect();
        let blocked_by = self.holders();
        for member in self.members.values_mut() {
            let State::Waiting { passed, bound, overdue } = &mut member.state else { continue };
            if !member.needs.keys().any(|pool| needs.contains_key(pool)) {
                continue;
            }
            *passed += 1;
            if overdue.is_none() && *passed >= *bound {
                let (blocked_by, behind) = (blocked_by.clone(), behind.clone());
                *overdue = Some(Overdue { since: grant, blocked_by, behind });
            }
        }
    }

    /// Records that the claimant stops waiting without a grant.
    fn forget(&mut self, claimant: Claimant) {
        for member in self.members.values_mut() {
            if let State::Waiting { overdue: Some(overdue), .. } = &mut member.state {
                overdue.behind.remove(&claimant);
            }
        }
    }

    fn release(&mut self, claimant: Claimant) {
        if let Some(member) = self.members.get_mut(&claimant)
            && let State::Holding(_) = member.state
        {
            member.state = State::Idle;
        }
        let grants = self.limiter.release(claimant);
        self.granted(grants);
    }

    fn cancel(&mut self, claimant: Claimant) {
        if let Some(member) = self.members.get_mut(&claimant) {
            member.state = State::Idle;
        }
        self.forget(claimant);
        let grants = self.limiter.cancel(claimant);
        self.granted(grants);
    }

    fn check(&self) {
        let holders = self.holders();
        let blocked = |overdue: &Overdue| {
            !overdue.behind.is_empty() || overdue.blocked_by.iter().any(|grant| holders.contains(grant))
        };
        for (claimant, overdue) in self.overdue() {
            let mut equals =
                self.overdue().map(|(_, other)| other).filter(|other| other.since == overdue.since);
            assert!(equals.any(blocked), "{claimant:?} is overdue and nothing blocks it");
        }
        for (&claimant, member) in &self.members {
            let State::Waiting { overdue: None, .. } = &member.state else { continue };
            let shares = |other: &Claimant| {
                self.members[other].needs.keys().any(|pool| member.needs.contains_key(pool))
            };
            let promised = self.overdue().any(|(other, _)| shares(&other));
            assert!(!self.fits(claimant) || promised, "{claimant:?} waits for nothing");
        }
    }

    fn play(&mut self, step: &Step) {
        let someone = |index: &Index| (!self.known.is_empty()).then(|| *index.get(&self.known));
        match step {
            Step::Register { needs, device, priority } => self.register(needs, *device, *priority),
            Step::Unregister(index) => someone(index).into_iter().for_each(|who| self.unregister(who)),
            Step::Claim(index) => someone(index).into_iter().for_each(|who| self.claim(who)),
            Step::Release(index) => someone(index).into_iter().for_each(|who| self.release(who)),
            Step::Renew(index) => someone(index).into_iter().for_each(|who| self.renew(who)),
            Step::Cancel(index) => someone(index).into_iter().for_each(|who| self.cancel(who)),
        }
        self.check();
    }

    /// No claimant claims any more, and every holder releases its resources.
    fn run_dry(&mut self) {
        loop {
            let mut members = self.members.iter();
            let holder = members.find(|(_, member)| matches!(member.state, State::Holding(_)));
            let Some((&holder, _)) = holder else { break };
            self.release(holder);
            self.check();
        }
        assert!(self.members.values().all(|member| member.state == State::Idle), "somebody waits for ever");
    }

    fn member(&mut self, claimant: Claimant) -> &mut Member {
        self.members.get_mut(&claimant).expect("it is registered")
    }
}

/// `with_cases` alone would ignore the environment.
fn cases() -> u32 {
    env::var("PROPTEST_CASES").map_or(700, |cases| cases.parse().expect("PROPTEST_CASES is a number"))
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn the_limiter_keeps_its_promises(capacities in capacities(), steps in collection::vec(step(), 0..200)) {
        let mut history = History::new(capacities);
        for step in &steps {
            history.play(step);
        }
        history.run_dry();
    }

    #[test]
    fn many_claimants_are_served_in_bounded_time(
        counts in collection::vec((0..7u32, 0..7u32, 1..3u32), 2..8),
        turns in collection::vec((any::<Index>(), any::<bool>()), 0..600),
    ) {
        let six = |name: &str| Capacity { name: name.to_owned(), count: 6, device: None };
        let mut history = History::new(vec![six("a"), six("b")]);
        for (a, b, priority) in counts {
            history.play(&Step::Register { needs: vec![(0, a), (1, b)], device: InstanceDevice::Cpu, priority });
        }
        for (index, renews) in turns {
            // An idle claimant claims. A running claimant renews or pauses.
            let who = *index.get(&history.known);
            let holds = matches!(history.members[&who].state, State::Holding(_));
            history.play(&match (holds, renews) {
                (false, _) => Step::Claim(index),
                (true, true) => Step::Renew(index),
                (true, false) => Step::Release(index),
            });
        }
        history.run_dry();
    }
}
