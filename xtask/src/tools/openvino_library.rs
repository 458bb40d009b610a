//! Takes OpenVINO's libraries out of their PyPI wheel.

use std::path::PathBuf;

use anyhow::Result;

use crate::{files, process, python, workspace};

/// The environment variable that tells the server and the tests where the library is.
pub(crate) const VARIABLE: &str = "NEREID_OPENVINO_LIBRARY";

const VERSION: &str = "2026.4.1";

/// Takes the folder of libraries out of a wheel: arguments are the folder with the wheel, and the target. The libraries
/// of other devices than the processors stay in the wheel.
const EXTRACT: &str = "
import glob, os, shutil, sys, zipfile
folder, target = sys.argv[1:]
part = target + '.part'
shutil.rmtree(part, ignore_errors=True)
os.makedirs(part)
with zipfile.ZipFile(glob.glob(os.path.join(folder, '*.whl'))[0]) as wheel:
    for member in wheel.namelist():
        name = member.removeprefix('openvino/libs/')
        if name == member or '/' in name or 'gpu_plugin' in name or 'npu_plugin' in name:
            continue
        with wheel.open(member) as source, open(os.path.join(part, name), 'wb') as copy:
            shutil.copyfileobj(source, copy)
os.rename(part, target)
";

/// Downloads the libraries unless they exist, and returns their folder.
///
/// # Errors
/// There is no Python, or PyPI cannot be reached.
pub(crate) fn fetch() -> Result<PathBuf> {
    let folder = workspace::target().join("openvino");
    let libraries = folder.join(VERSION);
    if libraries.exists() {
        return Ok(libraries);
    }
    let wheel = folder.join("wheel");
    files::make_folder(&wheel)?;
    python::download_wheel(&format!("openvino=={VERSION}"), &wheel)?;
    process::run(python::command().args(["-c", EXTRACT]).arg(&wheel).arg(&libraries))?;
    files::remove_folder(&wheel)?;
    Ok(libraries)
}
