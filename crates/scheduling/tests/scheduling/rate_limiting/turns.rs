//! Tests of the order of claims and grants, and of how long small claims may overtake a large one.
use scheduling::{Claim, Claimant, RateLimiter};

use super::{limiter, needs, priority, register};

/// Claimants that need these counts, of six units each.
fn crowd<const N: usize>(counts: [u32; N]) -> (RateLimiter, [Claimant; N]) {
    let mut limiter = limiter(&[("r", 6, None)]);
    let claimants = counts.map(|count| register(&mut limiter, &needs(&[("r", count)])));
    (limiter, claimants)
}

#[test]
fn equal_claims_are_served_in_order_of_arrival() {
    let (mut limiter, [a, b, c]) = crowd([6, 6, 6]);
    assert_eq!(limiter.claim(a), Claim::Granted);
    assert_eq!(limiter.claim(c), Claim::Queued);
    assert_eq!(limiter.claim(b), Claim::Queued);
    assert!(limiter.release(a).into_iter().eq([c]));
    assert!(limiter.release(c).into_iter().eq([b]));
}

#[test]
fn one_release_may_grant_several_claims() {
    let (mut limiter, [large, a, b, c, d]) = crowd([6, 2, 2, 2, 2]);
    assert_eq!(limiter.claim(large), Claim::Granted);
    for small in [a, b, c, d] {
        assert_eq!(limiter.claim(small), Claim::Queued);
    }
    assert!(limiter.release(large).into_iter().eq([a, b, c]));
    assert!(limiter.release(b).into_iter().eq([d]));
}

#[test]
fn a_claim_that_does_not_fit_does_not_block_others() {
    let (mut limiter, [holder, large, small]) = crowd([4, 6, 2]);
    assert_eq!(limiter.claim(holder), Claim::Granted);
    assert_eq!(limiter.claim(large), Claim::Queued);
    assert_eq!(limiter.claim(small), Claim::Granted);
}

#[test]
fn asking_again_changes_nothing() {
    let (mut limiter, [a, b, c]) = crowd([6, 6, 6]);
    assert_eq!([limiter.claim(a), limiter.claim(a)], [Claim::Granted; 2]);
    assert_eq!([limiter.claim(b), limiter.claim(c), limiter.claim(b)], [Claim::Queued; 3]);
    assert!(limiter.release(b).is_empty(), "it holds nothing");
    assert!(limiter.release(a).into_iter().eq([b]));
    assert_eq!(limiter.claim(b), Claim::Granted, "as it has been told");
}

#[test]
fn a_cancelled_claim_gives_up_its_place() {
    let (mut limiter, [a, b, c]) = crowd([6, 6, 6]);
    assert_eq!(limiter.claim(a), Claim::Granted);
    assert_eq!([limiter.claim(b), limiter.claim(c)], [Claim::Queued; 2]);
    assert!(limiter.cancel(b).is_empty());
    assert!(limiter.release(a).into_iter().eq([c]));
    assert_eq!(limiter.claim(b), Claim::Queued);
}

#[test]
fn a_grant_that_is_not_used_goes_to_the_next_and_costs_nothing() {
    let (mut limiter, [a, b]) = crowd([6, 6]);
    assert_eq!([limiter.claim(a), limiter.claim(b)], [Claim::Granted, Claim::Queued]);
    assert!(limiter.cancel(a).into_iter().eq([b]));
    assert_eq!(limiter.claim(a), Claim::Queued);
    assert_eq!(limiter.renew(b).0, Claim::Queued, "it has run once, the other never");
    assert_eq!(limiter.claim(a), Claim::Granted);
}

#[test]
fn an_unregistered_claimant_gives_everything_back_and_is_never_granted() {
    let (mut limiter, [a, b, c]) = crowd([6, 6, 6]);
    assert_eq!(limiter.claim(a), Claim::Granted);
    assert_eq!([limiter.claim(b), limiter.claim(c)], [Claim::Queued; 2]);
    assert!(limiter.unregister(b).is_empty());
    assert!(limiter.unregister(a).into_iter().eq([c]));
    assert!(limiter.release(c).is_empty());
    assert_eq!([limiter.claim(a), limiter.renew(b).0], [Claim::Queued; 2]);
    assert!(
        limiter.release(a).is_empty() && limiter.cancel(a).is_empty() && limiter.unregister(a).is_empty()
    );
    assert_eq!(limiter.claim(c), Claim::Granted);
}

#[test]
fn numbers_of_claimants_do_not_come_again() {
    let (mut limiter, [a, b]) = crowd([6, 6]);
    assert!(limiter.unregister(b).is_empty());
    let later = register(&mut limiter, &needs(&[("r", 6)]));
    assert!(later != a && later != b);
}

