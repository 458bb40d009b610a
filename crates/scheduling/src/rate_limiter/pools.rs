//! The pools of resource units, one for each resource within its scope.
//!
//! A pool counts units and keeps its clock. During one scan of the queue it also notes how many units are promised to
//! claims further ahead, and whether the scan passed over one of those claims.
use std::{collections::BTreeMap, sync::Arc};

use super::resources::{Capacities, InstanceDevice, ResourceScope, Resources, Shortage};

/// Units of one pool that a claimant holds while a batch runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResourceShare {
    pool: usize,
    count: u32,
}

/// How much of a resource is in use, for people who look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceUse<'a> {
    /// The name of the resource.
    pub name: &'a str,
    /// The device of the units. `None`: the whole server shares them.
    pub device: Option<InstanceDevice>,
    /// The number of units.
    pub capacity: u32,
    /// The number of units in use.
    pub used: u64,
}

/// Whether two claimants need units of the same pool.
pub(super) fn compete(one: &[ResourceShare], other: &[ResourceShare]) -> bool {
    one.iter().any(|share| other.iter().any(|theirs| theirs.pool == share.pool))
}

/// All pools of a rate limiter. A pool without users is reused for the next resource that needs one.
#[derive(Debug)]
pub(super) struct Pools {
    capacities: Capacities,
    pools: Vec<Pool>,
}

#[derive(Debug)]
struct Pool {
    name: String,
    scope: ResourceScope,
    capacity: u32,
    /// The number of units that each registered claimant needs, in no order.
    demands: Vec<u32>,
    /// Units in use. This exceeds the capacity only after the capacity has shrunk.
    used: u64,
    /// The score up to which its users have had their turns. It never decreases.
    clock: u128,
    promised: u64,
    passed_over: bool,
}

impl Pools {
    pub(super) fn new(capacities: Capacities) -> Self {
        Self { capacities, pools: Vec::new() }
    }

    /// Registers the needs of a claimant. On failure nothing changes.
    pub(super) fn enter(&mut self, resources: &Resources) -> Result<Arc<[ResourceShare]>, Shortage> {
        let mut needs = BTreeMap::new();
        for need in &resources.needs {
            // As Triton: rate_limiter.cc, ResourceManager::AddModelInstance: the last need of a name counts.
            needs.insert((ResourceScope::of(need, resources.device), need.name.as_str()), need.count);
        }
        for (&(scope, name), &required) in &needs {
            if let Some(limit) = self.capacities.limit(name, scope).filter(|&limit| limit < required) {
                return Err(Shortage::Limited { resource: name.to_owned(), limit, required });
            }
        }
        let used =
            self.pools.iter().filter(|pool| pool.is_used()).map(|pool| (pool.scope, pool.name.as_str()));
        let scopes: Vec<_> = used.chain(needs.keys().copied()).collect();
        for &(scope, name) in needs.keys() {
            let differs =
                |&(other, its): &(ResourceScope, &str)| its == name && other.is_global() != scope.is_global();
            if scopes.iter().any(differs) {
                return Err(Shortage::Conflict { resource: name.to_owned() });
            }
        }
        Ok(needs.into_iter().map(|((scope, name), count)| self.share(name, scope, count)).collect())
    }

    fn share(&mut self, name: &str, scope: ResourceScope, count: u32) -> ResourceShare {
        let known = |pool: &Pool| pool.scope == scope && pool.name == name;
        let found = self.pools.iter().position(known);
        let pool = found.unwrap_or_else(|| self.open(Pool::new(name, scope)));
        let limit = self.capacities.limit(name, scope);
        self.pools[pool].demands.push(count);
        self.pools[pool].measure(limit);
        ResourceShare { pool, count }
    }

    fn open(&mut self, pool: Pool) -> usize {
        if let Some(free) = self.pools.iter().position(|pool| !pool.is_used()) {
            self.pools[free] = pool;
            return free;
        }
        self.pools.push(pool);
        self.pools.len() - 1
    }

