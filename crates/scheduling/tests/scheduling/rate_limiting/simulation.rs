//! Simulates instances that need a constant time for each batch, on a virtual clock. It drives them as the engine
//! does.
use std::{cmp::Reverse, collections::BinaryHeap};

use scheduling::{Claim, Claimant, Grants, RateLimiter, Resources};

use super::priority;

/// The simulation's own number of a worker, in the order in which workers were added.
pub(crate) type WorkerId = usize;

pub(crate) struct Simulation {
    pub(crate) limiter: RateLimiter,
    pub(crate) now: u64,
    workers: Vec<Worker>,
    /// The time at which each running worker finishes.
    running: BinaryHeap<Reverse<(u64, WorkerId)>>,
}

struct Worker {
    claimant: Claimant,
    batch_takes: u64,
    waiting: u64,
    done: u64,
}

impl Simulation {
    pub(crate) fn new(limiter: RateLimiter) -> Self {
        Self { limiter, now: 0, workers: Vec::new(), running: BinaryHeap::new() }
    }

    pub(crate) fn add_worker(&mut self, needs: &Resources, its_priority: u32, batch_takes: u64) -> WorkerId {
        let (claimant, grants) =
            self.limiter.register(needs, priority(its_priority)).expect("there is enough");
        self.workers.push(Worker { claimant, batch_takes, waiting: 0, done: 0 });
        self.start(grants);
        self.workers.len() - 1
    }

    /// Gives the worker batches to run. If it already has batches, these are added.
    pub(crate) fn give(&mut self, worker: WorkerId, batches: u64) {
        self.workers[worker].waiting += batches;
        let busy = self.running.iter().any(|Reverse((_, running))| *running == worker);
        if !busy && self.limiter.claim(self.workers[worker].claimant) == Claim::Granted {
            self.run(worker);
        }
    }

    pub(crate) fn done(&self, worker: WorkerId) -> u64 {
        self.workers[worker].done
    }

    /// Ends the next batch. Returns `false` if no batch runs.
    pub(crate) fn step(&mut self) -> bool {
        let Some(Reverse((at, worker))) = self.running.pop() else { return false };
        self.now = at;
        self.workers[worker].done += 1;
        let Worker { claimant, waiting, .. } = self.workers[worker];
        if waiting == 0 {
            let grants = self.limiter.release(claimant);
            self.start(grants);
            return true;
        }
        let (claim, grants) = self.limiter.renew(claimant);
        if claim == Claim::Granted {
            self.run(worker);
        }
        self.start(grants);
        true
    }

    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            assert!(self.step(), "nothing runs any more");
        }
    }

    fn start(&mut self, grants: Grants) {
        for claimant in grants {
            let worker = self.workers.iter().position(|worker| worker.claimant == claimant);
            self.run(worker.expect("only workers are granted something"));
        }
    }

    fn run(&mut self, id: WorkerId) {
        let worker = &mut self.workers[id];
        worker.waiting -= 1;
        self.running.push(Reverse((self.now + worker.batch_takes, id)));
    }
}
