//! Finds the library of a backend.
//!
//! If the operator names a library, the backend uses it, or the load fails. Otherwise the backend searches the usual
//! places: the backend directory, the program's directory, the loader's path, the Python packages.
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt::{Display, Write},
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use vocabulary::{Error, ErrorCode};

/// A library that a backend opens at run time, and how users get it.
#[derive(Debug, Clone, Copy)]
pub struct NativeLibrary {
    /// Its name in messages, such as `ONNX Runtime`.
    pub name: &'static str,
    /// The names of its file, the preferred one first. A number of a release may follow that one: `libexample.so.1.2`.
    pub file_names: &'static [&'static str],
    /// The backend that uses it: the name of its settings, and of its folder in the backend directory.
    pub backend: &'static str,
    /// The Python package that has it.
    pub package: &'static str,
    /// The folder of the file among the installed Python packages.
    pub package_folder: &'static str,
    /// The option of the server that names the file or its directory.
    pub option: &'static str,
}

/// The places to search for a library. The default searches only the loader's path.
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
    /// Opens a library for a server with those settings of its backend. `open` opens a file, or a bare name that the
    /// loader knows, and refuses what is no such library.
    ///
    /// # Errors
    /// UNAVAILABLE, with the searched places and how to get the library.
    pub fn open<T, E: Display>(
        &self,
        library: &NativeLibrary,
        settings: &BTreeMap<String, String>,
        open: impl Fn(&Path) -> Result<T, E>,
    ) -> Result<T, Error> {
        if let Some(path) = self.named(settings) {
            let file = if path.is_dir() {
                library.file_in(path).unwrap_or_else(|| path.join(library.file_names[0]))
            } else {
                path.into()
            };
            return open(&file).map_err(|error| {
                let (name, file, remedy) = (library.name, file.display(), library.how_to_get_it());
                Error::unavailable(format!("unable to load {name} from '{file}': {error}; {remedy}"))
            });
        }
        let mut looked_in = String::new();
        for place in self.places(library, settings) {
            let attempt = match &place {
                LibraryLocation::Directory(directory) => library.file_in(directory),
                LibraryLocation::Loader(name) => Some(PathBuf::from(name)),
            };
            let failure = match attempt.map(|file| open(&file)) {
                Some(Ok(opened)) => return Ok(opened),
                // The loader usually does not know the name. Its error adds no information.
                Some(Err(error)) if matches!(place, LibraryLocation::Directory(_)) => format!(" ({error})"),
                Some(Err(_)) | None => String::new(),
            };
            let separator = if looked_in.is_empty() { "" } else { ", " };
            let _ = write!(looked_in, "{separator}'{}'{failure}", place.path().display());
        }
        Err(Error::unavailable(library.not_found(&looked_in)))
    }

    fn named<'a>(&'a self, settings: &'a BTreeMap<String, String>) -> Option<&'a Path> {
        settings.get("library").map(Path::new).or(self.named.as_deref())
    }

    /// Why [`LibrarySearch::open`] would fail, as far as the search can tell without opening a file.
    pub fn missing(&self, library: &NativeLibrary, settings: &BTreeMap<String, String>) -> Option<String> {
        if self.expected(library, settings).is_some() {
            return None;
        }
        if let Some(path) = self.named(settings) {
            let is_bare = path.components().count() == 1;
            let is_known = is_bare && path.to_str().is_some_and(loader_knows);
            let text = format!(
                "unable to load {} from '{}': there is no such file; {}",
                library.name,
                path.display(),
                library.how_to_get_it()
            );
            return (!is_known).then_some(text);
        }
        if library.file_names.iter().any(|name| loader_knows(name)) {
            return None;
        }
        let places = self.places(library, settings);
        let places: Vec<_> = places.iter().map(|place| format!("'{}'", place.path().display())).collect();
        Some(library.not_found(&places.join(", ")))
    }

    /// The file that would be opened, as far as the search can determine it without opening a file.
    pub fn expected(&self, library: &NativeLibrary, settings: &BTreeMap<String, String>) -> Option<PathBuf> {
        if let Some(path) = self.named(settings) {
            return if path.is_dir() {
                library.file_in(path)
            } else {
                path.is_file().then(|| path.to_owned())
            };
        }
        self.places(library, settings).into_iter().find_map(|place| match place {
            LibraryLocation::Directory(directory) => library.file_in(&directory),
            LibraryLocation::Loader(_) => None,
        })
    }

    fn places(&self, library: &NativeLibrary, settings: &BTreeMap<String, String>) -> Vec<LibraryLocation> {
        let mut places = Vec::new();
        if let Some(backends) = settings.get("backend-directory") {
            places.push(LibraryLocation::Directory(Path::new(backends).join(library.backend)));
        }
        if let Some(directory) = &self.program_directory {
            places.push(LibraryLocation::Directory(directory.clone()));
            places.push(LibraryLocation::Directory(directory.join("../lib")));
            places.push(LibraryLocation::Directory(directory.join("../lib/nereid")));
        }
        places.extend(library.file_names.iter().map(|name| LibraryLocation::Loader(name)));
        let packages = self.python_packages();
        places.extend(
            packages.map(|packages| LibraryLocation::Directory(packages.join(library.package_folder))),
        );
        places
    }

    /// Directories of installed Python packages, in the order of preference.
    pub fn python_packages(&self) -> impl Iterator<Item = PathBuf> {
        // A server that is installed in a virtual environment belongs to it, also if the environment is not active.
        let own = self.program_directory.as_deref().and_then(Path::parent);
        let own = own.filter(|prefix| prefix.join("pyvenv.cfg").is_file());
        let prefixes = own.into_iter().chain(self.python_prefixes.iter().map(PathBuf::as_path));
        prefixes.flat_map(python_packages)
    }
}

