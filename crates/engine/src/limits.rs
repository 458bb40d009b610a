//! How much memory the server may hold for clients, and the defaults.
use std::{fs, hint::black_box};

use inference::Error;

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

/// Requires that the server can make `bytes` bytes which a configuration asks for: samples for warm-up, or states.
///
/// They may be half of the memory that the process may use. An allocation beyond a limit of the process, such as
/// `ulimit -v`, would end the server. So this function tries to allocate them.
///
/// # Errors
/// INVALID_ARG beyond the bound; INTERNAL if the process does not get the memory. `what` is the subject.
pub(crate) fn require_memory(what: &str, bytes: u128) -> Result<(), Error> {
    let bound = usable_memory().unwrap_or(FALLBACK) / 2;
    let Some(bytes) = usize::try_from(bytes).ok().filter(|bytes| *bytes <= bound) else {
        let text =
            format!("{what} takes {bytes} bytes, more than half of the memory of the server ({bound} bytes)");
        return Err(Error::invalid(text));
    };
    let mut memory = Vec::<u8>::new();
    let reserved = memory.try_reserve_exact(bytes);
    // Otherwise the compiler may leave out an allocation that nothing uses.
    black_box(&mut memory);
    reserved
        .map_err(|_| Error::internal(format!("{what} takes {bytes} bytes, which the server cannot allocate")))
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
    fn what_is_larger_than_half_of_the_memory_is_refused() {
        let bound = usable_memory().unwrap_or(FALLBACK) / 2;
        assert_eq!(require_memory("a state", 1 << 20), Ok(()));
        for bytes in [bound as u128 + 1, u128::MAX] {
            assert_eq!(
                require_memory("a state", bytes).unwrap_err().message,
                format!(
                    "a state takes {bytes} bytes, more than half of the memory of the server ({bound} bytes)"
                )
            );
        }
    }

    #[test]
    fn defaults_leave_memory_for_models() {
        let MemoryLimits { inflight_bytes, unread_response_bytes, .. } = MemoryLimits::default();
        assert!(unread_response_bytes > 0 && inflight_bytes / 2 == unread_response_bytes);
    }
}