    /// Removes the needs of a claimant that holds nothing.
    pub(super) fn leave(&mut self, shares: &[ResourceShare]) {
        for share in shares {
            let pool = &mut self.pools[share.pool];
            let demand = pool.demands.iter().position(|&demand| demand == share.count);
            debug_assert!(demand.is_some(), "a claimant leaves a pool it has not entered");
            if let Some(demand) = demand {
                pool.demands.swap_remove(demand);
            }
            let limit = self.capacities.limit(&pool.name, pool.scope);
            pool.measure(limit);
        }
    }

    /// The pools that somebody needs.
    pub(super) fn used(&self) -> impl Iterator<Item = ResourceUse<'_>> {
        self.pools.iter().filter(|pool| pool.is_used()).map(|pool| ResourceUse {
            name: &pool.name,
            device: pool.scope.device(),
            capacity: pool.capacity,
            used: pool.used,
        })
    }

    /// The number of other claimants that share a resource. A claimant that shares several resources counts several
    /// times.
    pub(super) fn competitors(&self, shares: &[ResourceShare]) -> usize {
        shares.iter().map(|share| self.pools[share.pool].demands.len().saturating_sub(1)).sum()
    }

    /// The latest clock of these pools.
    pub(super) fn clock(&self, shares: &[ResourceShare]) -> u128 {
        shares.iter().map(|share| self.pools[share.pool].clock).max().unwrap_or(0)
    }

    /// Starts a scan of the queue.
    pub(super) fn forget_notes(&mut self) {
        for pool in &mut self.pools {
            pool.promised = 0;
            pool.passed_over = false;
        }
    }

    /// Whether enough units are free beside the promised ones.
    pub(super) fn suffice(&self, shares: &[ResourceShare]) -> bool {
        shares.iter().all(|share| {
            let pool = &self.pools[share.pool];
            let left = u64::from(pool.capacity).saturating_sub(pool.used + pool.promised);
            u64::from(share.count) <= left
        })
    }

    /// Notes that a claim must wait.
    pub(super) fn pass_over(&mut self, shares: &[ResourceShare]) {
        for share in shares {
            self.pools[share.pool].passed_over = true;
        }
    }

    /// Notes that the units a claim needs are not available to claims behind it.
    pub(super) fn promise(&mut self, shares: &[ResourceShare]) {
        for share in shares {
            self.pools[share.pool].promised += u64::from(share.count);
        }
    }

    /// Takes the units for the claim at which the scan has stopped.
    pub(super) fn take(&mut self, shares: &[ResourceShare], score: u128) {
        debug_assert!(self.suffice(shares), "more is granted than there is");
        for share in shares {
            let pool = &mut self.pools[share.pool];
            pool.used += u64::from(share.count);
            // While a claim with a lower score waits, the clock stays at that claim's turn.
            if !pool.passed_over {
                pool.clock = pool.clock.max(score);
            }
        }
    }

    /// Returns the units that `take` took.
    pub(super) fn put_back(&mut self, shares: &[ResourceShare]) {
        for share in shares {
            let pool = &mut self.pools[share.pool];
            debug_assert!(pool.used >= u64::from(share.count), "more comes back than was granted");
            pool.used = pool.used.saturating_sub(share.count.into());
        }
    }
}

impl Pool {
    fn new(name: &str, scope: ResourceScope) -> Self {
        Self {
            name: name.to_owned(),
            scope,
            capacity: 0,
            demands: Vec::new(),
            used: 0,
            clock: 0,
            promised: 0,
            passed_over: false,
        }
    }

    fn is_used(&self) -> bool {
        !self.demands.is_empty()
    }

    /// Sets the capacity. Without a limit, the capacity is the largest need.
    fn measure(&mut self, limit: Option<u32>) {
        self.capacity = limit.unwrap_or_else(|| self.demands.iter().copied().max().unwrap_or(0));
    }
}