/// The first claimant holds its resources. It and the second run in turns, with overlap, until one of them must wait.
/// Returns the number of turns, and the claimant that still holds its resources.
fn take_turns(limiter: &mut RateLimiter, [first, second]: [Claimant; 2]) -> (u64, Claimant) {
    let (mut holding, mut other) = (first, second);
    for turns in 0..1000 {
        if limiter.claim(other) == Claim::Queued {
            return (turns, holding);
        }
        assert!(limiter.release(holding).is_empty());
        (holding, other) = (other, holding);
    }
    panic!("nobody becomes overdue");
}

fn grants_until_overdue(large_priority: u32) -> u64 {
    let (mut limiter, [a, b]) = crowd([3, 3]);
    let (large, _) =
        limiter.register(&needs(&[("r", 6)]), priority(large_priority)).expect("there is enough");
    assert_eq!([limiter.claim(a), limiter.claim(large)], [Claim::Granted, Claim::Queued]);
    let (turns, holding) = take_turns(&mut limiter, [a, b]);
    assert!(limiter.release(holding).into_iter().eq([large]), "the other waits behind it");
    turns
}

#[test]
fn a_large_claim_is_passed_four_times_by_each_competitor_and_then_granted() {
    assert_eq!(grants_until_overdue(1), 4 * 2);
}

#[test]
fn a_claim_of_priority_three_is_overdue_three_times_as_late() {
    assert_eq!(grants_until_overdue(3), 4 * 2 * 3);
}

#[test]
fn claims_on_other_resources_do_not_make_a_claim_overdue() {
    let mut limiter = limiter(&[("r", 2, None), ("s", 1, None)]);
    let [holder, small] = [1, 1].map(|count| register(&mut limiter, &needs(&[("r", count)])));
    let large = register(&mut limiter, &needs(&[("r", 2)]));
    let stranger = register(&mut limiter, &needs(&[("s", 1)]));
    assert_eq!([limiter.claim(holder), limiter.claim(large)], [Claim::Granted, Claim::Queued]);
    for _ in 0..1000 {
        assert_eq!(limiter.claim(stranger), Claim::Granted);
        assert!(limiter.release(stranger).is_empty());
    }
    assert_eq!(limiter.claim(small), Claim::Granted);
}

#[test]
fn resources_that_an_overdue_claim_does_not_need_are_granted_to_others() {
    let mut limiter = limiter(&[("r", 6, None), ("s", 3, None)]);
    let [a, b] = [3, 3].map(|count| register(&mut limiter, &needs(&[("r", count)])));
    let [modest, greedy] = [2, 3].map(|count| register(&mut limiter, &needs(&[("s", count)])));
    let overdue = register(&mut limiter, &needs(&[("r", 6), ("s", 1)]));
    assert_eq!([limiter.claim(a), limiter.claim(overdue)], [Claim::Granted, Claim::Queued]);
    let (_, holding) = take_turns(&mut limiter, [a, b]);
    assert_eq!(limiter.claim(greedy), Claim::Queued);
    assert_eq!(limiter.claim(modest), Claim::Granted, "one of three is promised");
    assert!(limiter.release(holding).into_iter().eq([overdue]));
}

#[test]
fn the_claim_that_is_overdue_longest_is_granted_first() {
    let mut limiter = limiter(&[("r", 6, None), ("s", 2, None)]);
    let [a, b] = [3, 3].map(|count| register(&mut limiter, &needs(&[("r", count)])));
    let side = register(&mut limiter, &needs(&[("s", 1)]));
    let (patient, _) = limiter.register(&needs(&[("r", 6), ("s", 1)]), priority(2)).expect("there is enough");
    let large = register(&mut limiter, &needs(&[("r", 6)]));
    assert_eq!(limiter.claim(a), Claim::Granted);
    assert_eq!([limiter.claim(patient), limiter.claim(large)], [Claim::Queued; 2]);
    let (_, holding) = take_turns(&mut limiter, [a, b]);
    for _ in 0..100 {
        assert_eq!(limiter.claim(side), Claim::Granted, "there is one more of these");
        assert!(limiter.release(side).is_empty());
    }
    assert!(limiter.release(holding).into_iter().eq([large]), "though it came later");
    assert!(limiter.release(large).into_iter().eq([patient]));
}

#[test]
fn cancelling_an_overdue_claim_frees_its_reserved_resources() {
    let (mut limiter, [a, b, large]) = crowd([3, 3, 6]);
    assert_eq!([limiter.claim(a), limiter.claim(large)], [Claim::Granted, Claim::Queued]);
    let (_, holding) = take_turns(&mut limiter, [a, b]);
    let other = if holding == a { b } else { a };
    assert!(limiter.cancel(large).into_iter().eq([other]));
}
