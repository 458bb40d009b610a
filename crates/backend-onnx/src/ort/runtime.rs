//! The opened library: its function table and its one environment.
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    path::{Path, PathBuf},
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use inference::lock::Mutex;
use libloading::Library;
use ort_sys as sys;

use super::OrtError;

/// The oldest interface version with all functions that this crate calls, as the minor number of the release.
const OLDEST: u32 = 17;
/// Target of the runtime's messages in the log.
const LOG_TARGET: &str = "onnxruntime";
/// The runtime's name for what is of no session.
const NO_OWNER: &CStr = c"nereid";

/// Held while an environment is made or released. All users in a process share one environment. The library releases it
/// without its own lock, so the creation of the next one could fail.
static ENVIRONMENT: Mutex<()> = Mutex::new(());

/// Why a file could not become a [`Runtime`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The loader refuses the file, or it has no entry point. Contains the loader's message.
    #[error("{0}")]
    Loader(String),
    /// The release is too old.
    #[error("ONNX Runtime {0} is too old, 1.{OLDEST} or newer is needed")]
    TooOld(String),
    /// The library lacks an interface version that its release should have.
    #[error("ONNX Runtime {0} does not offer its interface version {1}")]
    NoTable(String, u32),
    /// The environment could not be made.
    #[error(transparent)]
    Failed(#[from] OrtError),
}

impl From<libloading::Error> for OpenError {
    fn from(error: libloading::Error) -> Self {
        // The error's text only names the failed call. Its source has the loader's message.
        let source = std::error::Error::source(&error).map(ToString::to_string);
        Self::Loader(source.unwrap_or_else(|| error.to_string()))
    }
}

/// Threads that all sessions share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GlobalThreads {
    /// Threads that work on one operator.
    pub(crate) intra: usize,
    /// Threads that work on different operators.
    pub(crate) inter: usize,
    /// Whether threads spin while they wait.
    pub(crate) spin: bool,
}

/// One opened library with its environment.
///
/// Invariant: `table` is valid for the rest of the process, because the library is never closed. This value owns the
/// other pointers.
pub(crate) struct Runtime {
    table: NonNull<sys::OrtApi>,
    environment: NonNull<sys::OrtEnv>,
    memory: NonNull<sys::OrtMemoryInfo>,
    allocator: NonNull<sys::OrtAllocator>,
    path: PathBuf,
    version: String,
    /// The version of the table. It has the functions of this version and of all older ones.
    interface_version: u32,
    global_threads: Option<GlobalThreads>,
    /// The environment has an allocator for sessions that ask for it.
    has_shared_allocator: AtomicBool,
}

// SAFETY: environment, memory description and default allocator are documented as usable from any thread; the rest is
// plain data that never changes.
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

impl Runtime {
    /// Opens the library at `path`, or the library of that file name on the loader's path, and makes its environment.
    ///
    /// The runtime keeps one environment for each process: if there is one, its threads stay as they are.
    pub(crate) fn open(path: &Path, global_threads: Option<GlobalThreads>) -> Result<Arc<Self>, OpenError> {
        // SAFETY: running the initialisers of a shared library is what the operator asks for by installing it; those of
        // ONNX Runtime have no requirements.
        let library = unsafe { Library::new(path) }?;
        let (table, version, interface_version) = function_table(&library)?;
        std::mem::forget(library);

        let allocator = default_allocator(table)?;
        let one_at_a_time = ENVIRONMENT.lock();
        let environment = create_environment(table, global_threads)?;
        let memory = host_memory(table, sys::OrtAllocatorType::OrtArenaAllocator).inspect_err(|_| {
            // SAFETY: made above, and no other code uses it yet.
            unsafe { ((*table.as_ptr()).ReleaseEnv)(environment.as_ptr()) };
        })?;
        drop(one_at_a_time);
        let path = path.to_owned();
        Ok(Arc::new(Self {
            table,
            environment,
            memory,
            allocator,
            path,
            version,
            interface_version,
            global_threads,
            has_shared_allocator: AtomicBool::new(false),
        }))
    }

    /// The file that the library was opened from.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Release, such as `1.31.1`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The version of the function table. Functions of newer versions must not be called.
    pub(super) fn interface_version(&self) -> u32 {
        self.interface_version
    }

    /// The pool that all sessions share, if there is one.
    pub(crate) fn global_threads(&self) -> Option<GlobalThreads> {
        self.global_threads
    }

    /// Sets the verbosity of sessions that are created from now on to that of the log.
    pub(crate) fn follow_log_level(&self) {
        // SAFETY: this value owns the environment, which lives.
        let status = unsafe {
            ((*self.api()).UpdateEnvWithCustomLogLevel)(self.environment.as_ptr(), severity_wanted())
        };
        if let Err(failure) = self.check(status) {
            log::warn!("the log level of ONNX Runtime stays as it is: {failure}");
        }
    }

