//! Disables the library's telemetry by a variable of the environment and by a function of its table.
use std::{env, fs};

use super::{OrtError, Runtime};

/// The library reads it when it makes its environment. With the value `1` it starts neither an uploader nor a queue of
/// events.
const VARIABLE: &str = "ORT_DISABLE_TELEMETRY";

/// Whether the library will find the variable set.
pub(crate) fn is_telemetry_disabled_by_environment() -> bool {
    env::var_os(VARIABLE).is_some_and(|value| value == "1")
}

/// Sets the variable, unless another thread might read the environment at the same time. Returns whether it is set.
pub(crate) fn disable_telemetry_by_environment() -> bool {
    if is_telemetry_disabled_by_environment() {
        return true;
    }
    if !is_only_thread() {
        return false;
    }
    // SAFETY: the calling thread is the only one of the process, and it starts no other meanwhile; so no thread reads
    // or writes the environment at the same time.
    unsafe { env::set_var(VARIABLE, "1") };
    true
}

/// Whether the process has one thread. `false` also where the system does not report the number.
fn is_only_thread() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

impl Runtime {
    /// Ends the events about sessions and runs. Does not end an uploader that has been started.
    pub(crate) fn disable_telemetry_events(&self) -> Result<(), OrtError> {
        // SAFETY: this value owns the environment, which lives.
        self.check(unsafe { ((*self.api()).DisableTelemetryEvents)(self.environment()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_several_threads_is_recognised() {
        // The test runner has a thread, too.
        assert!(!is_only_thread());
    }
}
