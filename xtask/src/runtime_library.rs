//! Takes ONNX Runtime's library out of its PyPI wheel.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{process, python, workspace};

/// The environment variable that tells the server and the tests where the library is.
pub(crate) const VARIABLE: &str = "NEREID_ONNXRUNTIME_LIBRARY";

const VERSION: &str = "1.31.1";

/// Takes one file out of a wheel: arguments are the folder with the wheel, the member and the target.
const EXTRACT: &str = "
import glob, os, shutil, sys, zipfile
folder, member, target = sys.argv[1:]
with zipfile.ZipFile(glob.glob(os.path.join(folder, '*.whl'))[0]) as wheel, wheel.open(member) as source:
    with open(target + '.part', 'wb') as copy:
        shutil.copyfileobj(source, copy)
os.rename(target + '.part', target)
";

/// Downloads the library unless it exists, and returns its path.
///
/// # Errors
/// There is no Python, or PyPI cannot be reached.
pub(crate) fn fetch() -> Result<PathBuf> {
    let folder = workspace::target().join("onnxruntime");
    let library = folder.join(format!("libonnxruntime.so.{VERSION}"));
    if library.exists() {
        return Ok(library);
    }
    python::make()?;
    let wheel = folder.join("wheel");
    fs::create_dir_all(&wheel).with_context(|| format!("cannot make {}", wheel.display()))?;
    let mut download = python::command();
    download
        .args(["-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--dest"])
        .arg(&wheel);
    process::run(download.arg(format!("onnxruntime=={VERSION}")))?;

    let mut extract = python::command();
    extract.args(["-c", EXTRACT]).arg(&wheel);
    extract.arg(format!("onnxruntime/capi/libonnxruntime.so.{VERSION}")).arg(&library);
    process::run(&mut extract)?;
    fs::remove_dir_all(&wheel).with_context(|| format!("cannot remove {}", wheel.display()))?;
    Ok(library)
}
