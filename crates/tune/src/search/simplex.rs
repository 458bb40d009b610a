//! The least value of a function of a few numbers, by the method of Nelder and Mead.

/// Walks a simplex from `start` with edges of `step`, for at most `rounds` rounds. Returns the best place.
pub(crate) fn minimize<const N: usize>(
    start: [f64; N],
    step: f64,
    rounds: usize,
    function: impl Fn(&[f64; N]) -> f64,
) -> [f64; N] {
    let corner = |place: [f64; N]| (function(&place), place);
    let mut corners = vec![corner(start)];
    for axis in 0..N {
        let mut place = start;
        place[axis] += step;
        corners.push(corner(place));
    }
    for _ in 0..rounds {
        corners.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (best, worst) = (corners[0].0, corners[N]);
        if (worst.0 - best).abs() < 1e-9 {
            break;
        }
        let mut center = [0.0; N];
        for (_, place) in &corners[..N] {
            (0..N).for_each(|axis| center[axis] += place[axis] / N as f64);
        }
        // 1 mirrors the worst corner at the center of the others.
        let along = |factor: f64| {
            let mut place = center;
            (0..N).for_each(|axis| place[axis] += factor * (center[axis] - worst.1[axis]));
            corner(place)
        };
        let mirrored = along(1.0);
        let moved = if mirrored.0 < best {
            let further = along(2.0);
            Some(if further.0 < mirrored.0 { further } else { mirrored })
        } else if mirrored.0 < corners[N - 1].0 {
            Some(mirrored)
        } else {
            Some(along(if mirrored.0 < worst.0 { 0.5 } else { -0.5 })).filter(|nearer| nearer.0 < worst.0)
        };
        match moved {
            Some(moved) => corners[N] = moved,
            None => {
                let best = corners[0].1;
                for entry in &mut corners[1..] {
                    let mut place = entry.1;
                    (0..N).for_each(|axis| place[axis] = f64::midpoint(place[axis], best[axis]));
                    *entry = corner(place);
                }
            }
        }
    }
    corners.sort_by(|a, b| a.0.total_cmp(&b.0));
    corners[0].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_the_bottom_of_a_bent_valley() {
        let found = minimize([-1.2, 1.0], 0.5, 400, |[x, y]| (1.0 - x).powi(2) + 100.0 * (y - x * x).powi(2));
        assert!((found[0] - 1.0).abs() < 1e-3 && (found[1] - 1.0).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn a_flat_function_ends_at_once() {
        assert_eq!(minimize([3.0], 1.0, 1000, |_| 7.0), [3.0]);
    }
}
