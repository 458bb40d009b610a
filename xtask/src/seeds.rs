//! Runs that are repeated with several seeds.

use anyhow::{Result, ensure};

/// Runs something with each seed from 1 to `count`, whatever the others show. `what` names a run.
///
/// # Errors
/// At least one run has failed. The error has those of all runs, each with its seed.
pub(crate) fn each(what: &str, count: u64, mut run: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let mut failed = Vec::new();
    for seed in 1..=count {
        println!("{what} {seed} of {count}");
        if let Err(error) = run(seed) {
            failed.push(format!("seed {seed}: {error:#}"));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_run_and_every_failure_is_reported() {
        let mut seen = Vec::new();
        let error = each("run", 4, |seed| {
            seen.push(seed);
            ensure!(seed % 2 == 1, "even");
            Ok(())
        });
        assert_eq!(error.unwrap_err().to_string(), "seed 2: even; seed 4: even");
        assert_eq!(seen, [1, 2, 3, 4]);
        assert!(each("run", 2, |_| Ok(())).is_ok());
    }
}
