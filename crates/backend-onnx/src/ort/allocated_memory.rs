//! How much memory a session has from its allocator.
use std::{ffi::CStr, ptr};

use ort_sys as sys;

use super::{OrtError, Runtime, Session, runtime::not_null};

/// The first interface version whose table has these functions.
const SINCE: u32 = 23;

/// The memory of a session's allocator, in bytes. It has the weights that the runtime has put into another layout, and
/// intermediate results and outputs. Other weights are elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AllocatedMemory {
    /// What is in use now.
    pub(crate) in_use: u64,
    /// What is in use now, and what an arena keeps for the next run.
    pub(crate) taken: u64,
}

impl Session {
    /// The memory that the allocator of the process counts, or else that of the arena. `None` without both, and for an
    /// arena if the runtime is older than 1.23.
    ///
    /// Waits for the arena's lock only.
    pub(crate) fn allocated_memory(&self) -> Option<AllocatedMemory> {
        if let Some(held) = self.held_bytes() {
            return Some(AllocatedMemory { in_use: held.get(), taken: held.get() });
        }
        let runtime = self.runtime();
        if runtime.interface_version() < SINCE {
            return None;
        }
        let statistics = Statistics::read(self, runtime).inspect_err(|error| {
            log::debug!("ONNX Runtime does not tell how much memory a model takes: {error}");
        });
        let statistics = statistics.ok()?;
        let (in_use, taken) = (statistics.number(c"InUse")?, statistics.number(c"TotalAllocated")?);
        Some(AllocatedMemory { in_use, taken })
    }
}

/// The statistics of a session's allocator: texts by their names.
struct Statistics<'a> {
    pairs: ptr::NonNull<sys::OrtKeyValuePairs>,
    runtime: &'a Runtime,
}

impl<'a> Statistics<'a> {
    fn read(session: &Session, runtime: &'a Runtime) -> Result<Self, OrtError> {
        let api = runtime.api();
        let mut allocator = ptr::null_mut();
        // SAFETY: session and memory description live, `allocator` is writable.
        runtime.check(unsafe {
            ((*api).CreateAllocator)(session.as_ptr(), runtime.memory(), &raw mut allocator)
        })?;
        let allocator = not_null(allocator, "allocator")?;
        let mut pairs = ptr::null_mut();
        // SAFETY: the allocator lives until it is released, once; the caller has checked that the table has this
        // function; `pairs` is writable.
        let read = unsafe {
            let read = runtime.check(((*api).AllocatorGetStats)(allocator.as_ptr(), &raw mut pairs));
            ((*api).ReleaseAllocator)(allocator.as_ptr());
            read
        };
        read?;
        Ok(Self { pairs: not_null(pairs, "statistics")?, runtime })
    }

    fn number(&self, name: &CStr) -> Option<u64> {
        // SAFETY: the pairs live; the text lives as long as they do.
        unsafe {
            let text = ((*self.runtime.api()).GetKeyValue)(self.pairs.as_ptr(), name.as_ptr());
            if text.is_null() { None } else { CStr::from_ptr(text).to_str().ok()?.parse().ok() }
        }
    }
}

impl Drop for Statistics<'_> {
    fn drop(&mut self) {
        // SAFETY: this value owns the pairs.
        unsafe { ((*self.runtime.api()).ReleaseKeyValuePairs)(self.pairs.as_ptr()) };
    }
}
