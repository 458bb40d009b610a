//! Collects the values of several tensors, for each iteration.
use std::collections::BTreeMap;

use super::value::SettledValue;
use crate::cost_counter;

/// Collects one value for each of several positions, for each iteration. Forgets an iteration when all its positions
/// are settled.
#[derive(Debug)]
pub(super) struct IterationJoin<V> {
    positions: usize,
    /// Whether a position never gets more than iteration 0. Later iterations of the other positions are then useless.
    has_one_iteration: bool,
    pending: BTreeMap<u64, PendingJoin<V>>,
}

/// An iteration with positions that are not settled.
#[derive(Debug)]
struct PendingJoin<V> {
    /// The values by position. Empty if a value is missing.
    values: Vec<Option<SettledValue<V>>>,
    unsettled: usize,
    is_missing: bool,
}

/// What the value of a position changes.
#[derive(Debug)]
pub(super) enum JoinOutcome<V> {
    /// The iteration needs further values, or was already known to be incomplete.
    Waiting,
    /// The iteration has its last value. These are all values in the order of positions; none of them is missing.
    Complete(Vec<SettledValue<V>>),
    /// The iteration has just become impossible.
    Missing,
}

impl<V> IterationJoin<V> {
    pub(super) fn new(positions: usize, has_one_iteration: bool) -> Self {
        Self { positions, has_one_iteration, pending: BTreeMap::new() }
    }

    /// Adds the value of a position. Each position of an iteration gets one value.
    pub(super) fn settle(
        &mut self,
        iteration: u64,
        position: usize,
        value: SettledValue<V>,
    ) -> JoinOutcome<V> {
        cost_counter::count();
        if self.has_one_iteration && iteration > 0 {
            return JoinOutcome::Waiting;
        }
        let positions = self.positions;
        let pending = self.pending.entry(iteration).or_insert_with(|| PendingJoin::new(positions));
        pending.unsettled -= 1;
        let is_first_missing = matches!(value, SettledValue::Missing) && !pending.is_missing;
        if is_first_missing {
            pending.is_missing = true;
            pending.values = Vec::new();
        } else if !pending.is_missing {
            pending.values[position] = Some(value);
        }
        let complete = if pending.unsettled == 0 { self.pending.remove(&iteration) } else { None };
        match complete {
            _ if is_first_missing => JoinOutcome::Missing,
            Some(complete) if !complete.is_missing => {
                JoinOutcome::Complete(complete.values.into_iter().flatten().collect())
            }
            Some(_) | None => JoinOutcome::Waiting,
        }
    }

    /// The number of values that wait for others.
    pub(super) fn held(&self) -> usize {
        let values = self.pending.values().flat_map(|pending| pending.values.iter().flatten());
        values.filter(|value| value.has_value()).count()
    }

    pub(super) fn clear(&mut self) {
        self.pending.clear();
    }

    /// The number of iterations that take memory.
    #[cfg(test)]
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }
}

impl<V> PendingJoin<V> {
    fn new(positions: usize) -> Self {
        let values = std::iter::repeat_with(|| None).take(positions).collect();
        Self { values, unsettled: positions, is_missing: false }
    }
}
