//! The Python for the examples of Triton's Python backend: an environment with NumPy, JAX, PyTorch and torchvision.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::debian;
use crate::python::PythonEnvironment;
use crate::{files, process, workspace};

const PLACE: &str = "integrations/examples";

/// Makes the environment unless it is there. The folder has the environment in `venv`, and Debian's packages in `torch`.
///
/// # Errors
/// There is no Python, or the packages cannot be had.
pub(super) fn fetch() -> Result<PathBuf> {
    let environment = PythonEnvironment::of(PLACE);
    environment.install("tests/integrations/examples.txt")?;
    let folder = workspace::target().join(PLACE);
    let torch = folder.join("torch");
    files::make_once(&torch, |unfinished| {
        debian::unpack_with_dependencies("python3-torchvision", unfinished)
    })?;
    // The packages of the environment come first.
    let mut place = Command::new(environment.program("python"));
    let packages =
        process::output(place.args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]))?;
    fs::write(
        PathBuf::from(packages.trim()).join("torch.pth"),
        format!("{}\n", torch.join("usr/lib/python3/dist-packages").display()),
    )
    .context("the environment does not find PyTorch")?;
    Ok(folder)
}