    /// Gives the environment an allocator for sessions that ask for it.
    ///
    /// # Errors
    /// The environment has another one, for example of the program that this server is in.
    ///
    /// # Safety
    /// The allocator lives as long as the process, because the environment may live longer than this value.
    pub(super) unsafe fn share_allocator(&self, allocator: *mut sys::OrtAllocator) -> Result<(), OrtError> {
        let one_at_a_time = ENVIRONMENT.lock();
        // SAFETY: the environment lives; the allocator as the caller promises.
        let status = unsafe { ((*self.api()).RegisterAllocator)(self.environment.as_ptr(), allocator) };
        drop(one_at_a_time);
        self.check(status)?;
        self.has_shared_allocator.store(true, Relaxed);
        Ok(())
    }

    /// Whether this value has given the environment an allocator.
    pub(super) fn has_shared_allocator(&self) -> bool {
        self.has_shared_allocator.load(Relaxed)
    }

    /// The function table. It is a raw pointer, because a reference would claim fields that a smaller table lacks.
    pub(super) fn api(&self) -> *const sys::OrtApi {
        self.table.as_ptr()
    }

    pub(super) fn environment(&self) -> *const sys::OrtEnv {
        self.environment.as_ptr()
    }

    pub(super) fn memory(&self) -> *const sys::OrtMemoryInfo {
        self.memory.as_ptr()
    }

    pub(super) fn allocator(&self) -> *mut sys::OrtAllocator {
        self.allocator.as_ptr()
    }

    /// Turns a status into a result and frees it.
    pub(super) fn check(&self, status: sys::OrtStatusPtr) -> Result<(), OrtError> {
        check(self.table, status)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _one_at_a_time = ENVIRONMENT.lock();
        // SAFETY: this value owns both, and no session is left: each session holds a reference to this value.
        unsafe {
            ((*self.api()).ReleaseMemoryInfo)(self.memory.as_ptr());
            ((*self.api()).ReleaseEnv)(self.environment.as_ptr());
        }
    }
}

/// Checks a result that a successful call must set.
pub(super) fn not_null<T>(pointer: *mut T, what: &str) -> Result<NonNull<T>, OrtError> {
    NonNull::new(pointer).ok_or_else(|| OrtError { code: 1, message: format!("the runtime gave no {what}") })
}

fn check(table: NonNull<sys::OrtApi>, status: sys::OrtStatusPtr) -> Result<(), OrtError> {
    let Some(status) = NonNull::new(status.0) else { return Ok(()) };
    let status = status.as_ptr();
    // SAFETY: `status` is a live status of this library; the message is read before it is freed. The code is read as
    // an integer of the same size, because a newer library may return values that the enum lacks.
    unsafe {
        let api = table.as_ptr();
        let get_code = std::mem::transmute::<
            unsafe extern "system" fn(*const sys::OrtStatus) -> sys::OrtErrorCode,
            unsafe extern "system" fn(*const sys::OrtStatus) -> c_int,
        >((*api).GetErrorCode);
        let code = get_code(status);
        let message = CStr::from_ptr(((*api).GetErrorMessage)(status)).to_string_lossy().into_owned();
        ((*api).ReleaseStatus)(status);
        Err(OrtError::of_runtime(code, message))
    }
}

/// Chooses the newest interface version that both sides support. If a caller asks for a newer version than the library
/// has, the library prints to the standard error. So this function reads the release number first.
fn function_table(library: &Library) -> Result<(NonNull<sys::OrtApi>, String, u32), OpenError> {
    type EntryPoint = unsafe extern "system" fn() -> *const sys::OrtApiBase;
    // SAFETY: the symbol has this type in every release of the library.
    let base = unsafe { library.get::<EntryPoint>(b"OrtGetApiBase\0")?() };
    // SAFETY: the entry point returns a static table of two functions; the version is a static text.
    let version = unsafe { CStr::from_ptr(((*base).GetVersionString)()) }.to_string_lossy().into_owned();
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok()).unwrap_or(0);
    let newer_major = version.split('.').next().is_some_and(|major| major != "0" && major != "1");
    if minor < OLDEST && !newer_major {
        return Err(OpenError::TooOld(version));
    }
    let wanted = if newer_major { sys::ORT_API_VERSION } else { minor.min(sys::ORT_API_VERSION) };
    // SAFETY: as above; null is checked.
    let table = unsafe { ((*base).GetApi)(wanted) };
    let table = NonNull::new(table.cast_mut()).ok_or_else(|| OpenError::NoTable(version.clone(), wanted))?;
    Ok((table, version, wanted))
}

/// The allocator of names and strings, which belongs to the library.
fn default_allocator(table: NonNull<sys::OrtApi>) -> Result<NonNull<sys::OrtAllocator>, OrtError> {
    let mut allocator = ptr::null_mut();
    // SAFETY: `allocator` is writable.
    check(table, unsafe { ((*table.as_ptr()).GetAllocatorWithDefaultOptions)(&raw mut allocator) })?;
    not_null(allocator, "default allocator")
}

