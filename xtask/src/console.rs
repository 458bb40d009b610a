//! What this program prints between the output of others.

use std::io::{IsTerminal, stdout};

/// Prints a line that is easy to find in the output of other programs.
pub(crate) fn heading(text: &str) {
    if stdout().is_terminal() {
        println!("\n\x1b[1m== {text}\x1b[0m");
    } else {
        println!("\n== {text}");
    }
}
