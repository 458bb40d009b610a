//! Tests the share of time of each claimant when the resources do not suffice for all.
use scheduling::{InstanceDevice, RateLimiter};

use super::{
    limiter, needs, on,
    simulation::{Simulation, WorkerId},
    unlimited,
};

const PLENTY: u64 = 1_000_000;

/// Two models with 80 batches each. The second has priority 2 and smaller needs. Returns the number of batches that
/// each has run when the first of them has finished.
fn two_models(limiter: RateLimiter) -> (u64, u64) {
    let mut simulation = Simulation::new(limiter);
    let a = simulation.add_worker(&needs(&[("r", 4)]), 1, 100);
    let b = simulation.add_worker(&needs(&[("r", 2), ("global", 2)]), 2, 100);
    simulation.give(a, 80);
    simulation.give(b, 80);
    simulation.run_until(|simulation| simulation.done(a) == 80 || simulation.done(b) == 80);
    (simulation.done(a), simulation.done(b))
}

#[test]
fn under_contention_priority_two_runs_half_as_often() {
    for limiter in [unlimited(), limiter(&[("r", 4, None), ("global", 2, None)])] {
        let (a, b) = two_models(limiter);
        assert!((39..=41).contains(&b), "{a} to {b}");
    }
}

#[test]
fn without_contention_priorities_have_no_effect() {
    let (a, b) = two_models(limiter(&[("r", 6, None), ("global", 2, None)]));
    assert!(a.abs_diff(b) <= 1, "{a} to {b}");
}

#[test]
fn two_instances_take_twice_as_long_where_only_one_may_run() {
    let takes = |capacity| {
        let mut simulation = Simulation::new(limiter(&[("r", capacity, None)]));
        for _ in 0..2 {
            let instance = simulation.add_worker(&needs(&[("r", 1)]), 1, 100);
            simulation.give(instance, 10);
        }
        while simulation.step() {}
        simulation.now
    };
    assert_eq!([takes(1), takes(2)], [2000, 1000]);
}

#[test]
fn shares_follow_priorities() {
    let mut simulation = Simulation::new(unlimited());
    let workers = [1, 2, 3].map(|priority| simulation.add_worker(&needs(&[("r", 1)]), priority, 10));
    for worker in workers {
        simulation.give(worker, PLENTY);
    }
    simulation.run_until(|simulation| simulation.now == 11_000);
    let done = workers.map(|worker| simulation.done(worker));
    for (done, fair) in done.into_iter().zip([600, 300, 200]) {
        assert!(done.abs_diff(fair) <= 2, "{done} instead of {fair}");
    }
}

#[test]
fn a_new_claimant_does_not_catch_up() {
    // A resource of its own must not give the newcomer an advantage either.
    for newcomer in [needs(&[("r", 1)]), needs(&[("r", 1), ("s", 1)])] {
        let mut simulation = Simulation::new(unlimited());
        let old = simulation.add_worker(&needs(&[("r", 1)]), 1, 10);
        simulation.give(old, PLENTY);
        simulation.run_until(|simulation| simulation.done(old) == 1000);
        let new = simulation.add_worker(&newcomer, 1, 10);
        simulation.give(new, PLENTY);
        simulation.run_until(|simulation| simulation.done(old) == 1100);
        assert!(simulation.done(new).abs_diff(100) <= 1, "{}", simulation.done(new));
    }
}

#[test]
fn a_new_claimant_has_no_disadvantage() {
    let mut simulation = Simulation::new(unlimited());
    let old = [1, 1].map(|priority| simulation.add_worker(&needs(&[("r", 1)]), priority, 10));
    for worker in old {
        simulation.give(worker, PLENTY);
    }
    simulation.run_until(|simulation| simulation.now == 10_000);
    let new = simulation.add_worker(&needs(&[("r", 1)]), 1, 10);
    simulation.give(new, PLENTY);
    simulation.run_until(|simulation| simulation.now == 10_040);
    assert_eq!(simulation.done(new), 1);
}

#[test]
fn an_idle_claimant_gains_no_advantage() {
    let mut simulation = Simulation::new(unlimited());
    let [awake, asleep] = [1, 1].map(|priority| simulation.add_worker(&needs(&[("r", 1)]), priority, 10));
    simulation.give(asleep, 1);
    simulation.give(awake, PLENTY);
    simulation.run_until(|simulation| simulation.done(awake) == 1000);
    simulation.give(asleep, PLENTY);
    simulation.run_until(|simulation| simulation.done(awake) == 1100);
    assert!(simulation.done(asleep).abs_diff(101) <= 1, "{}", simulation.done(asleep));
}

