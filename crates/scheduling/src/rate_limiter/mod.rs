//! The rate limiter: which instances may run a batch now, when all of them share resources.
//!
//! It is arithmetic only. An instance is a [`Claimant`]: it claims before it runs a batch and releases afterwards.
//! A claim is granted if all that it needs is free, and waits otherwise. Every call leaves nothing to be
//! granted any more, and answers who was granted meanwhile.
//!
//! **Order.** Waiting claims are looked at by score, low first, then first come first served. A score is the
//! sum of a claimant's executions times its priority, so under contention one of priority 2 runs half as often
//! as one of priority 1. Each claimant counts as if it had run [`RateLimiter::HEAD_START`] times before: so the
//! urgent ones begin. Who did not compete gets no credit for that: each resource has a clock, the score of
//! the last claim that was granted in its turn, and a claim counts from there at least. So neither a newcomer nor
//! one that slept shuts out the others until it has caught up. Where one claimant links resources whose users run
//! at different pace, the latest clock counts for it; with the slower ones it then waits until it is overdue.
//!
//! **No blocking.** Every claim that fits is granted, even if others with a lower score must wait because they
//! need more. A claim puts up with that for a time: once its competitors (claimants with which it shares a resource)
//! were granted [`RateLimiter::ROUNDS`] times its priority for each of them, it is overdue. Overdue claims come
//! first, in the order in which they became so, and what they need is not granted to anybody behind them. So an
//! overdue claim is granted at the latest when all have released that held something when it became overdue, or
//! were overdue before. (If capacities shrink meanwhile, those that hold something then count too.)
//!
//! Deliberately absent: time, queues of requests, and telling the granted ones about it.
mod pools;
mod resources;

use std::{collections::BTreeMap, iter::Chain, mem, num::NonZeroU32, option, sync::Arc, vec};

use pools::{Pools, ResourceShare, compete};
pub use resources::{Capacities, Capacity, Device, Need, Resources, Shortage};

/// Someone who may claim resources: an instance of some model. Its number is never given again by the same
/// limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claimant(u64);

/// The answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only who is granted may run"]
pub enum Claim {
    /// The claimant holds all that it needs, until it gives that back.
    Granted,
    /// The claim waits; some other call will answer that it is granted.
    Queued,
}

/// Claimants whose waiting claims were just granted, in this order. Up to one of them costs no allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "these claimants wait to be told"]
pub struct Grants {
    first: Option<Claimant>,
    more: Vec<Claimant>,
}

impl Grants {
    /// Whether nobody was granted anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn push(&mut self, claimant: Claimant) {
        if self.first.is_none() {
            self.first = Some(claimant);
        } else {
            self.more.push(claimant);
        }
    }
}

impl IntoIterator for Grants {
    type Item = Claimant;
    type IntoIter = Chain<option::IntoIter<Claimant>, vec::IntoIter<Claimant>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

/// Grants resources to claimants, never more than there are.
///
/// A claimant is idle, waits, or holds what it needs. A call that does not suit its state changes nothing, and so
/// does any call for a claimant that is not registered (its claim is never granted).
#[derive(Debug)]
pub struct RateLimiter {
    pools: Pools,
    members: BTreeMap<Claimant, ClaimantEntry>,
    queue: BTreeMap<QueuePosition, Claimant>,
    registered: u64,
    /// Tickets handed out, to those who wait and again to those who become overdue.
    tickets: u64,
}

#[derive(Debug)]
struct ClaimantEntry {
    shares: Arc<[ResourceShare]>,
    priority: NonZeroU32,
    /// Without the head start.
    score: u128,
    state: ClaimState,
}

#[derive(Debug, Clone, Copy)]
enum ClaimState {
    Idle,
    Queued {
        rank: QueuePosition,
        /// Grants to competitors until it is overdue.
        grants_until_overdue: u64,
    },
    Holding,
}

/// A place in the queue; the smallest is looked at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QueuePosition {
    Overdue { ticket: u64 },
    InTurn { score: u128, ticket: u64 },
}

