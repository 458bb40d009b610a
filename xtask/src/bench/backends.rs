//! The folders with the backends of the contenders.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{files, process, workspace};

/// Makes the backends folder of Triton: its Python backend with the stub for the interpreter that it will find, and the
/// C identity backend of this repository.
pub(super) fn reference_backends(packages: &Path, folder: &Path) -> Result<PathBuf> {
    let installed = packages.join("pytriton/tritonserver");
    let interpreter = packages.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let version = interpreter.and_then(|name| name.strip_prefix("python"));
    let version = version.context("--reference: site-packages must lie in a folder named python3.N")?;

    let backends = identity_backend(folder)?;
    // Another contender may run from the files that are there.
    let copy = || {
        let mut copy = Command::new("cp");
        copy.args(["-r", "--remove-destination"]);
        copy
    };
    process::run(copy().arg(installed.join("backends/python")).arg(&backends))?;
    let stub = installed.join("python_backend_stubs").join(version).join("triton_python_backend_stub");
    process::run(copy().arg(stub).arg(backends.join("python")))?;
    Ok(backends)
}

/// Makes a backends folder with the C identity backend of this repository.
pub(super) fn identity_backend(folder: &Path) -> Result<PathBuf> {
    let backends = folder.join("backends");
    let identity = backends.join("identity");
    files::make_folder(&identity)?;
    let mut compile = Command::new("gcc");
    compile.args(["-O2", "-shared", "-fPIC", "-o"]).arg(identity.join("libtriton_identity.so"));
    process::run(compile.arg(workspace::root().join("bench/reference_backend.c")))?;
    Ok(backends)
}
