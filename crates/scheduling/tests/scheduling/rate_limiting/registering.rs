//! Tests which claimants the limiter registers, and the capacities that result.
use scheduling::{Claim, InstanceDevice, Need, Resources, Shortage};

use super::{limiter, needs, on, priority, register, try_register, unlimited};

fn limited(resource: &str, limit: u32, required: u32) -> Shortage {
    Shortage::Limited { resource: resource.to_owned(), limit, required }
}

fn conflict(resource: &str) -> Shortage {
    Shortage::Conflict { resource: resource.to_owned() }
}

#[test]
fn a_claimant_that_needs_more_than_the_capacity_is_refused() {
    for limit in [1, 3] {
        let refused = try_register(&mut limiter(&[("r", limit, None)]), &needs(&[("r", 4)]));
        assert_eq!(refused, Err(limited("r", limit, 4)));
    }
    assert!(try_register(&mut limiter(&[("r", 4, None)]), &needs(&[("r", 4)])).is_ok());
}

#[test]
fn units_of_another_device_do_not_count() {
    let refused = try_register(&mut limiter(&[("r", 4, Some(10))]), &needs(&[("r", 4)]));
    assert_eq!(refused, Err(limited("r", 0, 4)));
}

#[test]
fn a_claimant_of_an_unlisted_resource_is_refused() {
    let mut limiter = limiter(&[("r", 4, None)]);
    assert_eq!(try_register(&mut limiter, &needs(&[("s", 1)])), Err(limited("s", 0, 1)));
    assert!(try_register(&mut limiter, &needs(&[("s", 0)])).is_ok());
}

#[test]
fn a_resource_is_global_or_not() {
    let both = |name: &str| {
        let need = |global| Need { name: name.to_owned(), global, count: 1 };
        Resources { needs: vec![need(true), need(false)], device: InstanceDevice::Cpu }
    };
    assert_eq!(try_register(&mut unlimited(), &both("r")), Err(conflict("r")));

    let own = Resources { needs: vec![both("r").needs.remove(1)], device: InstanceDevice::Gpu(3) };
    let global = Resources { needs: vec![both("r").needs.remove(0)], device: InstanceDevice::Cpu };
    for (first, second) in [(&own, &global), (&global, &own)] {
        let mut limiter = unlimited();
        let claimant = register(&mut limiter, first);
        assert_eq!(try_register(&mut limiter, second), Err(conflict("r")));
        assert!(limiter.unregister(claimant).is_empty());
        assert!(try_register(&mut limiter, second).is_ok(), "nobody means the other any more");
    }
}

#[test]
fn a_refused_claimant_changes_nothing() {
    let mut limiter = limiter(&[("r", 4, None), ("global", 1, None)]);
    assert_eq!(try_register(&mut limiter, &needs(&[("global", 2), ("r", 4)])), Err(limited("global", 1, 2)));
    let own = Resources {
        needs: vec![Need { name: "global".to_owned(), global: false, count: 1 }],
        device: InstanceDevice::Cpu,
    };
    assert!(try_register(&mut limiter, &own).is_ok());
}

#[test]
fn the_last_of_repeated_needs_counts() {
    let mut limiter = limiter(&[("r", 4, None)]);
    assert!(try_register(&mut limiter, &needs(&[("r", 9), ("r", 4)])).is_ok());
    assert_eq!(try_register(&mut limiter, &needs(&[("r", 4), ("r", 9)])), Err(limited("r", 4, 9)));
}

#[test]
fn capacity_follows_the_largest_need() {
    let mut limiter = unlimited();
    let small: Vec<_> = (0..3).map(|_| register(&mut limiter, &needs(&[("r", 2)]))).collect();
    assert_eq!(limiter.claim(small[0]), Claim::Granted);
    assert_eq!(limiter.claim(small[1]), Claim::Queued);

    let (large, grants) = limiter.register(&needs(&[("r", 4)]), priority(1)).expect("nothing is limited");
    assert!(grants.into_iter().eq([small[1]]), "there is room now");
    assert!(limiter.unregister(large).is_empty());
    assert_eq!(limiter.claim(small[2]), Claim::Queued);
    assert!(limiter.release(small[0]).is_empty(), "two units are left, and these are in use");
    assert!(limiter.release(small[1]).into_iter().eq([small[2]]));
}

#[test]
fn the_host_does_not_share_with_the_first_gpu() {
    let mut limiter = limiter(&[("r", 2, Some(0))]);
    let host = register(&mut limiter, &on(InstanceDevice::Cpu, &[("r", 2)]));
    let gpu = register(&mut limiter, &on(InstanceDevice::Gpu(0), &[("r", 2)]));
    let second = register(&mut limiter, &on(InstanceDevice::Gpu(0), &[("r", 1)]));
    assert_eq!(limiter.claim(host), Claim::Granted);
    assert_eq!(limiter.claim(gpu), Claim::Granted);
    assert_eq!(limiter.claim(second), Claim::Queued);
}

#[test]
fn a_model_that_knows_its_device_itself_shares_with_the_host() {
    let mut limiter = limiter(&[("r", 2, None)]);
    let [host, model] = [InstanceDevice::Cpu, InstanceDevice::Model]
        .map(|device| register(&mut limiter, &on(device, &[("r", 2)])));
    assert_eq!([limiter.claim(host), limiter.claim(model)], [Claim::Granted, Claim::Queued]);
}

#[test]
fn devices_have_their_own_units_and_global_ones_are_shared() {
    let mut limiter = limiter(&[("r", 2, None), ("global", 2, None)]);
    let first = register(&mut limiter, &on(InstanceDevice::Gpu(0), &[("r", 2), ("global", 1)]));
    let second = register(&mut limiter, &on(InstanceDevice::Gpu(1), &[("r", 2), ("global", 1)]));
    let third = register(&mut limiter, &on(InstanceDevice::Gpu(2), &[("r", 2), ("global", 1)]));
    assert_eq!(limiter.claim(first), Claim::Granted);
    assert_eq!(limiter.claim(second), Claim::Granted);
    assert_eq!(limiter.claim(third), Claim::Queued);
    assert!(limiter.release(second).into_iter().eq([third]));
}

#[test]
fn a_claimant_without_needs_never_waits() {
    let mut limiter = limiter(&[("r", 1, None)]);
    let holder = register(&mut limiter, &needs(&[("r", 1)]));
    let waiting = register(&mut limiter, &needs(&[("r", 1)]));
    let modest = register(&mut limiter, &needs(&[]));
    assert_eq!(limiter.claim(holder), Claim::Granted);
    assert_eq!(limiter.claim(waiting), Claim::Queued);
    assert_eq!(limiter.claim(modest), Claim::Granted);
}
