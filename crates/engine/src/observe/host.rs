//! Metrics of the machine: its processors and its memory.
use std::fs;

use parking_lot::Mutex;

/// Reads the kernel's tables on demand. Nothing runs in between.
pub(crate) struct Host {
    last: Mutex<CpuSample>,
}

struct CpuSample {
    ticks: Ticks,
    utilization: f64,
}

#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl Host {
    /// Takes the baseline for the first reading.
    pub(crate) fn new() -> Self {
        Self { last: Mutex::new(CpuSample { ticks: read_ticks().unwrap_or_default(), utilization: 0.0 }) }
    }

    /// Share of processor time used since the last reading, 0 to 1. Returns the last value if the kernel's clock has
    /// not ticked since then (P-W58).
    pub(crate) fn cpu_utilization(&self) -> f64 {
        let mut last = self.last.lock();
        if let Some(ticks) = read_ticks().filter(|ticks| ticks.all > last.ticks.all) {
            let spent = ticks.busy.saturating_sub(last.ticks.busy) as f64;
            last.utilization = spent / (ticks.all - last.ticks.all) as f64;
            last.ticks = ticks;
        }
        last.utilization
    }

    /// Total and used memory in bytes.
    pub(crate) fn memory(&self) -> Option<(u64, u64)> {
        parse_memory(&fs::read_to_string("/proc/meminfo").ok()?)
    }
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
