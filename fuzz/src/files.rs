//! The inputs that are kept: seeds in `corpus`, and in `regressions` inputs that have once broken a promise.
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// An input in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedInput {
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The seeds of a target and its regressions, by their paths.
///
/// # Errors
/// A file cannot be read.
pub fn corpus(target: &str) -> io::Result<Vec<SavedInput>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut inputs = inputs_in(&here.join("corpus").join(target))?;
    let regressions = here.join("regressions").join(target);
    if regressions.is_dir() {
        inputs.extend(inputs_in(&regressions)?);
    }
    Ok(inputs)
}

fn inputs_in(folder: &Path) -> io::Result<Vec<SavedInput>> {
    let mut paths =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    paths.into_iter().map(|path| Ok(SavedInput { bytes: fs::read(&path)?, path })).collect()
}
