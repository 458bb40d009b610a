//! How much memory the server may hold for clients, and the defaults.
use std::fs;

use crate::control_groups::ControlGroupLimits;

/// Limits of the whole process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Inputs of requests that are being received, wait, or are executed (`--max-inflight-bytes`).
    pub inflight_bytes: usize,
    /// Responses that clients have not read yet (`--max-unread-response-bytes`).
    pub unread_response_bytes: usize,
    /// Tensors that the requests of one ensemble hold between its steps (`--max-intermediate-bytes`).
    pub intermediate_bytes: usize,
}

impl Default for MemoryLimits {
    /// Inputs: half of the memory that the process may use. Responses: a quarter of it. Tensors of an ensemble: an eighth.
    fn default() -> Self {
        let memory = usable_memory().unwrap_or(FALLBACK);
        Self { inflight_bytes: memory / 2, unread_response_bytes: memory / 4, intermediate_bytes: memory / 8 }
    }
}

/// The assumed memory in bytes, where the system does not report it.
const FALLBACK: usize = 4 << 30;

/// Bytes that a configuration may ask for at once, such as a sample for warm-up or a state: half of the memory that the
/// process may use.
pub fn configurable_bytes() -> usize {
    usable_memory().unwrap_or(FALLBACK) / 2
}

/// Bytes of memory that the process may use: those of the machine, or the limit of its control groups if that is less.
pub fn usable_memory() -> Option<usize> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of(&text));
    machine.into_iter().chain(ControlGroupLimits::of_process().memory).min()
}

/// `MemTotal` of `/proc/meminfo`, which is in KiB there.
fn total_of(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_machine_is_read_in_kib() {
        assert_eq!(total_of("MemTotal:       24689764 kB\nMemFree: 1 kB\n"), Some(24_689_764 * 1024));
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn defaults_leave_memory_for_models() {
        let MemoryLimits { inflight_bytes, unread_response_bytes, .. } = MemoryLimits::default();
        assert!(unread_response_bytes > 0 && inflight_bytes / 2 == unread_response_bytes);
    }
}