/// Whether the log has told why a library is missing.
///
/// The reason names all places. It is told once, and not by each of many models.
#[derive(Debug, Default)]
pub struct ToldFailure(AtomicBool);

impl ToldFailure {
    /// The error of a model whose library could not be opened: the given one, or a short one after the first.
    pub fn tell(&self, library: &NativeLibrary, error: Error) -> Error {
        let is_missing = error.code == ErrorCode::Unavailable;
        if is_missing && self.0.swap(true, Relaxed) { library.missing_again() } else { error }
    }
}

impl NativeLibrary {
    /// As the error of another model, without what that one tells.
    fn missing_again(&self) -> Error {
        let Self { name, .. } = self;
        let remedy = self.how_to_get_it();
        Error::unavailable(format!("{name} cannot be used, as an earlier error tells: {remedy}"))
    }

    fn how_to_get_it(&self) -> String {
        let Self { package, option, backend, .. } = self;
        format!(
            "get it with 'pip install {package}', or name it with {option}=PATH or --backend-config={backend},library=PATH"
        )
    }

    /// The remedy stands before the places, which fill lines.
    fn not_found(&self, looked_in: &str) -> String {
        let (name, file, remedy) = (self.name, self.file_names[0], self.how_to_get_it());
        format!("unable to find {name} ({file}): {remedy}; searched: {looked_in}")
    }

    /// The library in a directory: the file with the plain name, or else the newest release.
    fn file_in(&self, directory: &Path) -> Option<PathBuf> {
        let mut plain = self.file_names.iter().map(|name| directory.join(name));
        plain.find(|file| file.is_file()).or_else(|| {
            let entries = fs::read_dir(directory).ok()?;
            let releases = entries
                .flatten()
                .filter_map(|entry| Some((self.release(entry.file_name().to_str()?)?, entry.path())));
            releases.max().map(|(_, file)| file)
        })
    }

    /// The numbers in `libexample.so.1.31.1`.
    fn release(&self, file_name: &str) -> Option<Vec<u32>> {
        let numbers = file_name.strip_prefix(self.file_names[0])?.strip_prefix('.')?;
        numbers.split('.').map(|number| number.parse().ok()).collect()
    }
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

    const EXAMPLE: NativeLibrary = NativeLibrary {
        name: "Example",
        file_names: &["libexample.so", "libexample.so.1"],
        backend: "example",
        package: "example-package",
        package_folder: "example/libs",
        option: "--example-library",
    };

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    fn named(path: &str) -> LibrarySearch {
        LibrarySearch { named: Some(path.into()), ..LibrarySearch::default() }
    }

