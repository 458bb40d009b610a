//! `cargo xtask pictures`: draws the pictures of the documentation anew, in `docs/pictures`.

use anyhow::Result;

use crate::build::Build;
use crate::tools::{self, runtime_library};
use crate::{demo, process, python};

/// Terminals first, then pages, with the models of the demo and a browser without a window.
const SCRIPTS: [&str; 2] = ["tests/clients/terminal_pictures.py", "tests/clients/documentation_pictures.py"];

/// Draws them. Nothing else should run meanwhile: they show measurements.
///
/// # Errors
/// The models or the browser cannot be had, or a picture cannot be drawn.
pub(crate) fn draw() -> Result<()> {
    let (server, library) = demo::prepare(Build::Demo)?;
    python::install("tests/requirements.txt")?;
    let browser = tools::fetch(tools::BROWSER)?;
    for script in SCRIPTS {
        let mut draw = python::command();
        draw.arg(script).env("NEREID_BINARY", &server).env(runtime_library::VARIABLE, &library);
        process::run(draw.envs(browser.iter().map(|(variable, path)| (variable, path))))?;
    }
    Ok(())
}
