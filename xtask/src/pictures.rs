//! `cargo xtask pictures`: draws the pictures of the documentation anew, in `docs/pictures`.

use anyhow::Result;

use crate::build::Build;
use crate::tools::{self, runtime_library};
use crate::{demo, process, python};

/// Draws them with the models of the demo and a browser without a window. Nothing else should run meanwhile: they show
/// measurements.
///
/// # Errors
/// The models or the browser cannot be had, or a picture cannot be drawn.
pub(crate) fn draw() -> Result<()> {
    let (server, library) = demo::prepare(Build::Demo)?;
    python::install("tests/requirements.txt")?;
    let mut draw = python::command();
    draw.arg("tests/clients/documentation_pictures.py")
        .env("NEREID_BINARY", server)
        .env(runtime_library::VARIABLE, library)
        .envs(tools::fetch(tools::BROWSER)?);
    process::run(&mut draw)
}
