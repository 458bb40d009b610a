//! The opened library: its functions, and the one object from which everything else is made.
use std::{
    ffi::{CStr, CString, c_char},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr::{self, NonNull},
    sync::Arc,
};

use libloading::Library;

use super::{
    OvError,
    element::ElementNumbers,
    failure::{check, not_null},
    sys::{self, FunctionTable, MissingFunction},
};

/// Why a file could not become an [`OpenVino`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    /// The loader refuses the file. Contains the loader's message.
    #[error("{0}")]
    Loader(String),
    /// The library is of a release that lacks a function.
    #[error("the library has no function {0}: OpenVINO 2025.2 or newer is needed")]
    NoFunction(&'static str),
    /// The library could not be initialised.
    #[error(transparent)]
    Failed(#[from] OvError),
}

impl From<libloading::Error> for LibraryError {
    fn from(error: libloading::Error) -> Self {
        // The error's text only names the failed call. Its source has the loader's message.
        let source = std::error::Error::source(&error).map(ToString::to_string);
        Self::Loader(source.unwrap_or_else(|| error.to_string()))
    }
}

/// One opened library with its core.
///
/// Invariant: the functions may be called for the rest of the process, because the library is never closed. This value
/// owns the core.
pub(crate) struct OpenVino {
    functions: FunctionTable,
    core: NonNull<sys::ov_core>,
    path: PathBuf,
    version: String,
    element_numbers: ElementNumbers,
}

// SAFETY: the library documents the core as usable from several threads at once; the rest is plain data that never
// changes.
unsafe impl Send for OpenVino {}
// SAFETY: as above.
unsafe impl Sync for OpenVino {}

impl OpenVino {
    /// Opens the library at `path`. It loads its other libraries, such as the readers of formats, from the same folder
    /// when they are needed.
    ///
    /// Files of models are read into memory, never mapped: a file that another program makes shorter would end the
    /// process.
    pub(crate) fn open(path: &Path) -> Result<Arc<Self>, LibraryError> {
        // SAFETY: running the initialisers of a shared library is what the operator asks for by installing it; those of
        // OpenVINO have no requirements.
        let library = unsafe { Library::new(path) }?;
        let functions =
            FunctionTable::of(&library).map_err(|MissingFunction(name)| LibraryError::NoFunction(name))?;
        // The library has threads and thread-local destructors of its own.
        std::mem::forget(library);

        let version = version(&functions)?;
        let mut core = ptr::null_mut();
        // SAFETY: `core` is writable.
        let status = unsafe { (functions.ov_core_create)(&raw mut core) };
        check(&functions, status, || "create the core".to_owned())?;
        let core = not_null(core, "core")?;
        let element_numbers = ElementNumbers::of(&functions, core).inspect_err(|_| {
            // SAFETY: made above, and no other code uses it yet.
            unsafe { (functions.ov_core_free)(core.as_ptr()) };
        })?;
        let opened = Self { functions, core, path: path.to_owned(), version, element_numbers };
        opened.set_property(c"ENABLE_MMAP", c"NO")?;
        Ok(Arc::new(opened))
    }

    /// The file that the library was opened from.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Release and build, such as `2026.4.1-22982-e213a147257-releases/2026/4`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Sets a property for all that is read or compiled from now on.
    ///
    /// The library accepts every key here. With a key that a device does not know, it refuses to compile from then on.
    /// So only this module calls the function.
    fn set_property(&self, key: &CStr, value: &CStr) -> Result<(), OvError> {
        let all_devices = c"".as_ptr();
        // SAFETY: the core lives; all texts end with NUL and are copied. The call reads one pair of arguments.
        let status = unsafe {
            (self.functions.ov_core_set_property)(
                self.core.as_ptr(),
                all_devices,
                key.as_ptr(),
                value.as_ptr(),
            )
        };
        self.check(status, || format!("set the property {}", key.to_string_lossy()))
    }

    /// Loads a library of operators. Models that are read from now on may have them.
    ///
    /// # Errors
    /// Those of the library: there is no such file, or it is no extension.
    pub(crate) fn add_extension(&self, path: &Path) -> Result<(), OvError> {
        let text = path_text(path)?;
        // SAFETY: the core lives; the text ends with NUL. Running the initialisers of the extension is what the
        // operator asks for by naming it.
        let status = unsafe { (self.functions.ov_core_add_extension)(self.core.as_ptr(), text.as_ptr()) };
        self.check(status, || format!("load the extension '{}'", path.display()))
    }

    pub(super) fn functions(&self) -> &FunctionTable {
        &self.functions
    }

    pub(super) fn core(&self) -> *const sys::ov_core {
        self.core.as_ptr()
    }

    /// The numbers of element types in this release.
    pub(super) fn element_numbers(&self) -> &ElementNumbers {
        &self.element_numbers
    }

    /// As [`check`].
    pub(super) fn check(&self, status: sys::ov_status, step: impl FnOnce() -> String) -> Result<(), OvError> {
        check(&self.functions, status, step)
    }

    /// A text that a call has left at `text`. It is copied, then freed.
    ///
    /// # Safety
    /// A text of the library, which ends with NUL and belongs to the caller.
    pub(super) unsafe fn take_text(&self, text: *mut c_char) -> Result<CString, OvError> {
        let text = not_null(text, "text")?;
        // SAFETY: as the caller promises; copied, then freed once.
        unsafe {
            let copy = CStr::from_ptr(text.as_ptr()).to_owned();
            (self.functions.ov_free)(text.as_ptr());
            Ok(copy)
        }
    }
}

impl Drop for OpenVino {
    fn drop(&mut self) {
        // SAFETY: this value owns the core and frees it once. What was made from it has references of its own.
        unsafe { (self.functions.ov_core_free)(self.core.as_ptr()) };
    }
}

/// A path in the form that the library expects.
pub(super) fn path_text(path: &Path) -> Result<CString, OvError> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| OvError::invalid_argument(format!("the path {} has a NUL inside", path.display())))
}

fn version(functions: &FunctionTable) -> Result<String, OvError> {
    let mut version = sys::ov_version { build_number: ptr::null(), description: ptr::null() };
    // SAFETY: `version` is writable.
    let status = unsafe { (functions.ov_get_openvino_version)(&raw mut version) };
    check(functions, status, || "read the version".to_owned())?;
    // SAFETY: the text ends with NUL; it is copied, then both texts are freed once.
    unsafe {
        let build = version.build_number;
        let text = if build.is_null() {
            String::new()
        } else {
            CStr::from_ptr(build).to_string_lossy().into_owned()
        };
        (functions.ov_version_free)(&raw mut version);
        Ok(text)
    }
}
