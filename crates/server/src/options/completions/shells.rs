//! The shells.

use super::{bash, fish, zsh};

/// The shells that there are completions for.
pub const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// The script that completes commands, options and values in a shell of [`SHELLS`]. `None` for another one.
pub fn completions(shell: &str) -> Option<String> {
    match shell {
        "bash" => Some(bash::script()),
        "zsh" => Some(zsh::script()),
        "fish" => Some(fish::script()),
        _ => None,
    }
}
