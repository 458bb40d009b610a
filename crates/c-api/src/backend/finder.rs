//! Finds the library of a backend.
//!
//! As Triton: backend_model.cc, GetBackendLibraryProperties. The order is: the version's directory, the model's
//! directory, `<backend directory>/<backend>`. The Python backend runs a backend that is written in Python
//! (`model.py`).
use std::{
    fmt::Write,
    fs, mem,
    path::{Path, PathBuf},
    sync::Arc,
};

use inference::{
    backend::{Backend, BackendFinder, BackendSettings, ModelSource},
    lock::{LockRank, Mutex},
};
use vocabulary::{Error, FileIdentity};

use super::{
    backend_handle::{LibraryOpening, ServerHandle},
    shared_backend::SharedBackend,
};
use crate::plugin::Library;

const PYTHON: &str = "python";
const PYTHON_LIBRARY: &str = "libtriton_python.so";
const PYTHON_MODEL: &str = "model.py";

/// Backends in shared libraries.
///
/// Each is initialized once, and stays loaded until the server ends or its file changes. A load that comes after a
/// change opens the file anew. Models that were loaded before keep the old backend, which ends with the last of them.
#[derive(Debug)]
pub struct BackendLibraries {
    server: ServerHandle,
    /// The backends whose file was the same when it was looked at the last time. One library may serve several
    /// backends, which differ in name or directory.
    opened: Mutex<Vec<SharedBackend>>,
}

/// A library that was found, and the backend it was found for.
struct Found {
    library: PathBuf,
    directory: PathBuf,
    settings_name: String,
}

impl BackendLibraries {
    /// `server` is the server handle that backends get.
    pub fn new(server: ServerHandle) -> Self {
        Self { server, opened: Mutex::ranked(LockRank::PluginLibraries, Vec::new()) }
    }

    fn open(
        &self,
        name: &str,
        found: &Found,
        settings: &BackendSettings<'_>,
    ) -> Result<Arc<dyn Backend>, Error> {
        let Found { library: path, directory, settings_name } = found;
        // Dropped after the lock is released: a backend without models ends here.
        let replaced: Vec<_>;
        // The lock is held while the library initializes itself: backends were never written to initialize themselves
        // in parallel.
        let mut opened = self.opened.lock();
        (*opened, replaced) =
            mem::take(&mut *opened).into_iter().partition(|shared| !shared.backend().is_replaced());
        if let Ok(identity) = fs::metadata(path).map(FileIdentity::from)
            && let Some(backend) =
                opened.iter().find(|shared| shared.backend().is_opened_from(&identity, name, directory))
        {
            return Ok(Arc::new(backend.clone()));
        }
        let library = Library::open_shared(path)?;
        let opening = LibraryOpening {
            name,
            settings_name,
            directory,
            library: path,
            settings: settings(settings_name),
            server: self.server,
        };
        let backend = SharedBackend::start(library, opening)?;
        if replaced.iter().any(|shared| shared.backend().is_named(name)) {
            log::info!("the library of backend '{name}' has changed, {} is opened again", path.display());
        }
        opened.push(backend.clone());
        Ok(Arc::new(backend))
    }
}

impl BackendFinder for BackendLibraries {
    fn brought_by(
        &self,
        source: &ModelSource,
        settings: &BackendSettings<'_>,
    ) -> Result<Option<Arc<dyn Backend>>, Error> {
        let found = supplied(source)?;
        found.map(|found| self.open(&source.declared.backend, &found, settings)).transpose()
    }

    fn find(&self, source: &ModelSource, settings: &BackendSettings<'_>) -> Result<Arc<dyn Backend>, Error> {
        let name = &source.declared.backend;
        let backends = settings(name).remove("backend-directory").unwrap_or_default();
        let found = find(source, Path::new(&backends))?;
        self.open(name, &found, settings)
    }

    fn has_library(
        &self,
        source: &ModelSource,
        settings: &BackendSettings<'_>,
        own: bool,
    ) -> Result<bool, Error> {
        if own {
            return supplied(source).map(|found| found.is_some());
        }
        let backends = settings(&source.declared.backend).remove("backend-directory").unwrap_or_default();
        find(source, Path::new(&backends)).map(|_| true)
    }

    fn found(&self) -> Vec<Arc<dyn Backend>> {
        let opened = self.opened.lock();
        let mut found: Vec<Arc<dyn Backend>> = Vec::new();
        found.extend(opened.iter().map(|opened| Arc::new(opened.clone()) as Arc<dyn Backend>));
        found.sort_by(|one, other| one.name().cmp(other.name()));
        found
    }
}

/// The file name of the library that a configuration names.
fn library_name(source: &ModelSource) -> Result<String, Error> {
    let (backend, runtime) = (&source.declared.backend, &source.declared.runtime);
    if runtime.is_empty() {
        return Ok(format!("libtriton_{backend}.so"));
    }
    if Path::new(runtime).components().count() != 1 || runtime == ".." {
        return Err(Error::invalid(format!(
            "backend library name '{runtime}' escapes backend directory '{backend}', for model '{}', check model config \
             runtime field",
            source.name
        )));
    }
    Ok(runtime.clone())
}

