//! Opens the library of ONNX Runtime, and finds libraries of custom operators.
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use inference::backend::ModelSource;
use native_backend::{LibrarySearch, NativeLibrary};
use vocabulary::Error;

use crate::{
    ort::{GlobalThreads, Runtime},
    settings, telemetry,
};

/// What the backend searches for.
pub(crate) const LIBRARY: NativeLibrary = NativeLibrary {
    name: "ONNX Runtime",
    file_names: &["libonnxruntime.so", "libonnxruntime.so.1"],
    backend: settings::BACKEND_NAME,
    package: "onnxruntime",
    package_folder: "onnxruntime/capi",
    option: "--onnxruntime-library",
};

/// Opens the library for a server with those backend settings.
///
/// # Errors
/// UNAVAILABLE, with the searched places and how to get the library. INVALID_ARGUMENT for settings that cannot be read.
pub(crate) fn open(
    search: &LibrarySearch,
    settings: &BTreeMap<String, String>,
    threads: Option<GlobalThreads>,
) -> Result<Arc<Runtime>, Error> {
    let sends_telemetry = telemetry::is_wanted(settings)?;
    let runtime = search.open(&LIBRARY, settings, |file| Runtime::open(file, threads))?;
    if !sends_telemetry {
        telemetry::end(&runtime);
    }
    Ok(runtime)
}

/// The directories where libraries of custom operators may be, in the order of preference: that of the model, those that
/// the operator of the server names, that of the backend, and those of installed Python packages.
pub(crate) fn op_directories(search: &LibrarySearch, source: &ModelSource) -> Vec<PathBuf> {
    let backends = source.settings.get("backend-directory");
    let backend = backends.map(|backends| Path::new(backends).join(settings::BACKEND_NAME));
    let named = settings::named_op_directories(&source.settings);
    let own = std::iter::once(source.model_directory.clone());
    own.chain(named).chain(backend).chain(search.python_packages()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_missing_library_names_the_searched_paths_and_the_remedy() {
        let search =
            LibrarySearch { program_directory: Some("/nowhere/bin".into()), ..LibrarySearch::default() };
        let settings = BTreeMap::from([("backend-directory".to_owned(), "/nowhere/backends".to_owned())]);
        // If the loader itself finds a library, there is no error to test.
        if let Err(error) = open(&search, &settings, None) {
            assert_eq!(error.code, vocabulary::ErrorCode::Unavailable);
            assert_eq!(search.missing(&LIBRARY, &settings).as_deref(), Some(&*error.message));
            for part in ["'/nowhere/backends/onnxruntime'", "'/nowhere/bin/../lib'"] {
                assert!(error.message.contains(part), "{error}");
            }
            // Several models have the text in a row, and a reader sees the beginning of each.
            let begin =
                "unable to find ONNX Runtime (libonnxruntime.so): get it with 'pip install onnxruntime'";
            assert!(error.message.starts_with(begin), "{error}");
        }
    }

    #[test]
    fn a_named_library_is_not_replaced_by_another_one() {
        let search =
            LibrarySearch { named: Some("/nowhere/libonnxruntime.so".into()), ..LibrarySearch::default() };
        let error = open(&search, &BTreeMap::new(), None).map(|_| ()).unwrap_err();
        assert!(
            error.message.starts_with("unable to load ONNX Runtime from '/nowhere/libonnxruntime.so': "),
            "{error}"
        );
        assert!(error.message.contains("--onnxruntime-library"), "{error}");
        let missing = search.missing(&LIBRARY, &BTreeMap::new()).unwrap();
        assert!(
            missing.starts_with("unable to load ONNX Runtime from '/nowhere/libonnxruntime.so': there is no"),
            "{missing}"
        );
    }

    #[test]
    fn the_setting_comes_before_the_option() {
        let search =
            LibrarySearch { named: Some("/option/libonnxruntime.so".into()), ..LibrarySearch::default() };
        let settings = BTreeMap::from([("library".to_owned(), "/setting/libonnxruntime.so".to_owned())]);
        let error = open(&search, &settings, None).map(|_| ()).unwrap_err();
        assert!(error.message.contains("/setting/libonnxruntime.so"), "{error}");
    }
}
