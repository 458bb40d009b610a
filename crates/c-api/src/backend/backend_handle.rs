//! `TRITONBACKEND_Backend`: a library that has been opened and initialized under one backend's name.
use std::{
    collections::BTreeMap,
    ffi::{CString, OsStr, c_char, c_void},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicPtr, AtomicU32,
            Ordering::{Acquire, Release},
        },
    },
};

use vocabulary::{Error, FileIdentity, Name};

use super::{
    attributes::{AttributeValues, Attributes},
    entry_point::{EntryPoint, call},
    memory::MemoryManager,
};
use crate::{
    handle::{Handle, borrow, c_path, guard, put, readable},
    plugin::Library,
    types::{
        error::{CError, consume},
        message::Message,
    },
};

/// `TRITONSERVER_Server`, as backends get it from [`TRITONBACKEND_ModelServer`](super::model). This crate never reads
/// what the pointer refers to.
#[derive(Debug, Clone, Copy)]
pub struct ServerHandle(pub *mut c_void);

// SAFETY: this crate uses the pointer as a number only. All threads share the server, as the header says.
unsafe impl Send for ServerHandle {}
// SAFETY: the same.
unsafe impl Sync for ServerHandle {}

/// `TRITONBACKEND_Backend`.
#[derive(Debug)]
pub struct Backend {
    name: Name,
    settings_name: String,
    directory: CString,
    library_path: PathBuf,
    config: Message,
    policy: AtomicU32,
    state: AtomicPtr<c_void>,
    memory_manager: MemoryManager,
    functions: BackendFunctions,
    values: OnceLock<AttributeValues>,
    server: ServerHandle,
    /// Dropped after this backend has been finalized.
    library: Arc<Library>,
}

impl Handle for Backend {
    const NAME: &'static str = "TRITONBACKEND_Backend";
}

/// The functions of a library for its backend.
#[derive(Debug)]
struct BackendFunctions {
    initialize: Option<EntryPoint<Backend>>,
    finalize: Option<EntryPoint<Backend>>,
    get_attribute: Option<unsafe extern "C-unwind" fn(*mut Backend, *const Attributes) -> *mut CError>,
}

impl BackendFunctions {
    fn of(library: &Library) -> Self {
        // SAFETY: the types are those of the header for these names.
        unsafe {
            Self {
                initialize: library.function(c"TRITONBACKEND_Initialize"),
                finalize: library.function(c"TRITONBACKEND_Finalize"),
                get_attribute: library.function(c"TRITONBACKEND_GetBackendAttribute"),
            }
        }
    }

    fn get_attribute(&self, backend: &Backend, attributes: &Attributes) -> Result<(), Error> {
        let Some(function) = self.get_attribute else { return Ok(()) };
        // SAFETY: both live during the call; the library has received `backend` when it was initialized.
        unsafe { consume(function(ptr::from_ref(backend).cast_mut(), attributes)) }
    }
}

/// Where the library of a backend is, and for which backend it is opened.
pub(super) struct LibraryOpening<'a> {
    pub(super) name: &'a str,
    /// For a backend that another backend runs (`model.py`): the name whose settings it gets.
    pub(super) settings_name: &'a str,
    pub(super) directory: &'a Path,
    pub(super) library: &'a Path,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) server: ServerHandle,
}

