//! Tests of flights: the rules one by one, and random histories.
use proptest::prelude::*;

use super::*;

type TestFlights = Flights<&'static str, &'static str>;

fn key(text: &str) -> FlightKey {
    (0, text.into())
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// The turn of a request of the only level.
fn turn(number: u64) -> FlightTurn {
    FlightTurn { level: 0, number }
}

/// A flight that `leader` leads and for which `second` and `third` wait.
fn three() -> TestFlights {
    let mut flights = TestFlights::default();
    assert_eq!(flights.join(&key("k"), turn(1), "leader", None), FlightRole::Leads("leader"));
    assert_eq!(flights.join(&key("k"), turn(2), "second", None), FlightRole::Waits);
    assert_eq!(flights.join(&key("k"), turn(3), "third", None), FlightRole::Waits);
    flights
}

#[test]
fn an_answer_is_for_all_that_wait_and_for_those_that_come_while_it_is_stored() {
    let mut flights = three();
    assert_eq!(flights.answered(&key("k"), "answer"), ["second", "third"]);
    assert_eq!(flights.join(&key("k"), turn(4), "late", None), FlightRole::Answered("late", "answer"));
    assert_eq!((flights.ended(), flights.end(&key("k")), flights.ended()), (0, vec![], 1));
    assert_eq!(flights.join(&key("k"), turn(5), "next", None), FlightRole::Leads("next"));
}

#[test]
fn other_keys_and_other_times_of_emptying_are_other_flights() {
    let mut flights = three();
    assert_eq!(flights.join(&key("l"), turn(4), "other", None), FlightRole::Leads("other"));
    assert_eq!(flights.join(&(1, "k".into()), turn(5), "after", None), FlightRole::Leads("after"));
    assert!(flights.has(&key("k")) && !flights.has(&(2, "k".into())));
}

#[test]
fn the_request_that_has_waited_longest_follows_a_leader_that_goes() {
    let mut flights = three();
    assert_eq!(flights.lead_next(&key("k"), turn(1)), Some("second"));
    assert_eq!(flights.join(&key("k"), turn(4), "fourth", None), FlightRole::Waits);
    assert_eq!(flights.leave(&key("k"), turn(3)), Some("third"));
    assert_eq!(flights.leave(&key("k"), turn(3)), None, "it does not wait any more");
    assert_eq!(flights.lead_next(&key("k"), turn(2)), Some("fourth"));
    assert_eq!((flights.lead_next(&key("k"), turn(4)), flights.has(&key("k"))), (None, false));
}

#[test]
fn a_more_urgent_request_takes_the_lead_and_the_former_leader_ends_nothing_by_its_failure() {
    let of_level = |level, number| FlightTurn { level, number };
    let mut flights = TestFlights::default();
    assert_eq!(flights.join(&key("k"), of_level(2, 1), "slow", None), FlightRole::Leads("slow"));
    assert_eq!(flights.join(&key("k"), of_level(2, 2), "waits", None), FlightRole::Waits);
    assert_eq!(flights.join(&key("k"), of_level(1, 3), "urgent", None), FlightRole::Leads("urgent"));
    assert_eq!(flights.join(&key("k"), of_level(1, 4), "as urgent", None), FlightRole::Waits);
    assert_eq!(flights.lead_next(&key("k"), of_level(2, 1)), None);
    assert_eq!(flights.end_led_by(&key("k"), of_level(2, 1)), [""; 0]);
    // The most urgent one leads next, though it came last.
    assert_eq!(flights.lead_next(&key("k"), of_level(1, 3)), Some("as urgent"));
    assert_eq!(flights.end_led_by(&key("k"), of_level(1, 4)), ["waits"]);
    assert!(!flights.has(&key("k")));
}

#[test]
fn whoever_has_an_answer_first_shares_it() {
    let of_level = |level, number| FlightTurn { level, number };
    let mut flights = TestFlights::default();
    flights.join(&key("k"), of_level(2, 1), "slow", None);
    flights.join(&key("k"), of_level(1, 2), "urgent", None);
    flights.join(&key("k"), of_level(2, 3), "waits", None);
    assert_eq!(flights.end(&key("k")), ["waits"]);
    assert_eq!(flights.end(&key("k")), [""; 0]);
}

#[test]
fn a_request_waits_until_its_own_deadline() {
    let mut flights = TestFlights::default();
    flights.join(&key("k"), turn(1), "leader", Some(at(1)));
    flights.join(&key("k"), turn(2), "patient", None);
    flights.join(&key("k"), turn(3), "hurried", Some(at(10)));
    flights.join(&key("k"), turn(4), "gone", Some(at(5)));
    assert_eq!(flights.next_expiry(), Some(at(6)), "a leader is in the queue of its model");
    flights.leave(&key("k"), turn(4));
    assert_eq!((flights.expire(at(10)), flights.next_expiry()), (vec![], Some(at(11))));
    assert_eq!((flights.expire(at(11)), flights.next_expiry()), (vec!["hurried"], None));
    assert_eq!(flights.end(&key("k")), ["patient"]);
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Join { level: u8, deadline: Option<u8> },
    Leave(u8),
    Answered,
    End,
    LeadNext,
    Expire,
}

fn event() -> impl proptest::strategy::Strategy<Value = (u8, Event)> {
    let event = prop_oneof![
        4 => (0..3u8, prop::option::of(0..40u8)).prop_map(|(level, deadline)| Event::Join { level, deadline }),
        2 => (0..30u8).prop_map(Event::Leave),
        1 => Just(Event::Answered),
        1 => Just(Event::End),
        1 => Just(Event::LeadNext),
        1 => Just(Event::Expire),
    ];
    (0..3u8, event)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_request_comes_out_once_and_each_flight_has_one_leader(
        events in prop::collection::vec(event(), 0..80),
    ) {
        let mut flights = Flights::<u64, ()>::default();
        // Who leads, and whether there is an answer.
        let mut leaders: BTreeMap<u8, (FlightTurn, bool)> = BTreeMap::new();
        let mut turns: BTreeMap<u64, FlightTurn> = BTreeMap::new();
        let (mut waiting, mut out) = (BTreeSet::new(), BTreeSet::new());
        let name = |key: u8| (0, Arc::from(key.to_string()));
        for ((number, time), (key, event)) in (0..).zip(0..).zip(events) {
            let led = leaders.get(&key).copied();
            let left: Vec<u64> = match event {
                Event::Join { level, deadline } => {
                    let deadline = deadline.map(|deadline| at(time + u64::from(deadline)));
                    let turn = FlightTurn { level: level.into(), number };
                    turns.insert(number, turn);
                    match flights.join(&name(key), turn, number, deadline) {
                        FlightRole::Leads(_) => {
                            prop_assert!(led.is_none_or(|(leader, answered)| !answered && turn.level < leader.level));
                            leaders.insert(key, (turn, false));
                        }
                        FlightRole::Waits => {
                            prop_assert!(led.is_some_and(|(leader, answered)| !answered && leader.level <= turn.level));
                            waiting.insert(number);
                        }
                        FlightRole::Answered(..) => prop_assert!(led.is_some_and(|(_, answered)| answered)),
                    }
                    continue;
                }
                Event::Leave(number) => {
                    let turn = turns.get(&number.into()).copied();
                    turn.and_then(|turn| flights.leave(&name(key), turn)).into_iter().collect()
                }
                Event::Expire => flights.expire(at(time)),
                // These come only from the leader.
                _ if led.is_none() => continue,
                Event::Answered => {
                    leaders.entry(key).and_modify(|(_, answered)| *answered = true);
                    flights.answered(&name(key), ())
                }
                Event::End => {
                    leaders.remove(&key);
                    flights.end(&name(key))
                }
                Event::LeadNext => {
                    let Some((leader, false)) = led else { continue };
                    let next = flights.lead_next(&name(key), leader);
                    match next {
                        Some(next) => {
                            // No other one that waits is more urgent, or as urgent and earlier.
                            let turn = turns[&next];
                            prop_assert!(leader.level <= turn.level);
                            leaders.insert(key, (turn, false));
                        }
                        None => _ = leaders.remove(&key),
                    }
                    next.into_iter().collect()
                }
            };
            for number in left {
                prop_assert!(waiting.remove(&number) && out.insert(number), "{} comes out twice", number);
            }
            prop_assert_eq!(flights.flights.len(), leaders.len());
        }
        let rest: Vec<_> = (0..3).flat_map(|key| flights.end(&name(key))).collect();
        prop_assert_eq!(rest.into_iter().collect::<BTreeSet<_>>(), waiting);
        prop_assert!(flights.deadlines.is_empty());
    }
}