/// The description of host memory from an allocator of that kind.
pub(super) fn host_memory(
    table: NonNull<sys::OrtApi>,
    kind: sys::OrtAllocatorType,
) -> Result<NonNull<sys::OrtMemoryInfo>, OrtError> {
    let (mut memory, default) = (ptr::null_mut(), sys::OrtMemType::OrtMemTypeDefault);
    // SAFETY: `memory` is writable.
    check(table, unsafe { ((*table.as_ptr()).CreateCpuMemoryInfo)(kind, default, &raw mut memory) })?;
    not_null(memory, "memory description")
}

fn create_environment(
    table: NonNull<sys::OrtApi>,
    global_threads: Option<GlobalThreads>,
) -> Result<NonNull<sys::OrtEnv>, OrtError> {
    let api = table.as_ptr();
    let mut environment = ptr::null_mut();
    let log_id = NO_OWNER.as_ptr();
    let Some(threads) = global_threads else {
        // SAFETY: the logging function lives for ever and needs no parameter; the runtime copies the id.
        let status = unsafe {
            ((*api).CreateEnvWithCustomLogger)(
                log_function(),
                ptr::null_mut(),
                severity_wanted(),
                log_id,
                &raw mut environment,
            )
        };
        check(table, status)?;
        return not_null(environment, "environment");
    };
    let mut options = ptr::null_mut();
    // SAFETY: `options` is writable.
    check(table, unsafe { ((*api).CreateThreadingOptions)(&raw mut options) })?;
    let count = |threads: usize| c_int::try_from(threads).unwrap_or(c_int::MAX);
    // SAFETY: the options were just made, are used by one thread, and are freed once; the rest as above.
    let result = unsafe {
        check(table, ((*api).SetGlobalIntraOpNumThreads)(options, count(threads.intra)))
            .and_then(|()| check(table, ((*api).SetGlobalInterOpNumThreads)(options, count(threads.inter))))
            .and_then(|()| check(table, ((*api).SetGlobalSpinControl)(options, c_int::from(threads.spin))))
            .and_then(|()| {
                let status = ((*api).CreateEnvWithCustomLoggerAndGlobalThreadPools)(
                    log_function(),
                    ptr::null_mut(),
                    severity_wanted(),
                    log_id,
                    options,
                    &raw mut environment,
                );
                check(table, status)
            })
    };
    // SAFETY: made above, freed once.
    unsafe { ((*api).ReleaseThreadingOptions)(options) };
    result?;
    not_null(environment, "environment")
}

/// The log severity for the runtime. Its messages about every node are too many for the level `info`.
fn severity_wanted() -> sys::OrtLoggingLevel {
    match log::max_level() {
        log::LevelFilter::Trace => sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_VERBOSE,
        // The runtime's messages about its own work belong to verbose level 2: they are nine tenths of all lines.
        log::LevelFilter::Debug | log::LevelFilter::Info | log::LevelFilter::Warn => {
            sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_WARNING
        }
        log::LevelFilter::Error => sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_ERROR,
        log::LevelFilter::Off => sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_FATAL,
    }
}

/// [`log_message`] with the type that the table expects. One parameter of that type is an enum of `ort-sys`.
fn log_function() -> sys::OrtLoggingFunction {
    // SAFETY: the same function type, but for an enum and an integer of the same size. A C function passes integers;
    // one that the enum lacks must not become a value of it.
    unsafe { std::mem::transmute::<LogFunction, sys::OrtLoggingFunction>(log_message) }
}

type LogFunction =
    unsafe extern "system" fn(*mut c_void, c_int, *const c_char, *const c_char, *const c_char, *const c_char);

/// The log level for a severity of the runtime. An unknown severity of a newer library is ordered by its number.
fn level_of(severity: c_int) -> log::Level {
    match severity {
        ..=1 => log::Level::Trace,
        2 => log::Level::Warn,
        3.. => log::Level::Error,
    }
}

/// The runtime calls this from any thread.
unsafe extern "system" fn log_message(
    _: *mut c_void,
    severity: c_int,
    _: *const c_char,
    owner: *const c_char,
    location: *const c_char,
    message: *const c_char,
) {
    let level = level_of(severity);
    if message.is_null() || location.is_null() || !log::log_enabled!(target: LOG_TARGET, level) {
        return;
    }
    // SAFETY: those that are not null are texts that live during the call.
    let text = |text| unsafe { CStr::from_ptr(text) };
    let (location, message) = (text(location).to_string_lossy(), text(message).to_string_lossy());
    let owner = match owner.is_null() || text(owner) == NO_OWNER {
        true => String::new(),
        false => format!("{}; ", text(owner).to_string_lossy()),
    };
    // A panic in a logger must not unwind through the runtime.
    let _ = std::panic::catch_unwind(|| {
        log::log!(target: LOG_TARGET, level, "{message} ({owner}{location})");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_not_known_is_as_severe_as_its_number() {
        let known = [
            (sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_VERBOSE, log::Level::Trace),
            (sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_INFO, log::Level::Trace),
            (sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_WARNING, log::Level::Warn),
            (sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_ERROR, log::Level::Error),
            (sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_FATAL, log::Level::Error),
        ];
        for (severity, level) in known {
            assert_eq!(level_of(severity as c_int), level);
        }
        assert_eq!((level_of(-3), level_of(77)), (log::Level::Trace, log::Level::Error));
    }
}
