//! Ends the process while threads run code of shared libraries.
use std::io::{self, Write};

/// Ends the process with this status, without destructors of libraries and functions that are registered for the exit.
/// Threads may be anywhere in the code of plug-ins and of ONNX Runtime: the usual exit would destroy the objects that
/// they use, and they would crash the process.
pub fn exit_at_once(status: i32) -> ! {
    // Nobody reads stdout if this fails.
    let _ = io::stdout().flush();
    // SAFETY: the function has no precondition.
    unsafe { libc::_exit(status) }
}
