//! The number of processors that the process may use, as its affinity mask and its control groups permit, and sets of
//! processors in the notation of operators and the kernel.
use std::{collections::BTreeSet, fmt, num::NonZeroUsize};

use rustix::thread::CpuSet;

use crate::control_groups::ControlGroupLimits;

/// Processors by number. Has at least one processor, and none beyond the size of an affinity mask (1024).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorSet(BTreeSet<usize>);

impl ProcessorSet {
    /// Reads numbers and ranges such as `0-3,8`, the notation of the kernel's lists. `None` for any other text, for a
    /// range that ends before it begins, and for numbers beyond a mask.
    pub fn parse(text: &str) -> Option<Self> {
        let mut processors = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            if first > last || last >= CpuSet::MAX_CPU {
                return None;
            }
            processors.extend(first..=last);
        }
        Some(Self(processors))
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// The number of processors.
    pub fn count(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.0.len()).expect("a set has at least one processor")
    }

    /// The set as an affinity mask.
    pub(crate) fn mask(&self) -> CpuSet {
        let mut mask = CpuSet::new();
        self.iter().for_each(|processor| mask.set(processor));
        mask
    }
}

/// Writes numbers and ranges in the notation that [`ProcessorSet::parse`] reads.
impl fmt::Display for ProcessorSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

/// The number of processors that this process may keep busy, at least one.
///
/// The smaller of the affinity mask and the processor time that its control groups permit, rounded up: a container
/// limited to one and a half processors computes on two threads.
pub fn usable() -> NonZeroUsize {
    // The standard library also reads quotas. It rounds them down, and one reader must decide.
    let affine = affine().or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    ControlGroupLimits::of_process().processors.map_or(affine, |permitted| affine.min(permitted))
}

/// The number of processors in the affinity mask. `None` if the system does not tell it, or if it has more processors
/// than the mask.
fn affine() -> Option<NonZeroUsize> {
    let mask = rustix::thread::sched_getaffinity(None).ok()?;
    NonZeroUsize::new(usize::try_from(mask.count()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_list_of_numbers_and_ranges() {
        let numbers = |text| ProcessorSet::parse(text).map(|set| set.iter().collect::<Vec<_>>());
        assert_eq!(numbers("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(numbers("5,2-3,3\n"), Some(vec![2, 3, 5]));
        assert_eq!(numbers("1023"), Some(vec![1023]));
        for text in ["", "\n", "x", "3-1", "1-", "-1", "1,,2", "1024", "0-99999999999", "0x1", "0-1-2"] {
            assert_eq!(numbers(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_mask_has_the_processors_of_its_set() {
        let mask = ProcessorSet::parse("0,2-3").unwrap().mask();
        assert_eq!((mask.count(), mask.is_set(0), mask.is_set(1), mask.is_set(3)), (3, true, false, true));
    }
}
