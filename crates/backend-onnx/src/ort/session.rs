//! A loaded graph.
use std::{
    ffi::c_void,
    path::Path,
    ptr::{self, NonNull},
    sync::Arc,
};

use native_backend::Signature;
use ort_sys as sys;

use super::{
    FilesInMemory, OrtError, Runtime, SessionOptions,
    operator_domains::make_session,
    options::{NativeOptions, path_text},
    process_allocator::{SessionBytes, counted},
    runtime::not_null,
    signature::{Symbols, read_signature},
};

/// A loaded graph.
///
/// Invariant: freed before its files and its runtime.
pub(crate) struct Session {
    pointer: NonNull<sys::OrtSession>,
    signature: Signature,
    symbols: Symbols,
    runtime: Arc<Runtime>,
    /// The runtime reads tensors of the graph there.
    _files: Arc<FilesInMemory>,
    /// `None` if the session does not use the allocator of the process.
    held_bytes: Option<Arc<SessionBytes>>,
}

// SAFETY: the runtime allows `Run` on one session from several threads at once, and everything else from any thread.
// Only the processor's provider is ever used, for which this is documented.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Session {
    /// Loads the graph in the file at `path`. Blocks until the load ends.
    pub(crate) fn load(
        runtime: &Arc<Runtime>,
        path: &Path,
        options: &SessionOptions,
    ) -> Result<Arc<Self>, OrtError> {
        let native = NativeOptions::new(runtime, options)?;
        let held_bytes = held_bytes(runtime, options);
        let path = path_text(path)?;
        let mut pointer = ptr::null_mut();
        // SAFETY: environment and options live, the path ends with NUL, `pointer` is writable.
        let create = || unsafe {
            ((*runtime.api()).CreateSession)(
                runtime.environment(),
                path.as_ptr(),
                native.as_ptr(),
                &raw mut pointer,
            )
        };
        make_session(&options.op_libraries, || runtime.check(counted(held_bytes.as_ref(), create)))?;
        Self::loaded(pointer, runtime, options, held_bytes)
    }

    /// As [`Session::load`], but from a file's content. The content is copied.
    pub(crate) fn load_content(
        runtime: &Arc<Runtime>,
        content: &[u8],
        options: &SessionOptions,
    ) -> Result<Arc<Self>, OrtError> {
        let native = NativeOptions::new(runtime, options)?;
        let held_bytes = held_bytes(runtime, options);
        let mut pointer = ptr::null_mut();
        // SAFETY: environment and options live, the content is as long as the argument says, `pointer` is writable. The
        // runtime parses the content during the call and keeps nothing of it.
        let create = || unsafe {
            ((*runtime.api()).CreateSessionFromArray)(
                runtime.environment(),
                content.as_ptr().cast::<c_void>(),
                content.len(),
                native.as_ptr(),
                &raw mut pointer,
            )
        };
        make_session(&options.op_libraries, || runtime.check(counted(held_bytes.as_ref(), create)))?;
        Self::loaded(pointer, runtime, options, held_bytes)
    }

    /// Takes ownership of a session that has just been made.
    fn loaded(
        pointer: *mut sys::OrtSession,
        runtime: &Arc<Runtime>,
        options: &SessionOptions,
        held_bytes: Option<Arc<SessionBytes>>,
    ) -> Result<Arc<Self>, OrtError> {
        if let Some(held) = &held_bytes {
            held.loaded();
        }
        let mut session = Self {
            pointer: not_null(pointer, "session")?,
            signature: Signature::default(),
            symbols: Symbols::default(),
            runtime: runtime.clone(),
            _files: options.files.clone(),
            held_bytes,
        };
        (session.signature, session.symbols) = read_signature(runtime, session.pointer)?;
        Ok(Arc::new(session))
    }

    /// The inputs and outputs of the graph.
    pub(crate) fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The names of the inputs and outputs for runs.
    pub(super) fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Counts what the session has from the allocator of the process, if it uses that.
    pub(super) fn held_bytes(&self) -> Option<&Arc<SessionBytes>> {
        self.held_bytes.as_ref()
    }

    pub(super) fn as_ptr(&self) -> *mut sys::OrtSession {
        self.pointer.as_ptr()
    }

    /// The runtime of the session.
    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: this value owns the session and frees it once; no output is left, because each output holds a
        // reference to this value.
        unsafe { ((*self.runtime.api()).ReleaseSession)(self.pointer.as_ptr()) };
    }
}

/// A count for a session that will use the allocator of the process.
fn held_bytes(runtime: &Runtime, options: &SessionOptions) -> Option<Arc<SessionBytes>> {
    options.uses_process_allocator(runtime).then(Arc::default)
}
