//! How the library is kept from sending telemetry: a variable of the environment, and a function of its table.
use std::{env, fs};

use super::{OrtError, Runtime};

/// The library reads it when it makes its environment, and starts neither an uploader nor a queue of events if it is `1`.
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
    // SAFETY: the calling thread is the only one of the process, and it starts no other here; so nobody reads or writes
    // the environment at the same time.
    unsafe { env::set_var(VARIABLE, "1") };
    true
}

/// Whether the process has one thread. `false` also where the system does not say.
fn is_only_thread() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

impl Runtime {
    /// Ends the events about sessions and runs. It does not end an uploader that has been started.
    pub(crate) fn disable_telemetry_events(&self) -> Result<(), OrtError> {
        // SAFETY: the environment is ours and lives.
        self.check(unsafe { ((*self.api()).DisableTelemetryEvents)(self.environment()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_several_threads_is_told_apart() {
        // The test runner's own thread is there as well.
        assert!(!is_only_thread());
    }
}
