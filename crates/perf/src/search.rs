//! Which points of a range are measured, and in which order. Pure: it gets the outcome of each point.

/// The points of a run: numbers of callers, or rates.
#[derive(Debug, PartialEq, Clone)]
pub(crate) enum Points {
    /// These, whatever happens.
    List(Vec<f64>),
    /// From `start` by `step`, until the end or until a point is slower than the limit.
    Range {
        start: f64,
        /// `None`: only a slow point ends the range.
        end: Option<f64>,
        step: f64,
        /// The range is halved, down to `step`, to find the last point below the limit.
        is_binary: bool,
    },
}

impl Points {
    /// The largest point that is known before the run.
    pub(crate) fn largest(&self) -> f64 {
        match self {
            Points::List(points) => points.iter().copied().fold(0.0, f64::max),
            Points::Range { start, end, .. } => end.unwrap_or(*start),
        }
    }
}

/// The walk over the points of a run.
pub(crate) struct LoadSearch {
    points: Points,
    /// The points given so far.
    given: Vec<f64>,
    /// The bounds of a binary search: the largest good point, and the smallest bad point.
    bounds: (f64, f64),
}

impl LoadSearch {
    pub(crate) fn new(points: Points) -> LoadSearch {
        let bounds = match points {
            Points::Range { start, end, .. } => (start, end.unwrap_or(start)),
            Points::List(_) => (0.0, 0.0),
        };
        LoadSearch { points, given: Vec::new(), bounds }
    }

    /// The next point. `good` is whether the point before it was below the limit.
    pub(crate) fn next(&mut self, good: bool) -> Option<f64> {
        let point = match &self.points {
            Points::List(points) => points.get(self.given.len()).copied(),
            Points::Range { start, .. } if self.given.is_empty() => Some(*start),
            Points::Range { is_binary: true, end: Some(end), step, .. } => {
                halved(&mut self.bounds, &self.given, (*end, *step), good)
            }
            // Adding steps one by one would add up errors of rounding.
            Points::Range { start, end, step, .. } => {
                let next = start + step * self.given.len() as f64;
                Some(next).filter(|next| good && end.is_none_or(|end| *next <= end * (1.0 + 1e-12)))
            }
        };
        self.given.extend(point);
        point
    }
}

/// The next point of a binary search. The first two points are the ends.
fn halved(bounds: &mut (f64, f64), given: &[f64], (end, step): (f64, f64), good: bool) -> Option<f64> {
    match given {
        [_] => return Some(end).filter(|end| good && *end > given[0]),
        // The whole range is good.
        [_, _] if good => return None,
        [_, _] => {}
        [.., last] if good => bounds.0 = *last,
        [.., last] => bounds.1 = *last,
        [] => {}
    }
    let (low, high) = *bounds;
    // Numbers of callers are whole.
    let middle = if step.fract() == 0.0 { ((low + high) / 2.0).floor() } else { (low + high) / 2.0 };
    (high - low > step && middle > low).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The points of a run whose points are good up to `limit`.
    fn walked(points: Points, limit: f64) -> Vec<f64> {
        let mut search = LoadSearch::new(points);
        let mut walked = Vec::new();
        let mut good = true;
        while let Some(point) = search.next(good) {
            walked.push(point);
            good = point <= limit;
            assert!(walked.len() < 100, "the search does not end");
        }
        walked
    }

    fn range(start: f64, end: Option<f64>, step: f64, is_binary: bool) -> Points {
        Points::Range { start, end, step, is_binary }
    }

    #[test]
    fn a_list_is_measured_to_its_end() {
        assert_eq!(walked(Points::List(vec![4.0, 1.0]), 0.0), [4.0, 1.0]);
    }

    #[test]
    fn a_range_ends_at_its_end_or_after_a_slow_point() {
        assert_eq!(walked(range(1.0, Some(7.0), 3.0, false), 100.0), [1.0, 4.0, 7.0]);
        assert_eq!(walked(range(1.0, Some(6.0), 3.0, false), 100.0), [1.0, 4.0]);
        assert_eq!(walked(range(1.0, Some(7.0), 1.0, false), 2.5), [1.0, 2.0, 3.0]);
        assert_eq!(walked(range(1.0, None, 1.0, false), 3.0), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(walked(range(0.1, Some(0.3), 0.1, false), 1.0).len(), 3);
    }

    #[test]
    fn a_binary_search_finds_the_last_good_point() {
        assert_eq!(walked(range(1.0, Some(64.0), 1.0, true), 0.0), [1.0]);
        assert_eq!(walked(range(1.0, Some(64.0), 1.0, true), 64.0), [1.0, 64.0]);
        let walked = walked(range(1.0, Some(64.0), 1.0, true), 20.0);
        assert!(walked.contains(&20.0) && walked.contains(&21.0), "{walked:?}");
        assert!(walked.len() <= 8, "{walked:?}");
    }
}
