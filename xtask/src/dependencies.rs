//! The rules for crates of others, and the faults of them that are known.

use std::process::Command;

use anyhow::{Result, bail};

use crate::steps::CannotRun;
use crate::{process, tools};

/// Names a copy of RustSec's database: a git repository with the branch `main`.
const DATABASE: &str = "NEREID_ADVISORY_DB";
/// Where everybody else finds it.
const PUBLIC_DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// The licences, sources and versions of all dependencies. An exception that nothing needs any more is refused, too.
pub(crate) fn rules() -> Result<()> {
    let check = ["check", "--deny", "unmatched-skip", "bans", "licenses", "sources"];
    process::run(&mut tools::DENY.command(&check)?)
}

/// The advisories about all dependencies.
pub(crate) fn advisories() -> Result<()> {
    let copy = std::env::var(DATABASE).ok().filter(|copy| !copy.is_empty());
    let mut fetch = tools::DENY.command(&["fetch", "db"])?;
    take_from(copy.as_deref(), &mut fetch);
    if let Err(error) = process::run(&mut fetch) {
        match copy {
            Some(copy) => bail!("the database of {DATABASE}, {copy}, cannot be read: {error:#}"),
            None => bail!(CannotRun(format!(
                "no dependency is compared with known faults: {PUBLIC_DATABASE} cannot be fetched; {DATABASE} may \
                 name a copy"
            ))),
        }
    }
    let mut check = tools::DENY.command(&["check", "advisories"])?;
    take_from(copy.as_deref(), &mut check);
    process::run(&mut check)
}

/// Makes git take the copy instead of the public database.
fn take_from(copy: Option<&str>, command: &mut Command) {
    if let Some(copy) = copy {
        command
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", format!("url.{copy}.insteadOf"))
            .env("GIT_CONFIG_VALUE_0", PUBLIC_DATABASE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stands_for_the_public_database() {
        let address = |copy| {
            let mut git = Command::new("git");
            take_from(copy, &mut git);
            let url = format!("{PUBLIC_DATABASE}/x");
            process::output(git.args(["ls-remote", "--get-url", &url])).unwrap().trim().to_owned()
        };
        assert_eq!(address(Some("/a copy")), "/a copy/x");
        assert_eq!(address(None), format!("{PUBLIC_DATABASE}/x"));
    }
}
