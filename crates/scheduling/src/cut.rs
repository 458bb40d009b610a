//! Decides where to cut a queue. This module contains only the arithmetic of batch sizes, shapes and delays.
//!
//! An [`OpenBatch`] describes the batch that could be cut now: the requests at the head of the queue, as far as they fit
//! together. It is built request by request. If the queue only grows at its end, the open batch is extended and never
//! computed again.
use std::{collections::BTreeSet, time::Duration};

use crate::{batch::CutReason, cost_counter, request::SchedulingAttributes, time::Timestamp};

/// Limits that a batch must keep, and sizes that it prefers.
#[derive(Debug)]
pub(crate) struct CutRule {
    max_batch_size: u32,
    preferred: BTreeSet<u32>,
    largest_preferred: u32,
    max_delay: Duration,
}

/// The head of a queue, as far as its requests may run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OpenBatch {
    /// Number of requests.
    requests: usize,
    /// Number of rows in these requests.
    rows: u32,
    /// Arrival time of the oldest of these requests. It need not be at the head: an urgent request may have passed
    /// it.
    oldest: Timestamp,
    shape_key: u64,
    /// The best position for a cut, as a number of requests. 0: no cut is worthwhile.
    best_cut: usize,
    /// Why a batch would end there.
    best_end: CutReason,
    /// Why the next request may not join these, if it may not.
    closed: Option<CutReason>,
}

impl OpenBatch {
    /// The number of requests in the open batch.
    pub(crate) fn requests(&self) -> usize {
        self.requests
    }

    /// Whether no further request can join.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }
}

/// The decision about a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// No request waits.
    Empty,
    /// The first `n` requests should leave now.
    Release(usize, CutReason),
    /// A better batch may be possible at this time.
    Hold(Timestamp),
}

impl CutRule {
    /// If `preferred` is empty, the rule waits for no batch size and no batch grows to a preferred size.
    pub(crate) fn new(max_batch_size: u32, preferred: BTreeSet<u32>, max_delay: Duration) -> Self {
        let largest_preferred = preferred.last().copied().unwrap_or(0);
        Self { max_batch_size, preferred, largest_preferred, max_delay }
    }

    /// Returns `open_batch` together with the next request of the queue, if that request may join. If it may not join, no
    /// later request may join either. `may_join` is called last, and only if no other rule keeps the request out.
    pub(crate) fn extended(
        &self,
        mut open_batch: OpenBatch,
        attributes: &SchedulingAttributes,
        arrived: Timestamp,
        may_join: impl FnOnce() -> bool,
    ) -> OpenBatch {
        if open_batch.is_closed() {
            return open_batch;
        }
        cost_counter::count();
        let rows = open_batch.rows.saturating_add(attributes.rows());
        if open_batch.requests == 0 {
            // As the first of a batch, every request may run. A request that is too large, or refused (S-W14), must
            // not block the queue.
            open_batch.oldest = arrived;
            open_batch.shape_key = attributes.shape_key;
            open_batch.closed = (!may_join()).then_some(CutReason::Filter);
        } else {
            if rows > self.largest_preferred && open_batch.best_cut == 0 {
                (open_batch.best_cut, open_batch.best_end) = (open_batch.requests, self.reached());
            }
            open_batch.closed = if rows > self.max_batch_size {
                Some(CutReason::Full)
            } else if attributes.shape_key != open_batch.shape_key {
                Some(CutReason::Shape)
            } else {
                (!may_join()).then_some(CutReason::Filter)
            };
            if open_batch.is_closed() {
                return open_batch;
            }
        }
        open_batch.requests += 1;
        open_batch.rows = rows;
        open_batch.oldest = open_batch.oldest.min(arrived);
        if self.preferred.contains(&rows) {
            (open_batch.best_cut, open_batch.best_end) = (open_batch.requests, CutReason::PreferredSize);
        }
        open_batch
    }

