//! Finds the file of a model version.
use std::path::{Component, Path, PathBuf};

use inference::backend::ModelSource;
use vocabulary::Error;

/// The files that a version directory may have, the preferred one first. Those of a SavedModel are folders.
const FILE_NAMES: [&str; 7] = [
    "model.xml",
    "model.onnx",
    "model.saved_model",
    "model.savedmodel",
    "model.pb",
    "model.tflite",
    "model.pdmodel",
];

/// The file that a folder of a SavedModel has.
const SAVED_MODEL: &str = "saved_model.pb";

/// The file that `default_model_filename` names, or else the first of the usual names that is there. A configuration
/// that names `model.xml` names no choice: the server adds this name itself.
///
/// # Errors
/// UNAVAILABLE if there is no file; INVALID_ARGUMENT if it is neither a regular file nor the folder of a SavedModel;
/// UNSUPPORTED for a path outside the version's directory.
pub(crate) fn model_file(source: &ModelSource) -> Result<PathBuf, Error> {
    let configured = source.declared.default_model_filename.as_str();
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(configured).components().all(is_inside) {
        return Err(Error::unsupported(format!(
            "default_model_filename '{configured}' of model '{}' leads out of the version directory",
            source.name
        )));
    }
    let directory = &source.version_directory;
    if !configured.is_empty() && configured != FILE_NAMES[0] {
        return checked(source, directory.join(configured), "default_model_filename names it");
    }
    let found = FILE_NAMES.iter().map(|name| directory.join(name)).find(|file| file.exists());
    let file = found.unwrap_or_else(|| directory.join(FILE_NAMES[0]));
    let rule =
        format!("a version has one of {}, or default_model_filename names another", FILE_NAMES.join(", "));
    checked(source, file, &rule)
}

fn checked(source: &ModelSource, file: PathBuf, rule: &str) -> Result<PathBuf, Error> {
    let path = file.display();
    if !file.exists() {
        let name = &source.name;
        return Err(Error::unavailable(format!("unable to find '{path}' for model '{name}': {rule}")));
    }
    if file.is_dir() && !file.join(SAVED_MODEL).is_file() {
        let text = format!("'{path}' is a folder without {SAVED_MODEL}, so it is no SavedModel");
        return Err(Error::invalid(text));
    }
    // A pipe or a device could block the load for ever.
    if !file.is_dir() && !file.is_file() {
        return Err(Error::invalid(format!("'{path}' is not a regular file")));
    }
    Ok(file)
}
