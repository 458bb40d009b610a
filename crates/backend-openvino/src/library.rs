//! Opens the library of OpenVINO's C interface.
//!
//! The Python package has it with all that it needs in the folder `openvino/libs` of `site-packages`. Its name ends
//! with its release: `libopenvino_c.so.2641` is that of 2026.4.1.
use std::{collections::BTreeMap, sync::Arc};

use native_backend::{LibrarySearch, NativeLibrary};
use vocabulary::Error;

use crate::{ov::OpenVino, settings};

/// What the backend searches for. An environment variable stands in the place of an option of the server.
pub(crate) const LIBRARY: NativeLibrary = NativeLibrary {
    name: "OpenVINO",
    file_names: &["libopenvino_c.so"],
    backend: settings::BACKEND_NAME,
    package: "openvino",
    package_folder: "openvino/libs",
    option: "NEREID_OPENVINO_LIBRARY",
};

/// Opens the library for a server with those settings of the backend.
///
/// # Errors
/// UNAVAILABLE, with the searched places and how to get the library.
pub(crate) fn open(
    search: &LibrarySearch,
    settings: &BTreeMap<String, String>,
) -> Result<Arc<OpenVino>, Error> {
    search.open(&LIBRARY, settings, OpenVino::open)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(file: &str) -> String {
        let search = LibrarySearch { named: Some(file.into()), ..LibrarySearch::default() };
        open(&search, &BTreeMap::new()).map(|_| ()).unwrap_err().with_code()
    }

    #[test]
    fn a_missing_library_is_told_with_the_remedy() {
        let text = refusal("/nowhere/libopenvino_c.so");
        let begin = "Unavailable: unable to load OpenVINO from '/nowhere/libopenvino_c.so': ";
        assert!(text.starts_with(begin), "{text}");
        let remedy = "get it with 'pip install openvino', or name it with NEREID_OPENVINO_LIBRARY=PATH or \
                      --backend-config=openvino,library=PATH";
        assert!(text.ends_with(remedy), "{text}");
    }

    #[test]
    fn a_library_without_the_functions_is_told_by_the_first_of_them() {
        let text = refusal("libc.so.6");
        assert!(text.contains("the library has no function ov_get_openvino_version"), "{text}");
    }

    #[test]
    fn the_library_of_the_python_package_is_found_by_its_release() {
        let prefix = tempfile::tempdir().unwrap();
        let libraries = prefix.path().join("lib/python3.12/site-packages/openvino/libs");
        std::fs::create_dir_all(&libraries).unwrap();
        for name in ["libopenvino_c.so.2540", "libopenvino_c.so.2641", "libopenvino.so.2700"] {
            std::fs::write(libraries.join(name), "").unwrap();
        }
        let search =
            LibrarySearch { python_prefixes: vec![prefix.path().into()], ..LibrarySearch::default() };
        let found = search.expected(&LIBRARY, &BTreeMap::new());
        assert_eq!(found, Some(libraries.join("libopenvino_c.so.2641")));
    }
}
