//! Claims, grants and the queue between them.
use std::{collections::BTreeMap, iter::Chain, mem, num::NonZeroU32, option, sync::Arc, vec};

use super::pools::{Pools, ResourceShare, ResourceUse, compete};
use super::resources::{Capacities, Resources, Shortage};

/// A registered user of resources: an instance of some model. The limiter never uses its number again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claimant(u64);

/// The answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only who is granted may run"]
pub enum Claim {
    /// The claimant holds all that it needs, until it releases it.
    Granted,
    /// The claim waits. A later call returns the claimant when its claim is granted.
    Queued,
}

/// Claimants whose waiting claims a call has granted, in this order. A list of at most one claimant needs no
/// allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "these claimants wait to be told"]
pub struct Grants {
    first: Option<Claimant>,
    more: Vec<Claimant>,
}

impl Grants {
    /// Whether the call granted no claim.
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
/// A claimant is idle, waits, or holds what it needs. A call that does not suit the state of the claimant changes
/// nothing. A call for an unknown claimant changes nothing either, and its claim is never granted.
#[derive(Debug)]
pub struct RateLimiter {
    pools: Pools,
    members: BTreeMap<Claimant, ClaimantEntry>,
    queue: BTreeMap<QueuePosition, Claimant>,
    registered: u64,
    /// The number of tickets issued. A claim gets one when it starts to wait, and another when it becomes overdue.
    tickets: u64,
}

#[derive(Debug)]
struct ClaimantEntry {
    shares: Arc<[ResourceShare]>,
    priority: NonZeroU32,
    /// The score without the head start.
    score: u128,
    state: ClaimState,
}

#[derive(Debug, Clone, Copy)]
enum ClaimState {
    Idle,
    Queued {
        rank: QueuePosition,
        /// The number of grants to competitors after which the claim is overdue.
        grants_until_overdue: u64,
    },
    Holding,
}

/// A position in the queue. The limiter looks at the smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QueuePosition {
    Overdue { ticket: u64 },
    InTurn { score: u128, ticket: u64 },
}

impl RateLimiter {
    /// How often each competitor may run before a claim is overdue: on average, and for each unit of the claim's
    /// priority. The number is large enough that the order by score alone holds where no claim is overtaken: there,
    /// each competitor runs at most twice for each unit of priority until the claim's turn comes.
    pub const ROUNDS: u64 = 4;
    /// Executions that count for each claimant before its first one.
    // As Triton: backend_model_instance.cc, InitAndWarmUpModelInstance: one for initialisation and one for warm-up.
    pub const HEAD_START: u64 = 2;

    /// Starts without claimants.
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

    /// Registers a claimant as idle. If no capacities are configured, the registration may raise a capacity. Then
    /// waiting claims may be granted.
    ///
    /// # Errors
    /// Refuses a claimant that could never be granted what it needs, or that uses the name of a resource in another
    /// sense. The limiter checks limits before conflicts, global resources before others, and names in their order.
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

    /// Removes a claimant. The resources that it holds become free. Its waiting claim is dropped.
    pub fn unregister(&mut self, claimant: Claimant) -> Grants {
        self.withdraw(claimant);
        let Some(member) = self.members.remove(&claimant) else { return Grants::default() };
        self.pools.leave(&member.shares);
        self.grant_what_fits()
    }

    /// The resources that claimants need, and how much of each is in use.
    pub fn resources(&self) -> impl Iterator<Item = ResourceUse<'_>> {
        self.pools.used()
    }

    /// The number of claims that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Claims all that the claimant needs. If the claimant already waits, its claim keeps its position. If it already
    /// holds everything, the answer is [`Claim::Granted`]. A claimant that was notified of a grant may therefore
    /// claim again to be sure.
    pub fn claim(&mut self, claimant: Claimant) -> Claim {
        let (claim, others) = self.queue_up(claimant);
        debug_assert!(others.is_empty(), "a claim makes no room for others");
        claim
    }

    /// Ends an execution: adds it to the score and releases all resources of the claimant.
    pub fn release(&mut self, claimant: Claimant) -> Grants {
        if !self.finish(claimant) {
            return Grants::default();
        }
        self.grant_what_fits()
    }

    /// Ends an execution and claims for the next one: [`release`](Self::release) and [`claim`](Self::claim) in one
    /// step. Returns the grants of other claimants too.
    ///
    /// A claimant that always has work keeps its share only with this call. Between a release and a separate claim
    /// only the other claimants would compete, and each would receive what the release makes free.
    pub fn renew(&mut self, claimant: Claimant) -> (Claim, Grants) {
        self.finish(claimant);
        self.queue_up(claimant)
    }

    /// Withdraws a claim, whether it waits or was granted and not used. The score does not change.
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

    /// Takes back what the claimant holds, and adds one execution to its score. Returns `false` if it holds nothing.
    fn finish(&mut self, claimant: Claimant) -> bool {
        let Some(member) = self.members.get_mut(&claimant) else { return false };
        if !matches!(member.state, ClaimState::Holding) {
            return false;
        }
        member.score = member.score.saturating_add(member.priority.get().into());
        self.withdraw(claimant)
    }

    /// Makes the claimant idle. Returns `false` if it was idle already, or is unknown.
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
        // The search restarts each time, because a grant may make a waiting claim overdue.
        while let Some(claimant) = self.next() {
            self.grant(claimant);
            grants.push(claimant);
        }
        grants
    }

    /// The first claimant in the queue whose needs are all free. `grant` uses the notes that the pools took during
    /// this search.
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

    /// Counts a grant of `shares` for all waiting claims that need one of the same pools.
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