impl RateLimiter {
    /// How often each competitor may run, on average and for each unit of a claim's priority, before the claim is
    /// overdue. Enough to leave the order by score alone where nobody is overtaken: there, each competitor runs
    /// at most twice for each unit of priority until the claim's turn comes.
    pub const ROUNDS: u64 = 4;
    /// Executions that each claimant is charged for before its first one.
    // As Triton: backend_model_instance.cc, InitAndWarmUpModelInstance: to be initialised and to be warmed up.
    pub const HEAD_START: u64 = 2;

    /// Starts with nobody registered.
    #[must_use]
    pub fn new(capacities: Capacities) -> Self {
        Self {
            pools: Pools::new(capacities),
            members: BTreeMap::new(),
            queue: BTreeMap::new(),
            registered: 0,
            tickets: 0,
        }
    }

    /// Admits a claimant, idle. Where capacities are left to the claimants, this may make room for waiting ones.
    ///
    /// # Errors
    /// Refuses one that could never be granted what it needs, or that means another thing by the name of a
    /// resource. Limits are looked at before conflicts, global resources before others, and names in their order.
    pub fn register(
        &mut self,
        needs: &Resources,
        priority: NonZeroU32,
    ) -> Result<(Claimant, Grants), Shortage> {
        let shares = self.pools.enter(needs)?;
        let claimant = Claimant(self.registered);
        self.registered += 1;
        self.members.insert(claimant, ClaimantEntry { shares, priority, score: 0, state: ClaimState::Idle });
        Ok((claimant, self.grant_what_fits()))
    }

    /// Forgets a claimant. What it holds is free again, what it waits for is not granted any more.
    pub fn unregister(&mut self, claimant: Claimant) -> Grants {
        self.withdraw(claimant);
        let Some(member) = self.members.remove(&claimant) else { return Grants::default() };
        self.pools.leave(&member.shares);
        self.grant_what_fits()
    }

    /// Claims all that the claimant needs. One that waits already keeps its place, and one that holds everything
    /// is told so: whoever has heard of a grant may claim again to be sure.
    pub fn claim(&mut self, claimant: Claimant) -> Claim {
        let (claim, others) = self.queue_up(claimant);
        debug_assert!(others.is_empty(), "a claim makes no room for others");
        claim
    }

    /// The batch has run: charges for it and gives everything back.
    pub fn release(&mut self, claimant: Claimant) -> Grants {
        if !self.finish(claimant) {
            return Grants::default();
        }
        self.grant_what_fits()
    }

    /// The batch has run and the next one is due: [`release`](Self::release) and [`claim`](Self::claim) in one
    /// step, with the grants of others.
    ///
    /// Only so a claimant that always has work keeps its share. Between a release and a separate claim
    /// the others alone would compete, and each get what one release sets free.
    pub fn renew(&mut self, claimant: Claimant) -> (Claim, Grants) {
        self.finish(claimant);
        self.queue_up(claimant)
    }

    /// Takes a claim back, whether it waits or was granted and not made use of. Nothing is charged.
    pub fn cancel(&mut self, claimant: Claimant) -> Grants {
        if !self.withdraw(claimant) {
            return Grants::default();
        }
        self.grant_what_fits()
    }