    /// Decides what to do with a queue that begins with `open_batch`.
    // As Triton: dynamic_batch_scheduler.cc, GetDynamicBatch, without a batch under construction.
    pub(crate) fn decide(&self, open_batch: &OpenBatch, now: Timestamp) -> Cut {
        if open_batch.requests == 0 {
            return Cut::Empty;
        }
        let patience_ends = open_batch.oldest + self.max_delay;
        let impatient = !self.max_delay.is_zero() && patience_ends <= now;
        if open_batch.best_cut > 0 && !impatient {
            let is_whole = open_batch.best_cut == open_batch.requests;
            return Cut::Release(
                open_batch.best_cut,
                if is_whole { self.end_of(open_batch, open_batch.best_end) } else { open_batch.best_end },
            );
        }
        let end = if impatient {
            CutReason::Delay
        } else if self.max_delay.is_zero() {
            CutReason::IdleInstance
        } else if open_batch.is_closed() || open_batch.rows >= self.largest_preferred {
            self.reached()
        } else {
            return Cut::Hold(patience_ends);
        };
        Cut::Release(open_batch.requests, self.end_of(open_batch, end))
    }

    /// Why a batch ends that is at least as large as the largest preferred size.
    fn reached(&self) -> CutReason {
        if self.preferred.is_empty() { CutReason::IdleInstance } else { CutReason::PreferredSize }
    }

