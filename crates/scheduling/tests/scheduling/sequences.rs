//! Tests the sequence batcher with a million random operations. Each result is compared with a plain reference.
//!
//! The actions of clients, backends, clocks and operators are random. Requests start, continue and end sequences, are
//! cancelled and time out. Batches finish late, in parts and out of order. Instances are added, removed and lost.
//! After every step the real batcher must have done exactly what the reference did. The promises must hold even where
//! both agree: no shared slot; no request lost, answered twice or out of order; no change by time alone before the
//! announced wake-up; no leaked slot.
//!
//! The test shrinks a failing history and prints it with its seed. `SEED=...` repeats that history.
//! `OPERATIONS=100000000` tries more operations than the default.
use std::{
    cell::Cell,
    collections::hash_map::RandomState,
    env, fmt,
    hash::BuildHasher,
    panic::{self, AssertUnwindSafe},
    sync::Once,
};

use crate::support::{
    random::{Random, shrink},
    sequence_history::History,
    sequence_load::{Operation, Setting, operation},
};

/// The test's id of a request.
pub(crate) type RequestId = u64;

/// Number of operations of one test. There are four tests.
const OPERATIONS: usize = 250_000;
/// Number of operations of one history.
const HISTORY: usize = 300;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Plays a history and returns what went wrong. With `tell` the error also contains the steps before.
fn play(setting: &Setting, operations: &[Operation], tell: bool) -> Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            if !QUIET.get() {
                loud(what);
            }
        }));
    });
    QUIET.set(true);
    let mut history = History::new(setting.clone(), tell.then(Vec::new));
    let played = panic::catch_unwind(AssertUnwindSafe(|| {
        operations.iter().for_each(|operation| history.perform(operation));
        history.rest();
    }));
    QUIET.set(false);
    played.map_err(|what| {
        let text = what.downcast_ref::<String>().cloned();
        let text = text.or_else(|| what.downcast_ref::<&str>().map(|&text| text.to_owned()));
        let told = history.told.unwrap_or_default().join("\n");
        format!("{told}\n{}", text.unwrap_or_else(|| "no reason given".to_owned()))
    })
}

fn number<N: std::str::FromStr<Err: fmt::Debug>>(name: &str) -> Option<N> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

fn check(oldest: bool, iterative: bool) {
    let repeated = number::<u64>("SEED");
    let first = repeated.unwrap_or_else(|| RandomState::new().hash_one(0));
    let operations = number::<usize>("OPERATIONS").map_or(OPERATIONS, |all| all / 4);
    let histories = if repeated.is_some() { 1 } else { operations.div_ceil(HISTORY) };
    for number in 0..histories as u64 {
        let seed = first.wrapping_add(number);
        let mut random = Random::new(seed);
        let setting = Setting::random(&mut random, oldest, iterative);
        let operations: Vec<_> = (0..HISTORY).map(|_| operation(&mut random)).collect();
        if play(&setting, &operations, false).is_ok() {
            continue;
        }
        let shortest = shrink(operations, |shorter| play(&setting, shorter, false).is_err());
        let story = play(&setting, &shortest, true).expect_err("it has failed before");
        panic!("SEED={seed} repeats this history of {setting:#?}, of which this is left:\n{story}");
    }
}

#[test]
fn direct_sequences_keep_their_promises() {
    check(false, false);
}

#[test]
fn oldest_sequences_keep_their_promises() {
    check(true, false);
}

#[test]
fn iterative_direct_sequences_keep_their_promises() {
    check(false, true);
}

#[test]
fn iterative_oldest_sequences_keep_their_promises() {
    check(true, true);
}

#[test]
fn shrinking_keeps_the_failing_operations() {
    let fails = |numbers: &[u64]| numbers.contains(&3) && numbers.contains(&77);
    assert_eq!(shrink((0..100).collect(), fails), [3, 77]);
}
