//! Finds the library of a model's custom batching strategy, if the model has one.
//!
//! A parameter of the configuration names the library. Without the parameter, it is the file `batchstrategy.so` in the
//! directory of the version, the model or the backend.
use std::{
    io,
    path::{Component, Path, PathBuf},
};

use config::{ModelConfig, ResolvedConfig, Scheduling};
use inference::{
    backend::{Backend, ModelSource},
    batching::{BatchingStrategy, StrategyOpener},
};
use vocabulary::Error;

const PARAMETER: &str = "TRITON_BATCH_STRATEGY_PATH";
const FILE: &str = "batchstrategy.so";

/// Opens the strategy of a model version, if it has one. Blocks.
///
/// # Errors
/// INVALID_ARG for a library outside the model's directory, or for a model with sequences; NOT_FOUND if the file does
/// not exist; UNSUPPORTED if the engine has no opener; and the errors of the opener.
pub fn open(
    opener: Option<&dyn StrategyOpener>,
    backend: &dyn Backend,
    source: &ModelSource,
    config: &ResolvedConfig,
) -> Result<Option<Box<dyn BatchingStrategy>>, Error> {
    let Some(library) = library(Some(backend), source, &config.typed)? else { return Ok(None) };
    let (path, model) = (library.display(), &source.name);
    log::info!("Loading custom batching strategy library {path} for model {model}");
    match opener {
        Some(opener) => opener.open(&library, source, &config.shown),
        None => Err(Error::unsupported(format!(
            "custom batching strategy library '{path}' of model '{model}' is not supported by this version of nereid"
        ))),
    }
}

// As Triton: backend_model.cc, TritonModel::Create; but in the directory that holds the model's files (S-W16).
pub(crate) fn library(
    backend: Option<&dyn Backend>,
    source: &ModelSource,
    config: &ModelConfig,
) -> Result<Option<PathBuf>, Error> {
    match (config.parameters.get(PARAMETER), &config.scheduling) {
        (Some(_), Scheduling::Sequence(_)) => Err(Error::invalid(format!(
            "{PARAMETER} cannot be specified with sequence batcher, using default batching strategy"
        ))),
        (None, Scheduling::Sequence(_)) => Ok(None),
        // No backend batches the requests of an ensemble.
        (_, Scheduling::Ensemble(_)) => Ok(None),
        (Some(path), Scheduling::Dynamic(_) | Scheduling::Unbatched) => {
            named(path, &source.model_directory).map(Some)
        }
        (None, Scheduling::Dynamic(_) | Scheduling::Unbatched) => Ok(lying_about(backend, source)),
    }
}

/// The library that a configuration names. It is inside the model's directory. A relative path begins at the working
/// directory, as in Triton, if it leads into the model's directory; otherwise it begins at the model's directory.
fn named(path: &str, model_directory: &Path) -> Result<PathBuf, Error> {
    if path.is_empty() {
        return Err(Error::invalid("Parent path and child path must be non-empty"));
    }
    let failed = |what: &str, path: &Path, error: &io::Error| {
        Error::invalid(format!("Failed to canonicalize {what} path '{}': {error}", path.display()))
    };
    let home = model_directory.canonicalize().map_err(|error| failed("parent", model_directory, &error))?;
    let is_inside = |library: &Path| match real_path(library) {
        Ok(real) => Ok(real.starts_with(&home)),
        Err(error) => Err(failed("child", library, &error)),
    };
    // An absolute path replaces the directory that it is joined to.
    let candidates = [PathBuf::from(path), model_directory.join(path)];
    for library in candidates {
        if is_inside(&library)? {
            let missing = || Error::not_found(format!("Batching library path not found: {path}"));
            return if library.exists() { Ok(library) } else { Err(missing()) };
        }
    }
    Err(Error::invalid("Batching library path escapes model repository."))
}

/// The path with its links resolved and without `..`, up to its longest part that exists. The rest of the path only
/// loses its `..`.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let (ancestor, mut real) = there.unwrap_or((Path::new("/"), PathBuf::from("/")));
    for component in path.strip_prefix(ancestor).unwrap_or(&path).components() {
        match component {
            Component::ParentDir => drop(real.pop()),
            Component::Normal(name) => real.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(real)
}

/// The first library in the directories that may hold one. Without a backend: that of the name in the configuration.
fn lying_about(backend: Option<&dyn Backend>, source: &ModelSource) -> Option<PathBuf> {
    let mut shared = backend.map(Backend::directories).unwrap_or_default();
    if shared.is_empty() {
        // The directory where the backend has its library, or would have it.
        let name = backend.map_or(source.declared.backend.as_str(), Backend::name);
        shared.extend(source.settings.get("backend-directory").map(|all| Path::new(all).join(name)));
    }
    let own = [source.version_directory.clone(), source.model_directory.clone()];
    own.into_iter().chain(shared).map(|directory| directory.join(FILE)).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_named_library_is_inside_the_model_directory_whatever_its_path_looks_like() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for directory in ["models/m/1", "models/m_other", "elsewhere"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        for file in ["models/m/1/s.so", "models/m_other/s.so", "elsewhere/s.so"] {
            fs::write(root.join(file), "").unwrap();
        }
        symlink(root.join("elsewhere"), root.join("models/m/out")).unwrap();
        symlink(root.join("models/m/1"), root.join("elsewhere/in")).unwrap();
        let model = root.join("models/m");
        let outcome = |path: &str| {
            let path = root.join(path).display().to_string();
            named(&path, &model)
                .map(|found| assert_eq!(found, Path::new(&path)))
                .map_err(|error| error.with_code().replace(root.to_str().unwrap(), ""))
        };
        for inside in ["models/m/1/s.so", "models/m/1/../1/s.so", "elsewhere/in/s.so", "models/m"] {
            assert_eq!(outcome(inside), Ok(()), "{inside}");
        }
        let escapes = Err("Invalid argument: Batching library path escapes model repository.".to_owned());
        for outside in [
            "elsewhere/s.so",
            "elsewhere/missing.so",
            "models/m/../m_other/s.so",
            "models/m_other/s.so",
            "models/m/out/s.so",
            "models/m/missing/../../../elsewhere/s.so",
            "models",
        ] {
            assert_eq!(outcome(outside), escapes, "{outside}");
        }
        assert_eq!(
            outcome("models/m/missing/s.so"),
            Err("Not found: Batching library path not found: /models/m/missing/s.so".to_owned())
        );
    }

    #[test]
    fn a_relative_path_begins_at_the_model_directory() {
        let model = tempfile::tempdir().unwrap();
        fs::create_dir(model.path().join("1")).unwrap();
        for file in ["s.so", "1/s.so"] {
            fs::write(model.path().join(file), "").unwrap();
            assert_eq!(named(file, model.path()), Ok(model.path().join(file)));
        }
        for (path, text) in [
            ("none.so", "Batching library path not found: none.so"),
            ("../s.so", "Batching library path escapes model repository."),
            ("1/../../s.so", "Batching library path escapes model repository."),
            ("", "Parent path and child path must be non-empty"),
        ] {
            assert_eq!(named(path, model.path()).unwrap_err().message, text);
        }
    }

    #[test]
    fn a_relative_path_from_the_working_directory_into_the_model_directory_is_kept() {
        let model = tempfile::tempdir_in(".").unwrap();
        fs::write(model.path().join("s.so"), "").unwrap();
        let path = Path::new(model.path().file_name().unwrap()).join("s.so");
        assert_eq!(named(path.to_str().unwrap(), model.path()), Ok(path));
    }
}
