//! Metrics of the machine: its processors and its memory.
use std::{
    fs,
    time::{Duration, Instant},
};

use inference::lock::Mutex;

/// Reads the kernel's tables on demand. Nothing runs in between.
pub(crate) struct HostGauges {
    last: Mutex<HostSample>,
    /// How long a sample is used.
    lifetime: Duration,
}

struct HostSample {
    at: Instant,
    ticks: Ticks,
    utilization: f64,
    memory: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl HostGauges {
    /// Takes the baseline for the first reading. A sample is used for `lifetime`.
    pub(crate) fn new(lifetime: Duration) -> Self {
        let sample = HostSample {
            at: Instant::now(),
            ticks: read_ticks().unwrap_or_default(),
            utilization: 0.0,
            memory: read_memory(),
        };
        Self { last: Mutex::new(sample), lifetime }
    }

    /// Share of processor time used between the last two samples, 0 to 1. Stays the same if the kernel's clock has not
    /// ticked between them (P-W58). Then total and used memory in bytes.
    pub(crate) fn read(&self) -> (f64, Option<(u64, u64)>) {
        let mut last = self.last.lock();
        let now = Instant::now();
        if now.duration_since(last.at) >= self.lifetime {
            last.take(read_ticks(), now);
            last.memory = read_memory();
        }
        (last.utilization, last.memory)
    }
}

impl HostSample {
    fn take(&mut self, ticks: Option<Ticks>, now: Instant) {
        if let Some(ticks) = ticks.filter(|ticks| ticks.all > self.ticks.all) {
            let spent = ticks.busy.saturating_sub(self.ticks.busy) as f64;
            self.utilization = spent / (ticks.all - self.ticks.all) as f64;
            self.ticks = ticks;
            self.at = now;
        }
    }
}

fn read_memory() -> Option<(u64, u64)> {
    parse_memory(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn read_ticks() -> Option<Ticks> {
    parse_ticks(&fs::read_to_string("/proc/stat").ok()?)
}

/// The first line: `cpu user nice system idle iowait irq softirq steal ...`.
fn parse_ticks(stat: &str) -> Option<Ticks> {
    let mut fields =
        stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(|field| field.parse::<u64>().ok());
    let mut next = || fields.next().flatten();
    let (user, nice, system, idle) = (next()?, next()?, next()?, next()?);
    let (iowait, irq, softirq, steal) = (next()?, next()?, next()?, next().unwrap_or(0));
    let busy = user + nice + system + irq + softirq + steal;
    Some(Ticks { busy, all: busy + idle + iowait })
}

fn parse_memory(meminfo: &str) -> Option<(u64, u64)> {
    let kilobytes = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
    };
    let (total, available) = (kilobytes("MemTotal")? * 1024, kilobytes("MemAvailable")? * 1024);
    Some((total, total.saturating_sub(available)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> HostSample {
        HostSample {
            at: Instant::now(),
            ticks: Ticks { busy: 10, all: 100 },
            utilization: 0.25,
            memory: None,
        }
    }

    #[test]
    fn the_load_is_that_between_two_measurements_and_stays_if_the_clock_has_not_ticked() {
        let mut sample = sample();
        sample.take(Some(Ticks { busy: 10, all: 100 }), Instant::now());
        assert_eq!(sample.utilization, 0.25);
        sample.take(None, Instant::now());
        assert_eq!(sample.utilization, 0.25);
        sample.take(Some(Ticks { busy: 40, all: 150 }), Instant::now());
        assert_eq!((sample.utilization, sample.ticks), (0.6, Ticks { busy: 40, all: 150 }));
    }

    #[test]
    fn a_measurement_is_used_for_its_lifetime() {
        let read = |lifetime| {
            let host = HostGauges { last: Mutex::new(sample()), lifetime };
            host.read().1.is_some()
        };
        assert!(!read(Duration::from_secs(3600)), "nothing is measured again");
        assert!(read(Duration::ZERO));
    }

    #[test]
    fn the_kernels_tables_are_understood() {
        let ticks = parse_ticks("cpu  10 1 5 100 4 2 3 0 0 0\ncpu0 1 1 1\n");
        assert_eq!(ticks, Some(Ticks { busy: 21, all: 125 }));
        assert_eq!(parse_ticks("intr 5"), None);
        assert_eq!(
            parse_memory("MemTotal:  10 kB\nMemFree: 1 kB\nMemAvailable:  4 kB\n"),
            Some((10_240, 6_144))
        );
    }
}