    /// Why a batch of all requests of the open batch ends: if no further request can join, that is the reason, otherwise
    /// `end`.
    fn end_of(&self, open_batch: &OpenBatch, end: CutReason) -> CutReason {
        if open_batch.rows >= self.max_batch_size {
            CutReason::Full
        } else {
            open_batch.closed.unwrap_or(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CutReason::{Delay, Filter, Full, IdleInstance, PreferredSize, Shape};

    const NOW: Timestamp = Timestamp::from_nanos(1_000_000);
    const DELAY: Duration = Duration::from_micros(100);

    fn rule(max_batch_size: u32, preferred: &[u32], max_delay: Duration) -> CutRule {
        CutRule::new(max_batch_size, preferred.iter().copied().collect(), max_delay)
    }

    /// The decision about requests of these sizes and shapes that all arrived at `NOW`.
    fn decide(rule: &CutRule, queue: &[(u32, u64)], now: Timestamp) -> Cut {
        let join = |open_batch, &(batch_size, shape_key): &(u32, u64)| {
            rule.extended(
                open_batch,
                &SchedulingAttributes { batch_size, shape_key, ..SchedulingAttributes::default() },
                NOW,
                || true,
            )
        };
        rule.decide(&queue.iter().fold(OpenBatch::default(), join), now)
    }

    #[test]
    fn without_delay_the_largest_preferred_part_leaves_first() {
        let rule = rule(8, &[4, 6], Duration::ZERO);
        assert_eq!(decide(&rule, &[(1, 0); 7], NOW), Cut::Release(6, PreferredSize));
        assert_eq!(decide(&rule, &[(1, 0); 5], NOW), Cut::Release(4, PreferredSize));
        assert_eq!(decide(&rule, &[(1, 0); 3], NOW), Cut::Release(3, IdleInstance));
    }

    #[test]
    fn with_delay_a_size_that_is_not_preferred_waits() {
        let rule = rule(8, &[4, 6], DELAY);
        assert_eq!(decide(&rule, &[(1, 0); 3], NOW), Cut::Hold(NOW + DELAY));
        assert_eq!(decide(&rule, &[(1, 0); 3], NOW + DELAY), Cut::Release(3, Delay));
    }

    #[test]
    fn a_batch_about_to_pass_the_largest_preferred_size_is_cut_before() {
        let rule = rule(8, &[2, 6], DELAY);
        assert_eq!(decide(&rule, &[(3, 0), (4, 0)], NOW), Cut::Release(1, PreferredSize));
    }

    #[test]
    fn a_batch_that_has_waited_long_enough_may_grow_to_the_maximum() {
        let rule = rule(8, &[2, 6], DELAY);
        assert_eq!(decide(&rule, &[(3, 0), (4, 0), (1, 0), (1, 0)], NOW + DELAY), Cut::Release(3, Full));
    }

    #[test]
    fn a_different_shape_flushes_what_came_before_it() {
        let rule = rule(8, &[6], DELAY);
        assert_eq!(decide(&rule, &[(1, 16), (1, 16), (1, 8)], NOW), Cut::Release(2, Shape));
    }

    #[test]
    fn a_request_larger_than_any_batch_runs_alone() {
        let rule = rule(8, &[8], DELAY);
        assert_eq!(decide(&rule, &[(9, 0), (1, 0)], NOW), Cut::Release(1, Full));
        assert_eq!(decide(&rule, &[(u32::MAX, 0), (u32::MAX, 0)], NOW), Cut::Release(1, Full));
    }

    #[test]
    fn a_request_that_may_not_join_closes_the_batch_and_no_further_request_is_checked() {
        let rule = rule(8, &[8], DELAY);
        let add = |open_batch, may_join: fn() -> bool| {
            rule.extended(open_batch, &SchedulingAttributes::default(), NOW, may_join)
        };
        let two = add(add(OpenBatch::default(), || true), || true);
        assert_eq!(rule.decide(&two, NOW), Cut::Hold(NOW + DELAY));
        let ended = add(two, || false);
        assert_eq!(rule.decide(&ended, NOW), Cut::Release(2, Filter));
        assert_eq!(add(ended, || panic!("it is over")), ended);
    }

    #[test]
    fn a_request_refused_as_first_of_a_batch_runs_alone() {
        let rule = rule(8, &[8], DELAY);
        let alone = rule.extended(OpenBatch::default(), &SchedulingAttributes::default(), NOW, || false);
        assert!(alone.is_closed());
        assert_eq!(rule.decide(&alone, NOW), Cut::Release(1, Filter));
    }

    #[test]
    fn the_filter_is_not_called_for_a_request_of_another_shape_or_size() {
        let rule = rule(2, &[2], DELAY);
        let first = rule.extended(OpenBatch::default(), &SchedulingAttributes::default(), NOW, || true);
        for attributes in [
            SchedulingAttributes { batch_size: 2, ..SchedulingAttributes::default() },
            SchedulingAttributes { shape_key: 1, ..SchedulingAttributes::default() },
        ] {
            assert!(rule.extended(first, &attributes, NOW, || panic!("it does not fit")).is_closed());
        }
    }

    #[test]
    fn without_batching_every_request_is_a_batch() {
        for max_batch_size in [0, 1] {
            let rule = rule(max_batch_size, &[], Duration::ZERO);
            assert_eq!(decide(&rule, &[(1, 0); 3], NOW), Cut::Release(1, Full));
        }
    }

    #[test]
    fn without_preferred_sizes_nothing_is_worth_waiting_for() {
        let rule = rule(8, &[], DELAY);
        assert_eq!(decide(&rule, &[(1, 0)], NOW), Cut::Release(1, IdleInstance));
        assert_eq!(decide(&rule, &[(1, 0); 9], NOW), Cut::Release(1, IdleInstance));
        assert_eq!(decide(&rule, &[(1, 0); 9], NOW + DELAY), Cut::Release(8, Full));
    }

    #[test]
    fn the_oldest_request_is_not_always_the_first() {
        let rule = rule(8, &[8], DELAY);
        let urgent =
            rule.extended(OpenBatch::default(), &SchedulingAttributes::default(), NOW + DELAY / 2, || true);
        let both = rule.extended(urgent, &SchedulingAttributes::default(), NOW, || true);
        assert_eq!(rule.decide(&both, NOW + DELAY / 2), Cut::Hold(NOW + DELAY));
    }

    #[test]
    fn an_endless_delay_never_ends() {
        let rule = rule(8, &[8], Duration::MAX);
        let end = Timestamp::from_nanos(u64::MAX);
        assert_eq!(decide(&rule, &[(1, 0)], NOW + Duration::from_secs(1_000_000)), Cut::Hold(end));
    }
}
