//! Takes ONNX Runtime's library out of its PyPI wheel.

use std::path::PathBuf;

use anyhow::Result;

use crate::{files, process, python, workspace};

/// The environment variable that tells the server and the tests where the library is.
pub(crate) const VARIABLE: &str = "NEREID_ONNXRUNTIME_LIBRARY";

const VERSION: &str = "1.31.1";

/// The files with its licences.
const LICENCES: [&str; 2] = ["LICENSE", "ThirdPartyNotices.txt"];

/// Takes files out of a wheel: arguments are the folder with the wheel, and pairs of a member and its target.
const EXTRACT: &str = "
import glob, os, shutil, sys, zipfile
folder, *pairs = sys.argv[1:]
with zipfile.ZipFile(glob.glob(os.path.join(folder, '*.whl'))[0]) as wheel:
    for member, target in zip(pairs[::2], pairs[1::2]):
        with wheel.open(member) as source, open(target + '.part', 'wb') as copy:
            shutil.copyfileobj(source, copy)
        os.rename(target + '.part', target)
";

/// Downloads the library unless it exists, and returns its path.
///
/// # Errors
/// There is no Python, or PyPI cannot be reached.
pub(crate) fn fetch() -> Result<PathBuf> {
    let library = folder().join(format!("libonnxruntime.so.{VERSION}"));
    let member = format!("onnxruntime/capi/libonnxruntime.so.{VERSION}");
    extract(&[(member, library.clone())])?;
    Ok(library)
}

/// As [`fetch`], the files with the licences of the library.
///
/// # Errors
/// As [`fetch`].
pub(crate) fn licences() -> Result<Vec<PathBuf>> {
    let files = LICENCES.map(|name| (format!("onnxruntime/{name}"), folder().join(name)));
    extract(&files)?;
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

fn folder() -> PathBuf {
    workspace::target().join("onnxruntime")
}

/// Takes members out of the wheel, unless their targets exist.
fn extract(files: &[(String, PathBuf)]) -> Result<()> {
    if files.iter().all(|(_, target)| target.exists()) {
        return Ok(());
    }
    let wheel = folder().join("wheel");
    files::make_folder(&wheel)?;
    python::download_wheel(&format!("onnxruntime=={VERSION}"), &wheel)?;
    let mut extract = python::command();
    extract.args(["-c", EXTRACT]).arg(&wheel);
    for (member, target) in files {
        extract.arg(member).arg(target);
    }
    process::run(&mut extract)?;
    files::remove_folder(&wheel)
}
