//! The pages that the server writes itself, from its tables of options and of configuration fields.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::build::Build;
use crate::{process, workspace};

/// What `nereid man` is asked for, and the page that has the answer. Tests of the server compare them.
const PAGES: [(&str, &str); 2] =
    [("options", "docs/options.md"), ("configuration", "docs/configuration-reference.md")];

/// Writes the pages anew.
///
/// # Errors
/// The server cannot be built, or a file cannot be written.
pub(super) fn write() -> Result<()> {
    let server = Build::Dev.server()?;
    for (subject, path) in PAGES {
        let text = process::output(Command::new(&server).args(["man", subject]))?;
        fs::write(workspace::root().join(path), text).with_context(|| format!("cannot write {path}"))?;
        println!("{path}");
    }
    Ok(())
}
