//! Decides where to cut a queue. This module contains only the arithmetic of batch sizes, shapes and delays.
//!
//! A [`Front`] describes the batch that could be cut now: the requests at the head of the queue, as far as they fit
//! together. It is built request by request. If the queue only grows at its end, the front is extended and never
//! computed again.
use std::{collections::BTreeSet, time::Duration};

use crate::{batch::BatchEnd, request::Meta, steps, time::Timestamp};

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
pub(crate) struct Front {
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
    best_end: BatchEnd,
    /// Why the next request may not join these, if it may not.
    closed: Option<BatchEnd>,
}

impl Front {
    /// The number of requests in the front.
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
    Release(usize, BatchEnd),
    /// A better batch may be possible at this time.
    Hold(Timestamp),
}

impl CutRule {
    /// If `preferred` is empty, the rule waits for no batch size and no batch grows to a preferred size.
    pub(crate) fn new(max_batch_size: u32, preferred: BTreeSet<u32>, max_delay: Duration) -> Self {
        let largest_preferred = preferred.last().copied().unwrap_or(0);
        Self { max_batch_size, preferred, largest_preferred, max_delay }
    }

    /// Returns `front` together with the next request of the queue, if that request may join. If it may not join, no
    /// later request may join either. `may_join` is called last, and only if no other rule keeps the request out.
    pub(crate) fn extended(
        &self,
        mut front: Front,
        meta: &Meta,
        arrived: Timestamp,
        may_join: impl FnOnce() -> bool,
    ) -> Front {
        if front.is_closed() {
            return front;
        }
        steps::count();
        let rows = front.rows.saturating_add(meta.rows());
        if front.requests == 0 {
            // As the first of a batch, every request may run. A request that is too large, or refused (S-W14), must
            // not block the queue.
            front.oldest = arrived;
            front.shape_key = meta.shape_key;
            front.closed = (!may_join()).then_some(BatchEnd::Strategy);
        } else {
            if rows > self.largest_preferred && front.best_cut == 0 {
                (front.best_cut, front.best_end) = (front.requests, self.reached());
            }
            front.closed = if rows > self.max_batch_size {
                Some(BatchEnd::Full)
            } else if meta.shape_key != front.shape_key {
                Some(BatchEnd::Shape)
            } else {
                (!may_join()).then_some(BatchEnd::Strategy)
            };
            if front.is_closed() {
                return front;
            }
        }
        front.requests += 1;
        front.rows = rows;
        front.oldest = front.oldest.min(arrived);
        if self.preferred.contains(&rows) {
            (front.best_cut, front.best_end) = (front.requests, BatchEnd::PreferredSize);
        }
        front
    }

    /// Decides what to do with a queue that begins with `front`.
    // As Triton: dynamic_batch_scheduler.cc, GetDynamicBatch, without a batch under construction.
    pub(crate) fn decide(&self, front: &Front, now: Timestamp) -> Cut {
        if front.requests == 0 {
            return Cut::Empty;
        }
        let patience_ends = front.oldest + self.max_delay;
        let impatient = !self.max_delay.is_zero() && patience_ends <= now;
        if front.best_cut > 0 && !impatient {
            let is_whole = front.best_cut == front.requests;
            return Cut::Release(
                front.best_cut,
                if is_whole { self.end_of(front, front.best_end) } else { front.best_end },
            );
        }
        let end = if impatient {
            BatchEnd::Delay
        } else if self.max_delay.is_zero() {
            BatchEnd::IdleInstance
        } else if front.is_closed() || front.rows >= self.largest_preferred {
            self.reached()
        } else {
            return Cut::Hold(patience_ends);
        };
        Cut::Release(front.requests, self.end_of(front, end))
    }

    /// Why a batch ends that is at least as large as the largest preferred size.
    fn reached(&self) -> BatchEnd {
        if self.preferred.is_empty() { BatchEnd::IdleInstance } else { BatchEnd::PreferredSize }
    }

    /// Why a batch of all requests of the front ends: if no further request can join, that is the reason, otherwise
    /// `end`.
    fn end_of(&self, front: &Front, end: BatchEnd) -> BatchEnd {
        if front.rows >= self.max_batch_size { BatchEnd::Full } else { front.closed.unwrap_or(end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BatchEnd::{Delay, Full, IdleInstance, PreferredSize, Shape, Strategy};

    const NOW: Timestamp = Timestamp::from_nanos(1_000_000);
    const DELAY: Duration = Duration::from_micros(100);

    fn rule(max_batch_size: u32, preferred: &[u32], max_delay: Duration) -> CutRule {
        CutRule::new(max_batch_size, preferred.iter().copied().collect(), max_delay)
    }

    /// The decision about requests of these sizes and shapes that all arrived at `NOW`.
    fn decide(rule: &CutRule, queue: &[(u32, u64)], now: Timestamp) -> Cut {
        let join = |front, &(batch_size, shape_key): &(u32, u64)| {
            rule.extended(front, &Meta { batch_size, shape_key, ..Meta::default() }, NOW, || true)
        };
        rule.decide(&queue.iter().fold(Front::default(), join), now)
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
        let add = |front, may_join: fn() -> bool| rule.extended(front, &Meta::default(), NOW, may_join);
        let two = add(add(Front::default(), || true), || true);
        assert_eq!(rule.decide(&two, NOW), Cut::Hold(NOW + DELAY));
        let ended = add(two, || false);
        assert_eq!(rule.decide(&ended, NOW), Cut::Release(2, Strategy));
        assert_eq!(add(ended, || panic!("it is over")), ended);
    }

    #[test]
    fn a_request_refused_as_first_of_a_batch_runs_alone() {
        let rule = rule(8, &[8], DELAY);
        let alone = rule.extended(Front::default(), &Meta::default(), NOW, || false);
        assert!(alone.is_closed());
        assert_eq!(rule.decide(&alone, NOW), Cut::Release(1, Strategy));
    }

    #[test]
    fn the_filter_is_not_called_for_a_request_of_another_shape_or_size() {
        let rule = rule(2, &[2], DELAY);
        let first = rule.extended(Front::default(), &Meta::default(), NOW, || true);
        for meta in [Meta { batch_size: 2, ..Meta::default() }, Meta { shape_key: 1, ..Meta::default() }] {
            assert!(rule.extended(first, &meta, NOW, || panic!("it does not fit")).is_closed());
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
        let urgent = rule.extended(Front::default(), &Meta::default(), NOW + DELAY / 2, || true);
        let both = rule.extended(urgent, &Meta::default(), NOW, || true);
        assert_eq!(rule.decide(&both, NOW + DELAY / 2), Cut::Hold(NOW + DELAY));
    }

    #[test]
    fn an_endless_delay_never_ends() {
        let rule = rule(8, &[8], Duration::MAX);
        let end = Timestamp::from_nanos(u64::MAX);
        assert_eq!(decide(&rule, &[(1, 0)], NOW + Duration::from_secs(1_000_000)), Cut::Hold(end));
    }
}
