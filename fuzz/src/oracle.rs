//! What a parser may cost, and what it has broken.
use std::fmt;

use crate::counting_allocator::Allocated;

/// What a run of a parser says about itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// The most bytes that the parser had reserved in a budget at the same time.
    pub reserved: usize,
    /// The steps of a parser that counts them.
    pub steps: Option<usize>,
}

/// A limit in proportion to the input: `factor` for each byte, and `constant` besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// What a byte may cost.
    pub factor: usize,
    /// What an empty input may cost.
    pub constant: usize,
    /// Why the limit is what it is.
    pub reason: &'static str,
}

impl Bound {
    /// The limit for so many bytes.
    pub fn limit(&self, bytes: usize) -> usize {
        self.factor.saturating_mul(bytes).saturating_add(self.constant)
    }
}

/// A promise that a parser has broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// It panicked.
    Panic,
    /// It had more bytes at the same time than its bound allows.
    Memory {
        /// The most bytes at the same time.
        peak: usize,
        /// Its limit.
        limit: usize,
    },
    /// It worked more than its bound allows.
    Work {
        /// Steps, or allocations.
        done: usize,
        /// Its limit.
        limit: usize,
    },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic => f.write_str("it panicked"),
            Self::Memory { peak, limit } => {
                write!(f, "it had {peak} bytes at the same time, more than {limit}")
            }
            Self::Work { done, limit } => write!(f, "it took {done} steps or allocations, more than {limit}"),
        }
    }
}

/// The bytes of allocations that count as one more allocation: who copies much, works much.
const BYTES_OF_WORK: usize = 256;

/// The work of a parser: its steps, or its allocations if it counts no steps.
fn work(effort: Effort, allocated: Allocated) -> usize {
    effort.steps.unwrap_or(allocated.count + allocated.total / BYTES_OF_WORK)
}

/// Compares what a run has cost with the bounds of its target, for an input of so many bytes.
pub(crate) fn judge(
    (memory, of_work): (&Bound, &Bound),
    input: usize,
    effort: Effort,
    allocated: Allocated,
) -> Result<(), Broken> {
    let limit = memory.limit(input.saturating_add(effort.reserved));
    if allocated.peak > limit {
        return Err(Broken::Memory { peak: allocated.peak, limit });
    }
    let (done, limit) =
        (work(effort, allocated), of_work.limit(input.saturating_add(effort.reserved / BYTES_OF_WORK)));
    if done > limit { Err(Broken::Work { done, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound { factor: 2, constant: 100, reason: "a test" };

    fn judged(effort: Effort, peak: usize, count: usize) -> Result<(), Broken> {
        judge((&BOUND, &BOUND), 10, effort, Allocated { peak, count, total: peak })
    }

    #[test]
    fn what_is_reserved_counts_as_input() {
        let none = Effort::default();
        assert_eq!(judged(none, 120, 0), Ok(()));
        assert_eq!(judged(none, 121, 0), Err(Broken::Memory { peak: 121, limit: 120 }));
        assert_eq!(judged(Effort { reserved: 100, steps: None }, 320, 0), Ok(()));
    }

    #[test]
    fn steps_count_and_otherwise_allocations() {
        assert_eq!(judged(Effort::default(), 0, 121), Err(Broken::Work { done: 121, limit: 120 }));
        let counted = |steps| Effort { reserved: 0, steps: Some(steps) };
        assert_eq!(judged(counted(120), 0, 1000), Ok(()));
        assert_eq!(judged(counted(121), 0, 0), Err(Broken::Work { done: 121, limit: 120 }));
        let copied = Allocated { peak: 100, count: 1, total: 120 * BYTES_OF_WORK };
        assert!(judge((&BOUND, &BOUND), 10, Effort::default(), copied).is_err());
    }
}
