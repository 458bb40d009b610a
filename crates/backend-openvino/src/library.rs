//! Finds the library of OpenVINO's C interface.
//!
//! The Python package has it with all that it needs in the folder `openvino/libs` of `site-packages`. Its name ends
//! with its release: `libopenvino_c.so.2641` is that of 2026.4.1.
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use vocabulary::Error;

use crate::ov::OpenVino;

/// The name without a release, by which packages of systems may have it.
const FILE_NAME: &str = "libopenvino_c.so";
const HOW_TO_GET_IT: &str =
    "get it with 'pip install openvino', or name it with --backend-config=openvino,library=PATH";

/// The folder of the library below a folder of Python packages.
pub(crate) const IN_PYTHON_PACKAGES: &str = "openvino/libs";

/// Opens the library at a path, or the newest one in a folder.
///
/// # Errors
/// UNAVAILABLE, with the path, the reason, and how to get the library.
pub(crate) fn open(path: &Path) -> Result<Arc<OpenVino>, Error> {
    let file = if path.is_dir() {
        newest_in([path]).unwrap_or_else(|| path.join(FILE_NAME))
    } else {
        path.to_owned()
    };
    OpenVino::open(&file).map_err(|error| {
        let file = file.display();
        Error::unavailable(format!("unable to load OpenVINO from '{file}': {error}; {HOW_TO_GET_IT}"))
    })
}

/// The library of the newest release in any of the folders; of equal releases, that of the first folder. A library
/// whose name tells no release is taken if there is no other. Only the names of files count.
pub(crate) fn newest_in<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Option<PathBuf> {
    let mut newest: Option<(Vec<u32>, PathBuf)> = None;
    for folder in folders {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Some(release) = entry.file_name().to_str().and_then(release) else { continue };
            let is_newer = newest.as_ref().is_none_or(|(other, _)| release > *other);
            if is_newer && entry.path().is_file() {
                newest = Some((release, entry.path()));
            }
        }
    }
    newest.map(|(_, file)| file)
}

/// The numbers of the release in the name of a file: year, release of the year, patch. Empty for the plain name.
fn release(file_name: &str) -> Option<Vec<u32>> {
    let numbers = file_name.strip_prefix(FILE_NAME)?;
    if numbers.is_empty() {
        return Some(Vec::new());
    }
    let numbers = numbers.strip_prefix('.')?;
    let parsed: Option<Vec<u32>> = numbers.split('.').map(|number| number.parse().ok()).collect();
    match *parsed?.as_slice() {
        // The package of Python writes the digits of year, release and patch together.
        [_] => {
            let (year, rest) = numbers.split_at_checked(2)?;
            let (release, patch) = rest.split_at_checked(1)?;
            let number = |text: &str| if text.is_empty() { Some(0) } else { text.parse().ok() };
            Some(vec![2000 + number(year)?, number(release)?, number(patch)?])
        }
        ref release => Some(release.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(folder.path().join(name), "").unwrap();
        }
        folder
    }

    #[test]
    fn the_newest_release_of_all_folders_is_taken() {
        let old = folder(&["libopenvino_c.so.2460", "libopenvino_c.so.2540", "libopenvino.so.2700"]);
        let new = folder(&["libopenvino_c.so", "libopenvino_c.so.2641"]);
        let [old, new] = [old.path(), new.path()];
        assert_eq!(newest_in([old]).unwrap(), old.join("libopenvino_c.so.2540"));
        assert_eq!(newest_in([old, new]).unwrap(), new.join("libopenvino_c.so.2641"));
        assert_eq!(newest_in([Path::new("/nowhere")]), None);
    }

    #[test]
    fn the_library_of_a_python_package_is_found() {
        let packages = tempfile::tempdir().unwrap();
        let libraries = packages.path().join(IN_PYTHON_PACKAGES);
        fs::create_dir_all(&libraries).unwrap();
        fs::write(libraries.join("libopenvino_c.so.2641"), "").unwrap();
        let found = newest_in([packages.path().join("openvino/libs").as_path()]);
        assert_eq!(found, Some(libraries.join("libopenvino_c.so.2641")));
    }

    #[test]
    fn a_name_without_a_release_is_the_last_choice() {
        let plain = folder(&["libopenvino_c.so", "libopenvino_c.so.x", "libopenvino_c.so.7"]);
        assert_eq!(newest_in([plain.path()]).unwrap(), plain.path().join("libopenvino_c.so"));
    }

    #[test]
    fn releases_are_ordered_in_both_forms_of_names() {
        assert_eq!(release("libopenvino_c.so.2641"), Some(vec![2026, 4, 1]));
        assert_eq!(release("libopenvino_c.so.25311"), Some(vec![2025, 3, 11]));
        assert_eq!(release("libopenvino_c.so.2025.4.0"), Some(vec![2025, 4, 0]));
        assert!(release("libopenvino_c.so.2025.4.0") < release("libopenvino_c.so.2600"));
        assert_eq!(release("libopenvino_c.so.2641.debug"), None);
    }

    #[test]
    fn a_missing_library_is_told_with_the_remedy() {
        let error = open(Path::new("/nowhere/libopenvino_c.so")).map(|_| ()).unwrap_err();
        let begin = "unable to load OpenVINO from '/nowhere/libopenvino_c.so': ";
        assert!(error.message.starts_with(begin), "{error}");
        assert!(error.message.contains("pip install openvino"), "{error}");
    }

    #[test]
    fn a_library_without_the_functions_is_told_by_the_first_of_them() {
        let error = open(Path::new("libc.so.6")).map(|_| ()).unwrap_err();
        assert!(error.message.contains("the library has no function ov_get_openvino_version"), "{error}");
    }
}
