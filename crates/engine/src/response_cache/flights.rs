//! Single flight: equal requests at the same time run once. Pure: no clock, lock or channel.
//!
//! The first request with a key leads its flight: it looks the answer up, and executes if there is none. Requests with the
//! same key wait for it. If the leader goes without an answer, the most urgent of them leads, and of these the one that has
//! waited longest. A request that is more urgent than the leader leads in its place, so that it does not wait behind less
//! urgent ones; the former leader goes on, and whoever has an answer first shares it.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hashbrown::HashMap;
use inference::Timestamp;

/// Which requests are equal: those with the same key, between two times at which the cache was emptied.
pub(super) type FlightKey = (u64, Arc<str>);

/// The place of a request among equal ones: the more urgent comes first, then the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlightTurn {
    /// The priority level. A lower one is more urgent.
    pub(super) level: u64,
    /// Rises with the arrival. No two requests have the same.
    pub(super) number: u64,
}

/// The flights of a model version. `W` is a request that waits, `A` an answer.
#[derive(Debug)]
pub(super) struct Flights<W, A> {
    flights: HashMap<FlightKey, FlightState<W, A>>,
    /// The deadlines of all requests that wait.
    deadlines: BTreeSet<(Timestamp, FlightKey, FlightTurn)>,
    /// Flights that have ended.
    ended: u64,
}

#[derive(Debug)]
enum FlightState<W, A> {
    /// The leader has no answer yet. The others wait, in the order in which they would lead.
    Waiting { leader: FlightTurn, others: BTreeMap<FlightTurn, WaitingRequest<W>> },
    /// There is an answer, which is being stored.
    Answered(A),
}

#[derive(Debug)]
struct WaitingRequest<W> {
    request: W,
    deadline: Option<Timestamp>,
}

/// What a request does that has found no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FlightRole<W, A> {
    /// It leads its flight.
    Leads(W),
    /// It waits for the leader.
    Waits,
    /// The answer is being stored.
    Answered(W, A),
}

impl<W, A> Default for Flights<W, A> {
    fn default() -> Self {
        Self { flights: HashMap::new(), deadlines: BTreeSet::new(), ended: 0 }
    }
}

impl<W, A: Clone> Flights<W, A> {
    /// The number of flights that have ended. If it is the same at two times, no answer has been stored between them.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// Whether a request with that key leads.
    pub(super) fn has(&self, key: &FlightKey) -> bool {
        self.flights.contains_key(key)
    }

    /// A request joins the flight of its key, begins one, or takes the lead of a less urgent one.
    pub(super) fn join(
        &mut self,
        key: &FlightKey,
        turn: FlightTurn,
        request: W,
        deadline: Option<Timestamp>,
    ) -> FlightRole<W, A> {
        match self.flights.get_mut(key) {
            None => {
                let flight = FlightState::Waiting { leader: turn, others: BTreeMap::new() };
                self.flights.insert(key.clone(), flight);
                FlightRole::Leads(request)
            }
            Some(FlightState::Answered(answer)) => FlightRole::Answered(request, answer.clone()),
            Some(FlightState::Waiting { leader, .. }) if turn.level < leader.level => {
                *leader = turn;
                FlightRole::Leads(request)
            }
            Some(FlightState::Waiting { others, .. }) => {
                self.deadlines.extend(deadline.map(|deadline| (deadline, key.clone(), turn)));
                others.insert(turn, WaitingRequest { request, deadline });
                FlightRole::Waits
            }
        }
    }

    /// The client of a request has gone. Returns the request, if it waits.
    pub(super) fn leave(&mut self, key: &FlightKey, turn: FlightTurn) -> Option<W> {
        let Some(FlightState::Waiting { others, .. }) = self.flights.get_mut(key) else { return None };
        let left = others.remove(&turn)?;
        self.forget_deadline(key, turn, &left);
        Some(left.request)
    }

    /// The requests whose deadlines have passed.
    pub(super) fn expire(&mut self, now: Timestamp) -> Vec<W> {
        let mut late = Vec::new();
        while let Some((deadline, _, _)) = self.deadlines.first()
            && *deadline < now
            && let Some((_, key, turn)) = self.deadlines.pop_first()
            && let Some(FlightState::Waiting { others, .. }) = self.flights.get_mut(&key)
        {
            late.extend(others.remove(&turn).map(|waiting| waiting.request));
        }
        late
    }

    /// When the next request is late.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(deadline, _, _)| *deadline + Timestamp::TICK)
    }

    /// The leader has an answer, which will be stored until the flight [ends](Self::end). Returns those that wait for it, in
    /// their order. Requests that come later get it, too.
    pub(super) fn answered(&mut self, key: &FlightKey, answer: A) -> Vec<W> {
        self.replace(key, Some(FlightState::Answered(answer)))
    }

    /// The flight has ended. Returns those that still wait, in their order.
    pub(super) fn end(&mut self, key: &FlightKey) -> Vec<W> {
        self.ended += 1;
        self.replace(key, None)
    }

    /// As [`end`](Self::end), if this request leads. If another one has taken the lead, the flight goes on.
    pub(super) fn end_led_by(&mut self, key: &FlightKey, turn: FlightTurn) -> Vec<W> {
        if self.is_led_by(key, turn) { self.end(key) } else { Vec::new() }
    }

    /// A leader has gone without an answer that others can use. Returns the next leader. Without one, the flight has
    /// ended. If another one has taken the lead before, the flight goes on.
    pub(super) fn lead_next(&mut self, key: &FlightKey, turn: FlightTurn) -> Option<W> {
        if !self.is_led_by(key, turn) {
            return None;
        }
        if let Some(FlightState::Waiting { leader, others }) = self.flights.get_mut(key)
            && let Some((next, waiting)) = others.pop_first()
        {
            *leader = next;
            self.forget_deadline(key, next, &waiting);
            return Some(waiting.request);
        }
        self.end(key);
        None
    }

    fn is_led_by(&self, key: &FlightKey, turn: FlightTurn) -> bool {
        matches!(self.flights.get(key), Some(FlightState::Waiting { leader, .. }) if *leader == turn)
    }

    fn replace(&mut self, key: &FlightKey, flight: Option<FlightState<W, A>>) -> Vec<W> {
        let former = match flight {
            Some(flight) => self.flights.insert(key.clone(), flight),
            None => self.flights.remove(key),
        };
        let Some(FlightState::Waiting { others, .. }) = former else { return Vec::new() };
        let requests = others.into_iter().map(|(turn, waiting)| {
            self.forget_deadline(key, turn, &waiting);
            waiting.request
        });
        requests.collect()
    }

    fn forget_deadline(&mut self, key: &FlightKey, turn: FlightTurn, waiting: &WaitingRequest<W>) {
        if let Some(deadline) = waiting.deadline {
            self.deadlines.remove(&(deadline, key.clone(), turn));
        }
    }
}

#[cfg(test)]
mod tests;