    fn queue_up(&mut self, claimant: Claimant) -> (Claim, Grants) {
        let Some(member) = self.members.get_mut(&claimant) else { return (Claim::Queued, Grants::default()) };
        match member.state {
            ClaimState::Holding => return (Claim::Granted, Grants::default()),
            ClaimState::Queued { .. } => return (Claim::Queued, Grants::default()),
            ClaimState::Idle => {}
        }
        member.score = member.score.max(self.pools.clock(&member.shares));
        let competitors = u64::try_from(self.pools.competitors(&member.shares)).unwrap_or(u64::MAX);
        let grants_until_overdue =
            Self::ROUNDS.saturating_mul(member.priority.get().into()).saturating_mul(competitors);
        let head_start = u128::from(Self::HEAD_START) * u128::from(member.priority.get());
        let score = member.score.saturating_add(head_start);
        let rank = QueuePosition::InTurn { score, ticket: self.tickets };
        self.tickets += 1;
        member.state = ClaimState::Queued { rank, grants_until_overdue };
        self.queue.insert(rank, claimant);
        let mut claim = Claim::Queued;
        let mut others = Grants::default();
        for granted in self.grant_what_fits() {
            if granted == claimant {
                claim = Claim::Granted;
            } else {
                others.push(granted);
            }
        }
        (claim, others)
    }

    /// Takes back what it holds, at the price of an execution. `false` if it holds nothing.
    fn finish(&mut self, claimant: Claimant) -> bool {
        let Some(member) = self.members.get_mut(&claimant) else { return false };
        if !matches!(member.state, ClaimState::Holding) {
            return false;
        }
        member.score = member.score.saturating_add(member.priority.get().into());
        self.withdraw(claimant)
    }

    /// Makes it idle. `false` if it was, or is unknown.
    fn withdraw(&mut self, claimant: Claimant) -> bool {
        let Some(member) = self.members.get_mut(&claimant) else { return false };
        match mem::replace(&mut member.state, ClaimState::Idle) {
            ClaimState::Idle => return false,
            ClaimState::Queued { rank, .. } => drop(self.queue.remove(&rank)),
            ClaimState::Holding => self.pools.put_back(&member.shares),
        }
        true
    }

    fn grant_what_fits(&mut self) -> Grants {
        let mut grants = Grants::default();
        // From the start each time, because a grant may make a waiting claim overdue.
        while let Some(claimant) = self.next() {
            self.grant(claimant);
            grants.push(claimant);
        }
        grants
    }

    /// The first in the queue for whom there is enough. What the pools have noted on the way to it is for `grant`.
    fn next(&mut self) -> Option<Claimant> {
        if self.queue.is_empty() {
            return None;
        }
        self.pools.forget_notes();
        for (rank, &claimant) in &self.queue {
            let shares = &self.members[&claimant].shares;
            if self.pools.suffice(shares) {
                return Some(claimant);
            }
            self.pools.pass_over(shares);
            if let QueuePosition::Overdue { .. } = rank {
                self.pools.promise(shares);
            }
        }
        None
    }

    fn grant(&mut self, claimant: Claimant) {
        let Some(member) = self.members.get_mut(&claimant) else { return };
        if let ClaimState::Queued { rank, .. } = mem::replace(&mut member.state, ClaimState::Holding) {
            self.queue.remove(&rank);
        }
        let shares = Arc::clone(&member.shares);
        self.pools.take(&shares, member.score);
        self.count_down_others(&shares);
    }

    /// Counts a grant of `shares` for all who wait for some of the same.
    fn count_down_others(&mut self, shares: &[ResourceShare]) {
        let mut overdue = Vec::new();
        for (&place, waiting) in &self.queue {
            let Some(member) = self.members.get_mut(waiting) else { continue };
            let ClaimState::Queued { rank: rank @ QueuePosition::InTurn { .. }, grants_until_overdue } =
                &mut member.state
            else {
                continue;
            };
            if !compete(&member.shares, shares) {
                continue;
            }
            *grants_until_overdue = grants_until_overdue.saturating_sub(1);
            if *grants_until_overdue == 0 {
                *rank = QueuePosition::Overdue { ticket: self.tickets };
                self.tickets += 1;
                overdue.push((place, *rank));
            }
        }
        for (place, rank) in overdue {
            if let Some(claimant) = self.queue.remove(&place) {
                self.queue.insert(rank, claimant);
            }
        }
    }
}
