//! The criterion benches of all crates.

use anyhow::Result;

use crate::console::heading;
use crate::process;
use crate::workspace::{self, cargo};

/// Runs every criterion bench of the workspace.
pub(super) fn run() -> Result<()> {
    for package in workspace::packages()? {
        for target in package["targets"].as_array().into_iter().flatten() {
            let is_bench =
                target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bench"));
            if let (true, Some(package), Some(bench)) =
                (is_bench, package["name"].as_str(), target["name"].as_str())
            {
                heading(&format!("{package}: {bench}"));
                process::run(&mut cargo(&["bench", "--package", package, "--bench", bench]))?;
            }
        }
    }
    Ok(())
}
