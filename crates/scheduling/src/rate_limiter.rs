//! The rate limiter decides which instances may run a batch now, when instances share resources.
//!
//! It is arithmetic only. An instance is a [`Claimant`]: it claims its resources before it runs a batch, and releases
//! them afterwards. The limiter grants a claim if all resources of the claim are free. Otherwise the claim waits.
//! Each call grants every claim that can be granted, and returns the claimants that it granted.
//!
//! **Order.** The limiter looks at waiting claims by score, lowest first, then first come, first served. A score is
//! the number of the claimant's executions times its priority. Under contention a claimant of priority 2 therefore
//! runs half as often as one of priority 1. Each claimant starts as if it had run [`RateLimiter::HEAD_START`] times,
//! so that claimants with a low priority number run first. A claimant gains no credit while it does not compete. For
//! this, each resource has a clock: the score of the last claim that was granted in its turn. A claim's score is at
//! least the clock. A new or long idle claimant therefore cannot shut out the others until it has caught up. A
//! claimant may link resources whose users run at different rates. Then the latest clock counts, and on the slower
//! resources the claimant waits until it is overdue.
//!
//! **No blocking.** The limiter grants every claim that fits, even if claims with a lower score must wait because
//! they need more. A claim waits in this way only for a limited number of grants. The competitors of a claim are the
//! claimants with which it shares a resource. The claim is overdue when its competitors have received, for each of
//! them, [`RateLimiter::ROUNDS`] grants times the priority of the claim. Overdue claims come first, in the order in
//! which they became overdue, and the limiter grants their resources to no claim behind them. An overdue claim is
//! thus granted at the latest when two groups of claimants have released: those that held something when it became
//! overdue, and those that were overdue before it. (If capacities shrink meanwhile, the claimants that hold something
//! then count too.)
//!
//! The limiter deliberately contains no time and no queues of requests. It does not notify the granted claimants.
mod limiter;
mod pools;
mod resources;

pub use limiter::{Claim, Claimant, Grants, RateLimiter};
pub use pools::ResourceUse;
pub use resources::{Capacities, Capacity, InstanceDevice, Need, Resources, Shortage};