/// The library in the model's own directories.
fn supplied(source: &ModelSource) -> Result<Option<Found>, Error> {
    if source.declared.runtime == PYTHON_MODEL {
        // A file of this name in the model's directories is a model, and no library.
        return Ok(None);
    }
    let library = library_name(source)?;
    let own = [&source.version_directory, &source.model_directory];
    let directory = own.into_iter().find(|directory| directory.join(&library).is_file());
    Ok(directory.map(|directory| Found {
        library: directory.join(&library),
        directory: directory.clone(),
        settings_name: source.declared.backend.clone(),
    }))
}

fn find(source: &ModelSource, backends: &Path) -> Result<Found, Error> {
    let name = &source.declared.backend;
    let runtime = &source.declared.runtime;
    let directory = backends.join(name);
    let places = [source.version_directory.clone(), source.model_directory.clone(), directory.clone()];
    let at_home = |library: PathBuf, directory: &Path, settings_name: &str| Found {
        library,
        directory: directory.to_owned(),
        settings_name: settings_name.to_owned(),
    };
    if runtime != PYTHON_MODEL {
        let library = library_name(source)?;
        if let Some(place) = places.iter().find(|place| place.join(&library).is_file()) {
            return Ok(at_home(place.join(&library), place, name));
        }
        if !runtime.is_empty() {
            return Err(not_found(runtime, source, &places));
        }
    }
    let has_python_model = directory.join(PYTHON_MODEL).is_file();
    if !has_python_model && runtime == PYTHON_MODEL {
        return Err(Error::invalid(format!(
            "unable to find Python backend based backend library '{PYTHON_MODEL}' for model '{}', searched: '{}'",
            source.name,
            directory.display()
        )));
    }
    if !has_python_model {
        return Err(Error::invalid(format!(
            "unable to find backend library for backend '{name}', try specifying runtime on the model configuration."
        )));
    }
    let runners: Vec<PathBuf> = places.into_iter().chain([backends.join(PYTHON)]).collect();
    let runner = runners.iter().map(|place| place.join(PYTHON_LIBRARY)).find(|library| library.is_file());
    let runner = runner.ok_or_else(|| not_found(PYTHON_LIBRARY, source, &runners))?;
    Ok(at_home(runner, &directory, PYTHON))
}

fn not_found(library: &str, source: &ModelSource, places: &[PathBuf]) -> Error {
    let mut searched = String::new();
    for place in places {
        let _ = write!(searched, "'{}' ", place.display());
    }
    Error::invalid(format!(
        "unable to find backend library '{library}' for model '{}', searched: {searched}",
        source.name
    ))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;

    fn source(root: &Path, backend: &str, runtime: &str) -> ModelSource {
        let model = root.join("models/m");
        ModelSource {
            name: "m".into(),
            version: 1,
            version_directory: model.join("1"),
            model_directory: model,
            declared: Arc::new(proto::ModelConfig {
                backend: backend.to_owned(),
                runtime: runtime.to_owned(),
                ..Default::default()
            }),
            settings: BTreeMap::new(),
            inferer: None,
            host_policies: Arc::default(),
        }
    }

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn the_version_comes_before_the_model_and_that_before_the_backends() {
        let root = tempfile::tempdir().unwrap();
        let backends = root.path().join("backends");
        let source = source(root.path(), "x", "");
        for place in [backends.join("x"), source.model_directory.clone(), source.version_directory.clone()] {
            touch(&place.join("libtriton_x.so"));
            let found = find(&source, &backends).unwrap();
            assert_eq!((found.library, found.directory), (place.join("libtriton_x.so"), place));
        }
    }

    #[test]
    fn a_model_in_python_is_no_library() {
        let root = tempfile::tempdir().unwrap();
        let source = source(root.path(), "x", PYTHON_MODEL);
        touch(&source.version_directory.join(PYTHON_MODEL));
        assert!(supplied(&source).unwrap().is_none());
    }

    #[test]
    fn a_backend_in_python_is_run_by_the_python_backend_with_its_settings() {
        let root = tempfile::tempdir().unwrap();
        let backends = root.path().join("backends");
        touch(&backends.join("vllm/model.py"));
        let source = source(root.path(), "vllm", "");
        let places = format!(
            "unable to find backend library 'libtriton_python.so' for model 'm', searched: '{0}/models/m/1' \
             '{0}/models/m' '{0}/backends/vllm' '{0}/backends/python' ",
            root.path().display()
        );
        assert_eq!(find(&source, &backends).err().unwrap().message, places);
        touch(&backends.join("python/libtriton_python.so"));
        let found = find(&source, &backends).unwrap();
        assert_eq!((found.settings_name.as_str(), found.directory), ("python", backends.join("vllm")));
    }

    #[test]
    fn what_cannot_be_found_is_named_with_where_it_was_looked_for() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path().display();
        let refusal = |backend: &str, runtime: &str| {
            find(&source(root.path(), backend, runtime), &root.path().join("b")).err().unwrap().message
        };
        assert_eq!(
            refusal("x", ""),
            "unable to find backend library for backend 'x', try specifying runtime on the model configuration."
        );
        assert_eq!(
            refusal("x", "libx.so"),
            format!(
                "unable to find backend library 'libx.so' for model 'm', searched: '{at}/models/m/1' '{at}/models/m' \
                 '{at}/b/x' "
            )
        );
        assert_eq!(
            refusal("x", "model.py"),
            format!(
                "unable to find Python backend based backend library 'model.py' for model 'm', searched: '{at}/b/x'"
            )
        );
        assert!(refusal("x", "../libx.so").contains("escapes backend directory"));
    }
}
