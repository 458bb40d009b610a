//! Switches the checks of inputs on by a variable of the environment.
use std::{env, fs};

/// Compiled code reads it at its first run. With the value `1` it compares datatype, sizes and strides of each input
/// with those that it was compiled for.
const VARIABLE: &str = "AOTI_RUNTIME_CHECK_INPUTS";

/// Whether compiled code will find the variable set. As the code: any value that does not begin with `0`.
pub(crate) fn are_inputs_checked() -> bool {
    env::var_os(VARIABLE).is_some_and(|value| !value.as_encoded_bytes().starts_with(b"0"))
}

/// Sets the variable, unless another thread might read the environment at the same time. Returns whether it is set.
pub(crate) fn check_inputs_by_environment() -> bool {
    if are_inputs_checked() {
        return true;
    }
    let is_only_thread = fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if is_only_thread {
        // SAFETY: the calling thread is the only one of the process, and it starts no other meanwhile; so no thread
        // reads or writes the environment at the same time.
        unsafe { env::set_var(VARIABLE, "1") };
    }
    is_only_thread
}
