//! How busy the machine is, with all its programs: other programs make measurements worse.

use std::fs;
use std::time::Instant;

/// The units of `/proc/stat` in a second. Linux shows programs a hundred on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// A reading of the machine's counters.
pub struct BusyReading {
    at: Instant,
    /// Busy ticks of all processors. `None`: the system does not tell.
    ticks: Option<u64>,
}

impl BusyReading {
    /// Reads the counters.
    #[must_use]
    pub fn now() -> BusyReading {
        let text = fs::read_to_string("/proc/stat").ok();
        BusyReading { at: Instant::now(), ticks: text.as_deref().and_then(busy_ticks) }
    }

    /// How many processors were busy since the reading, in the mean.
    #[must_use]
    pub fn busy_since(&self) -> Option<f64> {
        let now = BusyReading::now();
        let ticks = now.ticks?.saturating_sub(self.ticks?);
        let seconds = now.at.duration_since(self.at).as_secs_f64();
        (seconds > 0.0).then(|| ticks as f64 / TICKS_PER_SECOND / seconds)
    }
}

/// All ticks but those of waiting: idle, and idle with a disk at work.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // The time of guests is in that of programs already.
    let all: u64 = ticks.iter().take(8).sum();
    Some(all - ticks.get(3)? - ticks.get(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_not_busy() {
        let stat = "cpu  10 20 30 1000 500 1 2 3 7 8\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(busy_ticks(stat), Some(66));
        assert_eq!(busy_ticks("intr 5\n"), None);
        assert_eq!(busy_ticks("cpu  1 2\n"), None);
    }
}
