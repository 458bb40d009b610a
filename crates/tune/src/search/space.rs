//! What can be chosen: the grid of settings and of callers.

use std::fmt;

/// What a configuration sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunedSetting {
    /// `instance_group.count`.
    pub instances: u32,
    /// Threads of a run. `None`: the model has no such parameter.
    pub threads: Option<u32>,
    /// The largest batch that the dynamic batcher forms. 1: it forms none.
    pub batch: u32,
    /// `max_queue_delay_microseconds`.
    pub delay_us: u32,
}

/// A setting under a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TuningPoint {
    /// What the configuration sets.
    pub setting: TunedSetting,
    /// How many callers send their next request when they have their answer.
    pub callers: u32,
}

impl fmt::Display for TunedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        write!(f, "{} instance{}", self.instances, plural(self.instances))?;
        if let Some(threads) = self.threads {
            write!(f, ", {threads} thread{}", plural(threads))?;
        }
        match (self.batch, self.delay_us) {
            (1, _) => write!(f, ", no batching"),
            (batch, 0) => write!(f, ", batches to {batch}"),
            (batch, delay) => write!(f, ", batches to {batch}, delay {delay} us"),
        }
    }
}

impl fmt::Display for TuningPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.callers == 1 { "" } else { "s" };
        write!(f, "{}, {} caller{plural}", self.setting, self.callers)
    }
}

/// What the model and the machine allow.
#[derive(Clone, Debug)]
pub struct SpaceLimits {
    /// Processors that the server may use.
    pub processors: u32,
    /// The largest batch. 1 if the model does not batch.
    pub batch: u32,
    /// Whether a run's threads can be set.
    pub has_threads: bool,
    /// The numbers of callers.
    pub callers: Vec<u32>,
    /// The setting that the model has now.
    pub present: TunedSetting,
}

/// Every setting and every number of callers that may be tried. Neither is empty.
#[derive(Clone, Debug)]
pub struct TuningSpace {
    /// The settings in order. The present one is among them.
    pub settings: Vec<TunedSetting>,
    /// The numbers of callers, ascending.
    pub callers: Vec<u32>,
    /// The present setting.
    pub present: TunedSetting,
    /// Processors that the server may use.
    pub processors: u32,
}

/// The delays that are tried, in microseconds.
pub const DELAYS_US: [u32; 3] = [0, 1000, 4000];

/// How many threads all instances together may have for each processor. More only wait for each other.
const THREADS_PER_PROCESSOR: u32 = 2;

impl TuningSpace {
    /// The grid: instances, threads and batches in powers of two, and the delays of [`DELAYS_US`] for batches. All
    /// instances together have at most two threads for each processor.
    #[must_use]
    pub fn new(limits: &SpaceLimits) -> TuningSpace {
        let processors = limits.processors.max(1);
        let most = processors * THREADS_PER_PROCESSOR;
        let threads = match limits.has_threads {
            true => powers(processors).into_iter().map(Some).collect(),
            false => vec![None],
        };
        let mut settings = vec![limits.present];
        for instances in powers(most) {
            for &threads in &threads {
                if instances * threads.unwrap_or(1) > most {
                    continue;
                }
                for batch in powers(limits.batch) {
                    let delays = if batch == 1 { &DELAYS_US[..1] } else { &DELAYS_US[..] };
                    let of_delay = |&delay_us| TunedSetting { instances, threads, batch, delay_us };
                    settings.extend(delays.iter().map(of_delay));
                }
            }
        }
        settings.sort_unstable();
        settings.dedup();
        let mut callers: Vec<u32> = limits.callers.iter().map(|&callers| callers.max(1)).collect();
        callers.sort_unstable();
        callers.dedup();
        if callers.is_empty() {
            callers.push(1);
        }
        TuningSpace { settings, callers, present: limits.present, processors }
    }

    /// Every point.
    pub fn points(&self) -> impl Iterator<Item = TuningPoint> {
        self.settings
            .iter()
            .flat_map(|&setting| self.callers.iter().map(move |&callers| TuningPoint { setting, callers }))
    }

    /// The largest number of callers.
    #[must_use]
    pub fn most_callers(&self) -> u32 {
        self.callers.last().copied().unwrap_or(1)
    }
}

/// The powers of two below `most`, and `most`.
#[must_use]
pub fn powers(most: u32) -> Vec<u32> {
    let mut powers: Vec<u32> = (0..31).map(|bit| 1 << bit).take_while(|&power| power < most).collect();
    powers.push(most.max(1));
    powers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present() -> TunedSetting {
        TunedSetting { instances: 3, threads: Some(1), batch: 4, delay_us: 77 }
    }

    fn limits() -> SpaceLimits {
        SpaceLimits { processors: 2, batch: 6, has_threads: true, callers: vec![8, 1, 8], present: present() }
    }

    #[test]
    fn the_grid_has_the_present_setting_and_no_point_twice() {
        let space = TuningSpace::new(&limits());
        assert!(space.settings.contains(&present()));
        assert_eq!(space.callers, [1, 8]);
        let mut points: Vec<_> = space.points().collect();
        // Five pairs of instances and threads, one batch of 1 and three sizes with three delays, and the present one.
        assert_eq!(points.len(), 2 * (5 * (1 + 3 * 3) + 1));
        points.sort_unstable();
        points.dedup();
        assert_eq!(points.len(), 2 * (5 * (1 + 3 * 3) + 1));
    }

    #[test]
    fn threads_are_bounded_by_the_processors() {
        for setting in TuningSpace::new(&limits()).settings {
            assert!(setting.instances * setting.threads.unwrap() <= 4, "{setting}");
            assert!(setting.batch > 1 || setting.delay_us == 0, "{setting}");
        }
    }

    #[test]
    fn a_model_without_batches_and_threads_has_instances_only() {
        let present = TunedSetting { instances: 1, threads: None, batch: 1, delay_us: 0 };
        let limits = SpaceLimits { batch: 1, has_threads: false, present, ..limits() };
        let instances: Vec<u32> =
            TuningSpace::new(&limits).settings.iter().map(|setting| setting.instances).collect();
        assert_eq!(instances, [1, 2, 4]);
    }

    #[test]
    fn powers_end_with_the_limit() {
        assert_eq!(powers(1), [1]);
        assert_eq!(powers(6), [1, 2, 4, 6]);
        assert_eq!(powers(8), [1, 2, 4, 8]);
    }
}
