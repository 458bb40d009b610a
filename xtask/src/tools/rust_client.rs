//! A client in Rust with crates that the server does not use. Tests run it.
//!
//! It is a workspace of its own, so that its dependencies are not those of the server.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{process, workspace};

const MANIFEST: &str = "tests/clients/rust_client/Cargo.toml";

/// Builds the client unless it is there, and returns it.
///
/// # Errors
/// crates.io cannot be reached, or the client cannot be compiled.
pub(super) fn build() -> Result<PathBuf> {
    let target = workspace::target().join("rust_client");
    let mut build = workspace::cargo(&["build", "--locked", "--manifest-path", MANIFEST, "--target-dir"]);
    process::run(build.arg(&target)).context("the client in Rust cannot be built")?;
    Ok(target.join("debug/rust-client"))
}
