//! The settings of a session.
use std::{
    ffi::{CStr, CString, c_int},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr::{self, NonNull},
    sync::Arc,
};

use ort_sys as sys;

use super::{FilesInMemory, OrtError, Runtime, runtime::not_null};

/// How far the runtime may rewrite the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum GraphLevel {
    /// Run the graph as it is written.
    Disabled,
    /// Rewrites that do not change the results.
    Basic,
    /// Also fusions.
    Extended,
    /// All rewrites, memory layout included.
    #[default]
    All,
}

/// The setting by which a session uses the allocators of the environment.
const ENVIRONMENT_ALLOCATORS: &CStr = c"session.use_env_allocators";

/// The setting by which a session does not copy files in memory.
const IN_PLACE: &CStr = c"session.use_external_initializer_file_buffers_directly";

/// Settings of a session. With `None` the runtime chooses.
#[derive(Clone, Default)]
pub(crate) struct SessionOptions {
    /// Whose session it is, for the runtime's messages in the log.
    pub(crate) owner: CString,
    /// How far the runtime may rewrite the graph.
    pub(crate) graph_level: GraphLevel,
    /// Run independent branches of the graph at the same time.
    pub(crate) parallel: bool,
    /// Threads for one operator. Ignored where all sessions share a pool.
    pub(crate) intra_threads: usize,
    /// Threads for branches of the graph. Ignored where all sessions share a pool.
    pub(crate) inter_threads: usize,
    /// Keep freed memory for the next run.
    pub(crate) memory_arena: Option<bool>,
    /// Take memory from the allocator of the process, if the runtime has been offered it.
    pub(crate) process_allocator: bool,
    /// Plan the memory of a run as one block, once the shapes are known.
    pub(crate) memory_pattern: Option<bool>,
    /// Session configuration entries by the runtime's own keys.
    pub(crate) entries: Vec<(CString, CString)>,
    /// Libraries of custom operators.
    pub(crate) op_libraries: Vec<PathBuf>,
    /// Files that the graph refers to.
    pub(crate) files: Arc<FilesInMemory>,
}

impl SessionOptions {
    /// Whether a session of that runtime will use the allocator of the process.
    pub(super) fn uses_process_allocator(&self, runtime: &Runtime) -> bool {
        self.process_allocator && runtime.has_shared_allocator()
    }

    /// Whether several threads can run one session as they would run sessions of their own: it has no threads and no arena
    /// of its own, and no operators that others have written.
    pub(crate) fn can_be_shared(&self, runtime: &Runtime) -> bool {
        let has_threads = runtime.global_threads().is_none() && (self.parallel || self.intra_threads != 1);
        !has_threads && self.op_libraries.is_empty() && self.uses_process_allocator(runtime)
    }
}

/// The runtime's form of [`SessionOptions`].
pub(super) struct NativeOptions<'a> {
    pointer: NonNull<sys::OrtSessionOptions>,
    runtime: &'a Runtime,
}

impl<'a> NativeOptions<'a> {
    pub(super) fn new(runtime: &'a Runtime, options: &SessionOptions) -> Result<Self, OrtError> {
        let mut pointer = ptr::null_mut();
        // SAFETY: `pointer` is writable.
        runtime.check(unsafe { ((*runtime.api()).CreateSessionOptions)(&raw mut pointer) })?;
        let native = Self { pointer: not_null(pointer, "session options")?, runtime };
        // SAFETY: this value owns the options; the text ends with NUL and is copied.
        native.set(unsafe { ((*runtime.api()).SetSessionLogId)(native.as_ptr(), options.owner.as_ptr()) })?;
        native.compute(options)?;
        native.memory(options)?;
        for (key, value) in &options.entries {
            // SAFETY: this value owns the options; both texts end with NUL and are copied.
            native.set(unsafe {
                ((*runtime.api()).AddSessionConfigEntry)(native.as_ptr(), key.as_ptr(), value.as_ptr())
            })?;
        }
        for library in &options.op_libraries {
            let library = path_text(library)?;
            // SAFETY: this value owns the options; the text ends with NUL. The runtime keeps the library open as long
            // as the options or a session made with them live.
            native.set(unsafe {
                ((*runtime.api()).RegisterCustomOpsLibrary_V2)(native.as_ptr(), library.as_ptr())
            })?;
        }
        native.files(&options.files)?;
        Ok(native)
    }