    #[test]
    fn the_newest_release_of_a_directory_is_taken_unless_there_is_a_plain_name() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["libexample.so.1.9.0", "libexample.so.1.31.1", "libexample_shared.so"] {
            touch(&directory.path().join(name));
        }
        assert!(EXAMPLE.file_in(directory.path()).unwrap().ends_with("libexample.so.1.31.1"));
        touch(&directory.path().join("libexample.so"));
        assert!(EXAMPLE.file_in(directory.path()).unwrap().ends_with("libexample.so"));
    }

    #[test]
    fn the_package_of_the_newest_python_is_found() {
        let prefix = tempfile::tempdir().unwrap();
        for python in ["python3.9", "python3.11"] {
            touch(
                &prefix.path().join(format!("lib/{python}/site-packages/example/libs/libexample.so.1.31.1")),
            );
        }
        let search =
            LibrarySearch { python_prefixes: vec![prefix.path().into()], ..LibrarySearch::default() };
        let found = search.expected(&EXAMPLE, &BTreeMap::new()).unwrap();
        assert!(found.to_str().unwrap().contains("python3.11"));
    }

    #[test]
    fn the_error_for_a_missing_library_names_the_searched_paths_and_the_remedy() {
        let search =
            LibrarySearch { program_directory: Some("/nowhere/bin".into()), ..LibrarySearch::default() };
        let settings = BTreeMap::from([("backend-directory".to_owned(), "/nowhere/backends".to_owned())]);
        let error = search.open(&EXAMPLE, &settings, |_| Err::<(), _>("no")).unwrap_err();
        assert_eq!(
            error.with_code(),
            "Unavailable: unable to find Example (libexample.so): get it with 'pip install example-package', or name it \
             with --example-library=PATH or --backend-config=example,library=PATH; searched: \
             '/nowhere/backends/example', '/nowhere/bin', '/nowhere/bin/../lib', '/nowhere/bin/../lib/nereid', \
             'libexample.so', 'libexample.so.1'"
        );
        assert_eq!(search.missing(&EXAMPLE, &settings).as_deref(), Some(&*error.message));
    }

    #[test]
    fn a_file_that_does_not_open_is_named_with_the_reason_and_the_search_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let broken = directory.path().join("backends/example/libexample.so");
        let whole = directory.path().join("libexample.so.1");
        [&broken, &whole].into_iter().for_each(|file| touch(file));
        let search =
            LibrarySearch { program_directory: Some(directory.path().into()), ..LibrarySearch::default() };
        let backends = directory.path().join("backends").display().to_string();
        let settings = BTreeMap::from([("backend-directory".to_owned(), backends)]);
        let open = |working: bool| {
            let open = |file: &Path| if working && file == whole { Ok(()) } else { Err("too short") };
            search.open(&EXAMPLE, &settings, open)
        };
        open(true).unwrap();
        let error = open(false).unwrap_err();
        assert!(error.message.contains("/backends/example' (too short), "), "{error}");
        assert!(error.message.ends_with("'libexample.so', 'libexample.so.1'"), "{error}");
    }

    #[test]
    fn a_named_library_is_not_replaced_by_another_one() {
        let search = named("/nowhere/libexample.so");
        let error = search.open(&EXAMPLE, &BTreeMap::new(), |_| Err::<(), _>("it is not there")).unwrap_err();
        let begin = "unable to load Example from '/nowhere/libexample.so': it is not there; get it with";
        assert!(error.message.starts_with(begin), "{error}");
        let missing = search.missing(&EXAMPLE, &BTreeMap::new()).unwrap();
        assert!(
            missing
                .starts_with("unable to load Example from '/nowhere/libexample.so': there is no such file"),
            "{missing}"
        );
    }

    #[test]
    fn a_library_that_the_loader_finds_is_not_missing() {
        assert!(loader_knows("libc.so.6") && !loader_knows("libno-such-library.so"));
        assert_eq!(named("libc.so.6").missing(&EXAMPLE, &BTreeMap::new()), None);
        assert!(named("./libc.so.6").missing(&EXAMPLE, &BTreeMap::new()).is_some());
    }

    #[test]
    fn the_setting_comes_before_the_option() {
        let settings = BTreeMap::from([("library".to_owned(), "/setting/libexample.so".to_owned())]);
        let opened = named("/option/libexample.so")
            .open(&EXAMPLE, &settings, |file| Ok::<_, &str>(file.to_owned()))
            .unwrap();
        assert_eq!(opened, Path::new("/setting/libexample.so"));
    }
}
