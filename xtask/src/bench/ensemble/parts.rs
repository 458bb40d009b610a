//! Measures the parts one after the other.

use anyhow::Result;

use super::{memory, pipeline, step};
use crate::bench::results;
use crate::bench::setup::BenchSetup;

/// Measures, prints and writes the tables. Returns true if every request to ours was answered.
pub(in crate::bench) fn run(setup: &BenchSetup) -> Result<bool> {
    let setup = setup.with_models("ensembles", "bench/ensembles.py")?;
    let (mut tables, mut failed) = (Vec::new(), 0.0);
    for part in [pipeline::run, step::run, memory::run] {
        if let Some(result) = part(&setup)? {
            tables.push(result.table);
            failed += result.failed;
        }
    }
    if !tables.is_empty() {
        results::show("ensemble.md", &tables.join("\n"))?;
    }
    Ok(failed == 0.0)
}
