//! Finds the runtime's library.
//!
//! If the operator names a library, the backend uses it, or the load fails. Otherwise the backend searches the usual
//! places: the backend directory, the program's directory, the loader's path, the Python packages.
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use inference::backend::ModelSource;
use vocabulary::Error;

use crate::{
    ort::{GlobalThreads, Runtime},
    settings, telemetry,
};

const FILE_NAMES: [&str; 2] = ["libonnxruntime.so", "libonnxruntime.so.1"];
const HOW_TO_GET_IT: &str = "get it with 'pip install onnxruntime', or name it with --onnxruntime-library=PATH or \
                             --backend-config=onnxruntime,library=PATH";

/// The places to search for `libonnxruntime.so`. The default searches only the loader's path.
#[derive(Debug, Clone, Default)]
pub struct LibrarySearch {
    /// The library file, or its directory, if the operator has named one. The search then tries no other place. The
    /// setting `library` of `--backend-config` takes precedence over this field.
    pub named: Option<PathBuf>,
    /// Directory of the running program. The search also tries `../lib` and `../lib/nereid`.
    pub program_directory: Option<PathBuf>,
    /// Prefixes of Python installations, such as `$VIRTUAL_ENV` and `/usr`, in the order of preference.
    pub python_prefixes: Vec<PathBuf>,
}

impl LibrarySearch {
    /// Opens the library for a server with those backend settings.
    ///
    /// # Errors
    /// UNAVAILABLE, with the searched places and how to get the library. INVALID_ARGUMENT for settings that cannot be
    /// read.
    pub(crate) fn open(
        &self,
        settings: &BTreeMap<String, String>,
        threads: Option<GlobalThreads>,
    ) -> Result<Arc<Runtime>, Error> {
        let sends_telemetry = telemetry::is_wanted(settings)?;
        let runtime = self.find(settings, threads)?;
        if !sends_telemetry {
            telemetry::end(&runtime);
        }
        Ok(runtime)
    }

    fn find(
        &self,
        settings: &BTreeMap<String, String>,
        threads: Option<GlobalThreads>,
    ) -> Result<Arc<Runtime>, Error> {
        if let Some(path) = self.named(settings) {
            let file = if path.is_dir() {
                file_in(path).unwrap_or_else(|| path.join(FILE_NAMES[0]))
            } else {
                path.into()
            };
            return Runtime::open(&file, threads).map_err(|error| {
                let file = file.display();
                Error::unavailable(format!(
                    "unable to load ONNX Runtime from '{file}': {error}; {HOW_TO_GET_IT}"
                ))
            });
        }
        let mut looked_in = String::new();
        for place in self.places(settings) {
            let attempt = match &place {
                LibraryLocation::Directory(directory) => file_in(directory),
                LibraryLocation::Loader(name) => Some(PathBuf::from(name)),
            };
            let failure = match attempt.map(|file| Runtime::open(&file, threads)) {
                Some(Ok(runtime)) => return Ok(runtime),
                // The loader usually does not know the name. Its error adds no information.
                Some(Err(error)) if matches!(place, LibraryLocation::Directory(_)) => format!(" ({error})"),
                Some(Err(_)) | None => String::new(),
            };
            let separator = if looked_in.is_empty() { "" } else { ", " };
            let _ = write!(looked_in, "{separator}'{}'{failure}", place.path().display());
        }
        Err(Error::unavailable(not_found(&looked_in)))
    }

    fn named<'a>(&'a self, settings: &'a BTreeMap<String, String>) -> Option<&'a Path> {
        settings.get("library").map(Path::new).or(self.named.as_deref())
    }

    /// Why [`LibrarySearch::open`] would fail, as far as the search can tell without opening a file.
    pub(crate) fn missing(&self, settings: &BTreeMap<String, String>) -> Option<String> {
        if self.expected(settings).is_some() {
            return None;
        }
        if let Some(path) = self.named(settings) {
            let is_bare = path.components().count() == 1;
            let is_known = is_bare && path.to_str().is_some_and(loader_knows);
            let text = format!(
                "unable to load ONNX Runtime from '{}': there is no such file; {HOW_TO_GET_IT}",
                path.display()
            );
            return (!is_known).then_some(text);
        }
        if FILE_NAMES.into_iter().any(loader_knows) {
            return None;
        }
        let places = self.places(settings);
        let places: Vec<_> = places.iter().map(|place| format!("'{}'", place.path().display())).collect();
        Some(not_found(&places.join(", ")))
    }

