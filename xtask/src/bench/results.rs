//! The tables with the results: they are shown, and written to `target/bench`.

use std::path::PathBuf;

use anyhow::Result;

use crate::console::heading;
use crate::{files, workspace};

/// Where results and models are.
pub(super) fn folder() -> Result<PathBuf> {
    let folder = workspace::target().join("bench");
    files::make_folder(&folder)?;
    Ok(folder)
}

/// Shows a text and writes it to a file.
pub(super) fn show(file: &str, text: &str) -> Result<()> {
    heading("results");
    print!("{text}");
    write(file, text)
}

/// Writes a text to a file.
pub(super) fn write(file: &str, text: &str) -> Result<()> {
    let path = folder()?.join(file);
    files::write(&path, text)?;
    println!("written to {}", path.display());
    Ok(())
}