impl Backend {
    /// Initializes `library` under a backend's name.
    ///
    /// # Errors
    /// The error of the library.
    pub(super) fn start(library: Arc<Library>, opening: LibraryOpening<'_>) -> Result<Arc<Self>, Error> {
        let LibraryOpening { name, settings_name, directory, library: path, settings, server } = opening;
        let config = if settings.is_empty() {
            serde_json::json!({})
        } else {
            serde_json::json!({ "cmdline": settings })
        };
        let backend = Arc::new(Self {
            name: name.into(),
            settings_name: settings_name.to_owned(),
            directory: c_path(directory),
            library_path: path.to_owned(),
            config: Message::new(&config.to_string()),
            policy: AtomicU32::new(0),
            state: AtomicPtr::default(),
            memory_manager: MemoryManager::default(),
            functions: BackendFunctions::of(&library),
            values: OnceLock::new(),
            server,
            library,
        });
        call(backend.functions.initialize, &*backend)?;
        let attributes = Attributes::default();
        // As Triton: a failure only means that the backend declares no attributes.
        if let Err(error) = backend.functions.get_attribute(&backend, &attributes) {
            log::warn!("backend '{name}' does not tell its attributes: {error}");
        }
        let mut values = attributes.into_values();
        if let Some(forced) = std::env::var_os("TRITON_PARALLEL_INSTANCE_LOADING") {
            values.parallel_loading = forced == "1";
        }
        // Set once, at this place.
        let _ = backend.values.set(values);
        Ok(backend)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The name whose settings the backend gets.
    pub(super) fn settings_name(&self) -> &str {
        &self.settings_name
    }

    pub(super) fn library(&self) -> &Library {
        &self.library
    }

    /// The path that the library was opened from.
    pub(super) fn library_path(&self) -> &Path {
        &self.library_path
    }

    /// The groups of instances that the backend likes best.
    pub(super) fn preferred_groups(&self) -> &[proto::ModelInstanceGroup] {
        self.values.get().map_or(&[], |values| &values.preferred_groups)
    }

    pub(super) fn server(&self) -> ServerHandle {
        self.server
    }

    pub(super) fn builds_in_parallel(&self) -> bool {
        self.values.get().is_some_and(|values| values.parallel_loading)
    }

    /// The directory where the library was found.
    pub(super) fn directory(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.directory.as_bytes()))
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        *self.name == *name
    }

    /// Whether this is the backend of that name and directory, opened from that file.
    pub(super) fn is_opened_from(&self, file: &FileIdentity, name: &str, directory: &Path) -> bool {
        self.library.identity() == file && self.is_named(name) && self.directory() == directory
    }

    /// Whether the file of the library has been replaced, rewritten or deleted since it was opened.
    pub(super) fn is_replaced(&self) -> bool {
        self.library.is_outdated()
    }

    /// Whether the file of the library has been replaced or rewritten, so that a load would use other code.
    pub(super) fn is_outdated(&self) -> bool {
        fs::metadata(&self.library_path)
            .map(FileIdentity::from)
            .is_ok_and(|file| file != *self.library.identity())
    }

    /// Whether the backend is written in Python, so that the Python backend runs it.
    pub(super) fn is_run_by_python(&self) -> bool {
        self.settings_name != *self.name
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        log::debug!("unloading backend '{}'", self.name);
        if let Err(error) = call(self.functions.finalize, self) {
            log::error!("failed finalizing backend: {error}");
        }
    }
}

/// Returns the version of the backend interface: 1.19.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ApiVersion(major: *mut u32, minor: *mut u32) -> *mut CError {
    // SAFETY: null or writable.
    guard(|| unsafe { put(major, 1).and_then(|()| put(minor, 19)) })
}

/// Returns the backend's name. It belongs to the backend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendName(
    backend: *mut Backend,
    name: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live backend; null or writable.
    guard(|| unsafe { put(name, readable(&borrow(backend)?.name)) })
}

/// Returns the settings of the command line as `{"cmdline": {...}}`. The message belongs to the backend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendConfig(
    backend: *mut Backend,
    config: *mut *mut Message,
) -> *mut CError {
    // SAFETY: null or a live backend; null or writable.
    guard(|| unsafe { put(config, ptr::from_ref(&borrow(backend)?.config).cast_mut()) })
}

/// Returns the execution policy: 0 if an instance blocks while it executes, 1 if all instances of its device do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendExecutionPolicy(
    backend: *mut Backend,
    policy: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live backend; null or writable.
    guard(|| unsafe { put(policy, borrow(backend)?.policy.load(Acquire)) })
}

/// Sets the execution policy. It has no effect: only instances of GPUs share a thread by device, and Nereid has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendSetExecutionPolicy(
    backend: *mut Backend,
    policy: u32,
) -> *mut CError {
    // SAFETY: null or a live backend.
    guard(|| unsafe { borrow(backend) }.map(|own| own.policy.store(policy, Release)))
}

/// Returns the directory where the backend was found (artifact type 0, a file system). The path belongs to the backend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendArtifacts(
    backend: *mut Backend,
    artifact_type: *mut u32,
    location: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live backend; null or writable.
    guard(|| unsafe {
        let backend = borrow(backend)?;
        put(artifact_type, 0).and_then(|()| put(location, backend.directory.as_ptr()))
    })
}

/// Returns the memory manager. It belongs to the backend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendMemoryManager(
    backend: *mut Backend,
    manager: *mut *mut MemoryManager,
) -> *mut CError {
    // SAFETY: null or a live backend; null or writable.
    guard(|| unsafe { put(manager, ptr::from_ref(&borrow(backend)?.memory_manager).cast_mut()) })
}

/// Returns the pointer that the library has stored with the backend; null at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendState(
    backend: *mut Backend,
    state: *mut *mut c_void,
) -> *mut CError {
    // SAFETY: null or a live backend; null or writable.
    guard(|| unsafe { put(state, borrow(backend)?.state.load(Acquire)) })
}

/// Stores a pointer with the backend. The library keeps owning what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendSetState(
    backend: *mut Backend,
    state: *mut c_void,
) -> *mut CError {
    // SAFETY: null or a live backend.
    guard(|| unsafe { borrow(backend) }.map(|own| own.state.store(state, Release)))
}