    /// The file that would be opened, as far as the search can determine it without opening a file.
    pub(crate) fn expected(&self, settings: &BTreeMap<String, String>) -> Option<PathBuf> {
        if let Some(path) = self.named(settings) {
            return if path.is_dir() { file_in(path) } else { path.is_file().then(|| path.to_owned()) };
        }
        self.places(settings).into_iter().find_map(|place| match place {
            LibraryLocation::Directory(directory) => file_in(&directory),
            LibraryLocation::Loader(_) => None,
        })
    }

    fn places(&self, settings: &BTreeMap<String, String>) -> Vec<LibraryLocation> {
        let mut places = Vec::new();
        if let Some(backends) = settings.get("backend-directory") {
            places.push(LibraryLocation::Directory(Path::new(backends).join("onnxruntime")));
        }
        if let Some(directory) = &self.program_directory {
            places.push(LibraryLocation::Directory(directory.clone()));
            places.push(LibraryLocation::Directory(directory.join("../lib")));
            places.push(LibraryLocation::Directory(directory.join("../lib/nereid")));
        }
        places.extend(FILE_NAMES.map(LibraryLocation::Loader));
        let packages = self.python_packages();
        places.extend(packages.map(|packages| LibraryLocation::Directory(packages.join("onnxruntime/capi"))));
        places
    }

    /// Directories of installed Python packages, in the order of preference.
    fn python_packages(&self) -> impl Iterator<Item = PathBuf> {
        // A server that is installed in a virtual environment belongs to it, also if the environment is not active.
        let own = self.program_directory.as_deref().and_then(Path::parent);
        let own = own.filter(|prefix| prefix.join("pyvenv.cfg").is_file());
        let prefixes = own.into_iter().chain(self.python_prefixes.iter().map(PathBuf::as_path));
        prefixes.flat_map(python_packages)
    }

    /// The directories where libraries of custom operators may be, in the order of preference: that of the model, those
    /// that the operator of the server names, that of the backend, and those of installed Python packages.
    pub(crate) fn op_directories(&self, source: &ModelSource) -> Vec<PathBuf> {
        let backends = source.settings.get("backend-directory");
        let backend = backends.map(|backends| Path::new(backends).join("onnxruntime"));
        let named = settings::named_op_directories(&source.settings);
        let own = std::iter::once(source.model_directory.clone());
        own.chain(named).chain(backend).chain(self.python_packages()).collect()
    }
}

/// The remedy stands before the places, which fill lines.
fn not_found(looked_in: &str) -> String {
    format!("unable to find ONNX Runtime ({}): {HOW_TO_GET_IT}; searched: {looked_in}", FILE_NAMES[0])
}

/// As the error of another model, without what that one tells.
pub(crate) fn missing_again() -> Error {
    let text = "ONNX Runtime cannot be used, as an earlier error tells";
    Error::unavailable(format!("{text}: {HOW_TO_GET_IT}"))
}

/// Whether the loader would find a library by its bare name: in `LD_LIBRARY_PATH`, its cache, or the system's directories.
fn loader_knows(name: &str) -> bool {
    let of_variable = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let system = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from);
    let mut directories = std::env::split_paths(&of_variable).chain(system);
    // The cache has paths that end with a NUL.
    let entry = [b"/", name.as_bytes(), b"\0"].concat();
    let is_cached = |cache: Vec<u8>| cache.windows(entry.len()).any(|bytes| bytes == entry);
    directories.any(|directory| directory.join(name).is_file())
        || fs::read("/etc/ld.so.cache").is_ok_and(is_cached)
}

/// Prefixes under which Python packages may be installed, the most specific first: the active environment, and those of
/// each `python3` on a search path (`PATH`).
pub fn python_prefixes(virtual_env: Option<&Path>, search_path: Option<&OsStr>) -> Vec<PathBuf> {
    let on_path = search_path.into_iter().flat_map(std::env::split_paths);
    // `<prefix>/bin/python3` belongs to `<prefix>`, whatever the target of a link is.
    let with_python = on_path.map(|directory| directory.join("python3")).filter_map(|python| {
        let real = python.canonicalize().ok()?;
        Some([&python, &real].map(|file| file.ancestors().nth(2).map(PathBuf::from)))
    });
    let mut prefixes: Vec<PathBuf> = Vec::new();
    for prefix in virtual_env.map(PathBuf::from).into_iter().chain(with_python.flatten().flatten()) {
        if !prefixes.contains(&prefix) {
            prefixes.push(prefix);
        }
    }
    prefixes
}

