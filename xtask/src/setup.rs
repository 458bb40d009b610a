//! `cargo xtask setup`: what the tests need, before they run.

use anyhow::Result;

use crate::{python, tools};

/// Makes the environment of Python, fetches what `cargo xtask test` needs, or `all`, and prints the variables.
///
/// # Errors
/// As [`tools::fetch`], or the packages of Python cannot be installed.
pub(crate) fn run(all: bool) -> Result<()> {
    python::install("tests/requirements.txt")?;
    let mut groups = vec![tools::OF_TESTS];
    if all {
        groups.extend([tools::PLUGINS, tools::STORES, tools::BROWSER, tools::MONITORING, tools::RECIPES]);
    }
    for group in groups {
        for (variable, path) in tools::fetch(group)? {
            println!("{variable}={}", path.display());
        }
    }
    Ok(())
}
