//! Tests of instances that share resources: capacities, turns, shares, and the promises in every history.
use std::num::NonZeroU32;

use scheduling::{Capacities, Capacity, Claimant, InstanceDevice, Need, RateLimiter, Resources, Shortage};

mod batching;
mod histories;
mod registering;
mod sharing;
mod simulation;
mod turns;

/// The needs of an instance on the host. A name with the prefix `global` belongs to a global resource.
fn needs(needs: &[(&str, u32)]) -> Resources {
    on(InstanceDevice::Cpu, needs)
}

fn on(device: InstanceDevice, needs: &[(&str, u32)]) -> Resources {
    let need = |&(name, count): &(&str, u32)| Need {
        name: name.to_owned(),
        global: name.starts_with("global"),
        count,
    };
    Resources { needs: needs.iter().map(need).collect(), device }
}

fn limiter(capacities: &[(&str, u32, Option<u32>)]) -> RateLimiter {
    let capacity =
        |&(name, count, device): &(&str, u32, _)| Capacity { name: name.to_owned(), count, device };
    RateLimiter::new(capacities.iter().map(capacity).collect())
}

/// Each capacity is the largest need of a claimant.
fn unlimited() -> RateLimiter {
    RateLimiter::new(Capacities::default())
}

fn priority(priority: u32) -> NonZeroU32 {
    NonZeroU32::new(priority).expect("priorities in tests are not 0")
}

fn try_register(limiter: &mut RateLimiter, needs: &Resources) -> Result<Claimant, Shortage> {
    limiter.register(needs, priority(1)).map(|(claimant, grants)| {
        assert!(grants.is_empty(), "nobody waits for a registration");
        claimant
    })
}

fn register(limiter: &mut RateLimiter, needs: &Resources) -> Claimant {
    try_register(limiter, needs).expect("there is enough")
}