enum LibraryLocation {
    Directory(PathBuf),
    /// A bare name, for the loader to find.
    Loader(&'static str),
}

impl LibraryLocation {
    fn path(&self) -> &Path {
        match self {
            Self::Directory(directory) => directory,
            Self::Loader(name) => Path::new(name),
        }
    }
}

/// The library in a directory: the file with the plain name, or else the newest release.
fn file_in(directory: &Path) -> Option<PathBuf> {
    let plain = FILE_NAMES.map(|name| directory.join(name)).into_iter().find(|file| file.is_file());
    plain.or_else(|| {
        let entries = fs::read_dir(directory).ok()?;
        let releases =
            entries.flatten().filter_map(|entry| Some((release(entry.file_name().to_str()?)?, entry.path())));
        releases.max().map(|(_, file)| file)
    })
}

/// The numbers in `libonnxruntime.so.1.31.1`.
fn release(file_name: &str) -> Option<Vec<u32>> {
    let numbers = file_name.strip_prefix(FILE_NAMES[0])?.strip_prefix('.')?;
    numbers.split('.').map(|number| number.parse().ok()).collect()
}

/// Directories of installed packages below a prefix, those of the newest Python first.
fn python_packages(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for libraries in ["lib", "lib64", "local/lib"] {
        let Ok(entries) = fs::read_dir(prefix.join(libraries)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(version) = name.to_str().and_then(|name| name.strip_prefix("python3")) else { continue };
            let minor = version.strip_prefix('.').and_then(|minor| minor.parse::<u32>().ok()).unwrap_or(0);
            found.extend(
                ["site-packages", "dist-packages"].map(|packages| (minor, entry.path().join(packages))),
            );
        }
    }
    found.retain(|(_, packages)| packages.is_dir());
    found.sort_by_key(|(minor, _)| std::cmp::Reverse(*minor));
    found.into_iter().map(|(_, packages)| packages).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn the_newest_release_of_a_directory_is_taken_unless_there_is_a_plain_name() {
        let directory = tempfile::tempdir().unwrap();
        for name in
            ["libonnxruntime.so.1.9.0", "libonnxruntime.so.1.31.1", "libonnxruntime_providers_shared.so"]
        {
            touch(&directory.path().join(name));
        }
        assert!(file_in(directory.path()).unwrap().ends_with("libonnxruntime.so.1.31.1"));
        touch(&directory.path().join("libonnxruntime.so"));
        assert!(file_in(directory.path()).unwrap().ends_with("libonnxruntime.so"));
    }

    #[test]
    fn the_package_of_the_newest_python_is_found() {
        let prefix = tempfile::tempdir().unwrap();
        for python in ["python3.9", "python3.11"] {
            let package = format!("lib/{python}/site-packages/onnxruntime/capi/libonnxruntime.so.1.31.1");
            touch(&prefix.path().join(package));
        }
        let search =
            LibrarySearch { python_prefixes: vec![prefix.path().into()], ..LibrarySearch::default() };
        let found = search.expected(&BTreeMap::new()).unwrap();
        assert!(found.to_str().unwrap().contains("python3.11"));
    }

    #[test]
    fn the_error_for_a_missing_library_names_the_searched_paths_and_the_remedy() {
        let search =
            LibrarySearch { program_directory: Some("/nowhere/bin".into()), ..LibrarySearch::default() };
        let settings = BTreeMap::from([("backend-directory".to_owned(), "/nowhere/backends".to_owned())]);
        // If the loader itself finds a library, there is no error to test.
        if let Err(error) = search.open(&settings, None) {
            assert_eq!(error.code, vocabulary::ErrorCode::Unavailable);
            assert_eq!(search.missing(&settings).as_deref(), Some(&*error.message));
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
        let error = search.open(&BTreeMap::new(), None).map(|_| ()).unwrap_err();
        assert!(
            error.message.starts_with("unable to load ONNX Runtime from '/nowhere/libonnxruntime.so': "),
            "{error}"
        );
        assert!(error.message.contains("--onnxruntime-library"), "{error}");
        let missing = search.missing(&BTreeMap::new()).unwrap();
        assert!(
            missing.starts_with("unable to load ONNX Runtime from '/nowhere/libonnxruntime.so': there is no"),
            "{missing}"
        );
    }

    #[test]
    fn a_library_that_the_loader_finds_is_not_missing() {
        assert!(loader_knows("libc.so.6") && !loader_knows("libno-such-library.so"));
        let named = |name: &str| LibrarySearch { named: Some(name.into()), ..LibrarySearch::default() };
        assert_eq!(named("libc.so.6").missing(&BTreeMap::new()), None);
        assert!(named("./libc.so.6").missing(&BTreeMap::new()).is_some());
    }

    #[test]
    fn the_setting_comes_before_the_option() {
        let search =
            LibrarySearch { named: Some("/option/libonnxruntime.so".into()), ..LibrarySearch::default() };
        let settings = BTreeMap::from([("library".to_owned(), "/setting/libonnxruntime.so".to_owned())]);
        let error = search.open(&settings, None).map(|_| ()).unwrap_err();
        assert!(error.message.contains("/setting/libonnxruntime.so"), "{error}");
    }
}