#[test]
fn each_resource_has_its_own_clock() {
    let mut simulation = Simulation::new(unlimited());
    let fast = simulation.add_worker(&on(InstanceDevice::Gpu(0), &[("r", 1)]), 1, 1);
    let slow = [1, 2]
        .map(|priority| simulation.add_worker(&on(InstanceDevice::Gpu(1), &[("r", 1)]), priority, 1000));
    simulation.give(fast, PLENTY);
    for worker in slow {
        simulation.give(worker, PLENTY);
    }
    simulation.run_until(|simulation| simulation.now == 90_000);
    let newcomer = simulation.add_worker(&on(InstanceDevice::Gpu(0), &[("r", 1)]), 1, 1);
    simulation.give(newcomer, PLENTY);
    let before = simulation.done(fast);
    simulation.run_until(|simulation| simulation.now == 90_200);
    assert!(simulation.done(newcomer).abs_diff(100) <= 1, "the slow ones do not hold the fast one's clock");
    assert!((simulation.done(fast) - before).abs_diff(100) <= 1);
    assert!(simulation.done(slow[0]).abs_diff(60) <= 1, "the fast one does not push the slow ones' clock");
}

#[test]
fn a_large_claim_gets_its_share_among_small_ones() {
    let mut simulation = Simulation::new(limiter(&[("r", 4, None)]));
    let small: Vec<_> =
        (0..8).map(|number| simulation.add_worker(&needs(&[("r", 1)]), 1, 90 + 3 * number)).collect();
    let large = simulation.add_worker(&needs(&[("r", 4)]), 1, 100);
    for &worker in &small {
        simulation.give(worker, PLENTY);
    }
    simulation.give(large, PLENTY);
    simulation.run_until(|simulation| simulation.now >= 100_000);
    let counts: Vec<_> = small.iter().map(|&worker| simulation.done(worker)).collect();
    let most = counts.iter().max().expect("there are some");
    assert!(simulation.done(large) * 11 > most * 10, "{} against {counts:?}", simulation.done(large));
}

/// Two pairs of claimants share no resource and run at different rates. Then a claimant arrives that needs the
/// resources of both pairs. Returns how often this claimant has run at the end, and how often each claimant of the
/// slow pair has run since.
fn join_two_crowds(fast_batches: u64) -> (u64, [u64; 2]) {
    let mut simulation = Simulation::new(unlimited());
    let fast = [1, 1].map(|priority| simulation.add_worker(&needs(&[("fast", 1)]), priority, 1));
    let slow = [1, 1].map(|priority| simulation.add_worker(&needs(&[("slow", 1)]), priority, 50));
    for worker in fast {
        simulation.give(worker, fast_batches);
    }
    for worker in slow {
        simulation.give(worker, PLENTY);
    }
    simulation.run_until(|simulation| simulation.now >= 10_000);
    let both = simulation.add_worker(&needs(&[("fast", 1), ("slow", 1)]), 1, 10);
    simulation.give(both, PLENTY);
    let before = slow.map(|worker| simulation.done(worker));
    simulation.run_until(|simulation| simulation.now >= 21_000);
    (simulation.done(both), [0, 1].map(|index| simulation.done(slow[index]) - before[index]))
}

#[test]
fn a_claimant_of_two_resources_gets_turns_and_at_most_every_second_one() {
    let (both, slow) = join_two_crowds(PLENTY);
    for slow in slow {
        assert!(both >= slow && both <= 2 * slow + 2, "{both} against {slow}");
    }
}

#[test]
fn resources_that_share_a_claimant_share_their_virtual_time() {
    let (both, slow) = join_two_crowds(5_100);
    for slow in slow {
        assert!(both.abs_diff(slow) <= 5, "{both} against {slow}");
    }
}

/// A client that keeps eight requests in flight until it has sent eighty, or another client has.
struct Client {
    worker: WorkerId,
    sent: u64,
    stops: bool,
}

impl Client {
    fn send(&mut self, simulation: &mut Simulation) {
        self.sent += 1;
        simulation.give(self.worker, 1);
    }

    /// Sends as many requests as allowed. If `stop` is set, the client sends one more request and then stops.
    fn go_on(&mut self, simulation: &mut Simulation, stop: bool) {
        while !self.stops && self.sent - simulation.done(self.worker) < 8 {
            self.send(simulation);
            self.stops = stop || self.sent == 80;
        }
    }
}

#[test]
fn priorities_one_and_two_run_80_to_44_as_in_the_reference() {
    for first in [0, 1] {
        let mut simulation = Simulation::new(limiter(&[("r", 1, None)]));
        let client = |worker| Client { worker, sent: 0, stops: false };
        let mut clients =
            [1, 2].map(|priority| client(simulation.add_worker(&needs(&[("r", 1)]), priority, 100)));
        clients[first].go_on(&mut simulation, false);
        clients[1 - first].go_on(&mut simulation, false);
        while simulation.step() {
            for index in [0, 1] {
                let stop = clients.iter().any(|client| client.sent == 80);
                clients[index].go_on(&mut simulation, stop);
            }
        }
        assert_eq!(clients.map(|client| simulation.done(client.worker)), [80, 44], "client {first} begins");
    }
}
