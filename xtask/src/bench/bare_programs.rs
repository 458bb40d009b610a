//! Programs that do the work of a server without one: examples of crates, which print figures as `NAME=NUMBER`.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::{self, cargo};

/// Builds the example of a crate for release, and returns the program.
pub(super) fn build(package: &str, example: &str) -> Result<PathBuf> {
    process::run(&mut cargo(&["build", "--release", "--package", package, "--example", example]))?;
    Ok(workspace::target().join("release/examples").join(example))
}

/// A figure that a program has printed.
pub(super) fn figure(printed: &str, name: &str) -> Result<f64> {
    let figure = printed.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    figure
        .and_then(|text| text.parse().ok())
        .with_context(|| format!("there is no figure {name} in what was printed: {printed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_read_by_its_whole_name() {
        let printed = "first_p50_us=12.5 p50_us=3\n";
        assert_eq!(figure(printed, "p50_us").unwrap(), 3.0);
        assert!(figure(printed, "p99_us").is_err());
    }
}
