//! What a wrapper adds to the bare calls of its library.
use std::{fmt, time::Instant};

/// Runs of one measurement.
const RUNS: u32 = 300;

/// Measurements of each way to run, of which the shortest counts.
const MEASUREMENTS: usize = 300;

/// Nanoseconds of one run by the bare calls of a library, and by what wraps them. It is shown as
/// `bare_ns=1 wrapped_ns=2 added_ns=1`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunCost {
    bare: f64,
    wrapped: f64,
}

impl RunCost {
    /// Measures both ways in turns. Each is called with the number of its runs.
    ///
    /// # Errors
    /// That of a run.
    pub fn measure<T, E>(
        target: &mut T,
        bare: impl Fn(&mut T, u32) -> Result<(), E>,
        wrapped: impl Fn(&mut T, u32) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut least = Self { bare: f64::MAX, wrapped: f64::MAX };
        for _ in 0..MEASUREMENTS {
            least.bare = least.bare.min(nanos_of_run(|| bare(target, RUNS))?);
            least.wrapped = least.wrapped.min(nanos_of_run(|| wrapped(target, RUNS))?);
        }
        Ok(least)
    }
}

impl fmt::Display for RunCost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bare, wrapped } = self;
        write!(formatter, "bare_ns={bare:.0} wrapped_ns={wrapped:.0} added_ns={:.0}", wrapped - bare)
    }
}

fn nanos_of_run<E>(runs: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let began = Instant::now();
    runs()?;
    Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(RUNS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_run_equally_often_and_an_error_ends_them() {
        let mut runs = (0, 0);
        let bare = |runs: &mut (u32, u32), count| {
            runs.0 += count;
            Ok::<_, &str>(())
        };
        let wrapped = |runs: &mut (u32, u32), count| {
            runs.1 += count;
            Ok(())
        };
        let cost = RunCost::measure(&mut runs, bare, wrapped).unwrap();
        assert!(runs.0 > 0 && runs.0 == runs.1 && cost.bare >= 0.0);
        assert_eq!(RunCost::measure(&mut runs, bare, |_, _| Err("broken")), Err("broken"));
        let cost = RunCost { bare: 1000.4, wrapped: 1600.6 };
        assert_eq!(cost.to_string(), "bare_ns=1000 wrapped_ns=1601 added_ns=600");
    }
}