    pub(super) fn as_ptr(&self) -> *mut sys::OrtSessionOptions {
        self.pointer.as_ptr()
    }

    fn set(&self, status: sys::OrtStatusPtr) -> Result<(), OrtError> {
        self.runtime.check(status)
    }

    fn compute(&self, options: &SessionOptions) -> Result<(), OrtError> {
        let level = match options.graph_level {
            GraphLevel::Disabled => sys::GraphOptimizationLevel::ORT_DISABLE_ALL,
            GraphLevel::Basic => sys::GraphOptimizationLevel::ORT_ENABLE_BASIC,
            GraphLevel::Extended => sys::GraphOptimizationLevel::ORT_ENABLE_EXTENDED,
            GraphLevel::All => sys::GraphOptimizationLevel::ORT_ENABLE_ALL,
        };
        let mode = match options.parallel {
            false => sys::ExecutionMode::ORT_SEQUENTIAL,
            true => sys::ExecutionMode::ORT_PARALLEL,
        };
        let api = self.runtime.api();
        // SAFETY: this value owns the options.
        self.set(unsafe { ((*api).SetSessionGraphOptimizationLevel)(self.as_ptr(), level) })?;
        // SAFETY: this value owns the options.
        self.set(unsafe { ((*api).SetSessionExecutionMode)(self.as_ptr(), mode) })?;
        if self.runtime.global_threads().is_some() {
            // SAFETY: this value owns the options.
            return self.set(unsafe { ((*api).DisablePerSessionThreads)(self.as_ptr()) });
        }
        let count = |threads: usize| c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: this value owns the options.
        self.set(unsafe { ((*api).SetIntraOpNumThreads)(self.as_ptr(), count(options.intra_threads)) })?;
        // SAFETY: this value owns the options.
        self.set(unsafe { ((*api).SetInterOpNumThreads)(self.as_ptr(), count(options.inter_threads)) })
    }

    /// Tensors are used where the files are in memory, if the runtime knows the setting; otherwise they are copied.
    fn files(&self, files: &FilesInMemory) -> Result<(), OrtError> {
        let (names, contents, lengths) = files.columns();
        if names.is_empty() {
            return Ok(());
        }
        let api = self.runtime.api();
        // SAFETY: this value owns the options; both texts end with NUL and are copied.
        self.set(unsafe { ((*api).AddSessionConfigEntry)(self.as_ptr(), IN_PLACE.as_ptr(), c"1".as_ptr()) })?;
        // SAFETY: this value owns the options; the three arrays have one element for each file, the names end with NUL,
        // and the contents are as long as their lengths say. The session keeps the contents, which nobody changes.
        self.set(unsafe {
            ((*api).AddExternalInitializersFromMemory)(
                self.as_ptr(),
                names.as_ptr(),
                contents.as_ptr(),
                lengths.as_ptr(),
                names.len(),
            )
        })
    }

    fn memory(&self, options: &SessionOptions) -> Result<(), OrtError> {
        let api = self.runtime.api();
        // SAFETY: reading function pointers of a live table; each takes the options, which this value owns.
        let (arena, pattern) = unsafe {
            (
                options
                    .memory_arena
                    .map(|on| if on { (*api).EnableCpuMemArena } else { (*api).DisableCpuMemArena }),
                options
                    .memory_pattern
                    .map(|on| if on { (*api).EnableMemPattern } else { (*api).DisableMemPattern }),
            )
        };
        for function in arena.into_iter().chain(pattern) {
            // SAFETY: this value owns the options.
            self.set(unsafe { function(self.as_ptr()) })?;
        }
        if options.uses_process_allocator(self.runtime) {
            let (key, value) = (ENVIRONMENT_ALLOCATORS.as_ptr(), c"1".as_ptr());
            // SAFETY: this value owns the options; both texts end with NUL and are copied.
            self.set(unsafe { ((*api).AddSessionConfigEntry)(self.as_ptr(), key, value) })?;
        }
        Ok(())
    }
}

impl Drop for NativeOptions<'_> {
    fn drop(&mut self) {
        // SAFETY: this value owns the options and frees them once; sessions made with them have their own copy.
        unsafe { ((*self.runtime.api()).ReleaseSessionOptions)(self.as_ptr()) };
    }
}

/// A path in the form that the runtime expects.
pub(super) fn path_text(path: &Path) -> Result<CString, OrtError> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| OrtError::invalid_argument(format!("the path {} has a NUL inside", path.display())))
}
