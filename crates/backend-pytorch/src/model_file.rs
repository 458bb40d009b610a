//! Finds the package of a model version, as the backend in Python finds its file.
use std::{
    fs::File,
    io::Read,
    path::{Component, Path, PathBuf},
};

use inference::backend::ModelSource;
use vocabulary::Error;

use crate::{
    archive::{ArchiveRefusal, PackageArchive},
    package::{ArchiveKind, CompiledPackage, refused},
};

/// The files that are searched after the one that the configuration names. `nereid_pytorch_files.py` has the same ones.
const USUAL_FILES: [&str; 3] = ["model.py", "model.pt", "model.pt2"];

/// The first byte of a pickle, which was the form of weights before PyTorch 1.6.
const PICKLE: u8 = 0x80;

/// The package of a version.
#[derive(Debug)]
pub(crate) struct FoundPackage {
    /// Its file.
    pub(crate) path: PathBuf,
    /// What the file has.
    pub(crate) package: CompiledPackage,
}

/// The package that the version has; `None` if its network is something else, or missing: then the backend in Python
/// tells what is wrong. Blocks.
///
/// # Errors
/// INVALID_ARGUMENT if the file is a package and cannot be used.
pub(crate) fn find(source: &ModelSource) -> Result<Option<FoundPackage>, Error> {
    let named = source.declared.default_model_filename.as_str();
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(named).components().all(is_inside) {
        return Ok(None);
    }
    let names = [named].into_iter().chain(USUAL_FILES).filter(|name| !name.is_empty());
    for path in names.map(|name| source.version_directory.join(name)).filter(|path| path.is_file()) {
        if path.extension().is_some_and(|extension| extension == "py") {
            return Ok(None);
        }
        match kind(&path) {
            Ok(ArchiveKind::Compiled(archive)) => {
                let package = CompiledPackage::of(archive).map_err(|refusal| refused(&path, &refusal))?;
                return Ok(Some(FoundPackage { path, package }));
            }
            Ok(ArchiveKind::Weights) => {}
            Ok(ArchiveKind::Other) => return Ok(None),
            Err(_) if is_pickle(&path) => {}
            Err(refusal) => {
                log::debug!("'{}' {refusal}", path.display());
                return Ok(None);
            }
        }
    }
    Ok(None)
}

fn kind(path: &Path) -> Result<ArchiveKind, ArchiveRefusal> {
    let file = File::open(path).map_err(|error| ArchiveRefusal::NoArchive(error.to_string()))?;
    PackageArchive::open(file).map(ArchiveKind::of)
}

fn is_pickle(path: &Path) -> bool {
    let mut first = [0];
    File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok() && first[0] == PICKLE
}
