//! Opens the library of PyTorch.
//!
//! The Python package has it with all that it needs in the folder `torch/lib` of `site-packages`.
use std::{collections::BTreeMap, sync::Arc};

use native_backend::{LibrarySearch, NativeLibrary};
use vocabulary::Error;

use crate::{settings, torch::Torch};

/// What the backend searches for. An environment variable stands in the place of an option of the server.
pub(crate) const LIBRARY: NativeLibrary = NativeLibrary {
    name: "PyTorch",
    file_names: &["libtorch_cpu.so"],
    backend: settings::BACKEND_NAME,
    package: "torch",
    package_folder: "torch/lib",
    option: "NEREID_TORCH_LIBRARY",
};

/// Opens the library for a server with those settings of the backend.
///
/// # Errors
/// UNAVAILABLE, with the searched places and how to get the library.
pub(crate) fn open(search: &LibrarySearch, settings: &BTreeMap<String, String>) -> Result<Arc<Torch>, Error> {
    search.open(&LIBRARY, settings, Torch::open)
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
        let text = refusal("/nowhere/libtorch_cpu.so");
        let begin = "Unavailable: unable to load PyTorch from '/nowhere/libtorch_cpu.so': ";
        assert!(text.starts_with(begin), "{text}");
        let remedy = "get it with 'pip install torch', or name it with NEREID_TORCH_LIBRARY=PATH or \
                      --backend-config=pytorch,library=PATH";
        assert!(text.ends_with(remedy), "{text}");
    }

    #[test]
    fn a_library_without_the_functions_is_told_by_the_first_of_them() {
        let text = refusal("libc.so.6");
        assert!(text.contains("the library has no function aoti_torch_device_type_cpu"), "{text}");
    }
}
