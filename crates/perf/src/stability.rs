//! Decides whether windows agree. Pure: it gets the figures of each window.

use std::time::Duration;

/// How many windows must agree.
pub(crate) const AGREEING: usize = 3;

/// The rules for a point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StabilityRule {
    /// How much the largest figure may exceed the smallest, in percent.
    pub(crate) percent: f64,
    /// After this number of windows the point is not stable.
    pub(crate) most: u32,
    /// If all of the last windows are slower than this, more windows change nothing.
    pub(crate) latency_limit: Option<Duration>,
}

/// The figures of a window that are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ComparedWindow {
    /// Valid responses per second.
    pub(crate) throughput: f64,
    pub(crate) latency: Duration,
}

/// What the windows so far mean.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) enum StabilityVerdict {
    /// Another window is needed.
    Open,
    Stable,
    /// There were as many windows as allowed, or all are slower than the limit.
    Unstable,
}

/// Judges the windows of a point.
pub(crate) fn judge(windows: &[ComparedWindow], rule: &StabilityRule) -> StabilityVerdict {
    let last = windows.len().checked_sub(AGREEING).map(|start| &windows[start..]);
    if let Some(last) = last {
        let throughputs: Vec<f64> = last.iter().map(|window| window.throughput).collect();
        let latencies: Vec<f64> = last.iter().map(|window| window.latency.as_secs_f64()).collect();
        // A window without a response has no latency to compare.
        let answered = throughputs.iter().all(|&throughput| throughput > 0.0);
        if answered && agree(&throughputs, rule.percent) && agree(&latencies, rule.percent) {
            return StabilityVerdict::Stable;
        }
        if rule.latency_limit.is_some_and(|limit| last.iter().all(|window| window.latency > limit)) {
            return StabilityVerdict::Unstable;
        }
    }
    if windows.len() >= rule.most as usize { StabilityVerdict::Unstable } else { StabilityVerdict::Open }
}

fn agree(figures: &[f64], percent: f64) -> bool {
    let largest = figures.iter().copied().fold(f64::MIN, f64::max);
    let smallest = figures.iter().copied().fold(f64::MAX, f64::min);
    largest <= smallest * (1.0 + percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: StabilityRule = StabilityRule { percent: 10.0, most: 5, latency_limit: None };

    fn judged(windows: &[(f64, u64)], rule: StabilityRule) -> StabilityVerdict {
        let figures = |&(throughput, latency): &(f64, u64)| ComparedWindow {
            throughput,
            latency: Duration::from_micros(latency),
        };
        judge(&windows.iter().map(figures).collect::<Vec<_>>(), &rule)
    }

    #[test]
    fn three_windows_must_agree_in_both_figures() {
        assert_eq!(judged(&[(100.0, 50), (100.0, 50)], RULE), StabilityVerdict::Open);
        assert_eq!(judged(&[(100.0, 50), (105.0, 52), (110.0, 55)], RULE), StabilityVerdict::Stable);
        assert_eq!(judged(&[(100.0, 50), (105.0, 50), (111.0, 50)], RULE), StabilityVerdict::Open);
        assert_eq!(judged(&[(100.0, 50), (100.0, 53), (100.0, 56)], RULE), StabilityVerdict::Open);
    }

    #[test]
    fn only_the_last_three_windows_count() {
        assert_eq!(
            judged(&[(1.0, 900), (100.0, 50), (100.0, 50), (100.0, 50)], RULE),
            StabilityVerdict::Stable
        );
        assert_eq!(
            judged(&[(100.0, 50), (100.0, 50), (100.0, 50), (1.0, 900)], RULE),
            StabilityVerdict::Open
        );
    }

    #[test]
    fn windows_without_responses_do_not_agree() {
        assert_eq!(judged(&[(0.0, 0), (0.0, 0), (0.0, 0)], RULE), StabilityVerdict::Open);
    }

    #[test]
    fn a_point_has_only_so_many_windows() {
        let growing = [(100.0, 1), (200.0, 2), (400.0, 4), (800.0, 8), (1600.0, 16)];
        assert_eq!(judged(&growing[..4], RULE), StabilityVerdict::Open);
        assert_eq!(judged(&growing, RULE), StabilityVerdict::Unstable);
    }

    #[test]
    fn windows_that_are_all_slower_than_the_limit_end_a_point() {
        let rule = StabilityRule { latency_limit: Some(Duration::from_micros(10)), ..RULE };
        assert_eq!(judged(&[(1.0, 11), (2.0, 20), (3.0, 40)], rule), StabilityVerdict::Unstable);
        assert_eq!(judged(&[(1.0, 9), (2.0, 20), (3.0, 40)], rule), StabilityVerdict::Open);
    }
}
