//! One run of a session: its settings, and from its inputs to its outputs.
use std::{
    ffi::{CStr, CString, c_int},
    ptr::{self, NonNull},
    sync::Arc,
};

use native_backend::RunOutputs;
use ort_sys as sys;
use smallvec::SmallVec;

use super::{
    OrtError, OutputPlace, OutputValue, RunInput, Runtime, Session, process_allocator::counted,
    runtime::not_null, signature::Symbols,
};

impl Session {
    /// Computes the outputs at those ascending positions of [`Signature::outputs`](native_backend::Signature::outputs),
    /// and writes them to the given places, which have the shapes that the outputs will have. Returns `None` for an output
    /// in its place. Blocks.
    ///
    /// # Errors
    /// The errors of the runtime, or positions beyond the signature; also if an output has another shape than its place.
    /// The places may have been written then. The session stays usable.
    pub(crate) fn run(
        self: &Arc<Self>,
        options: Option<&RunOptions>,
        inputs: &[RunInput<'_>],
        wanted: &[usize],
        places: &[Option<OutputPlace<'_>>],
    ) -> Result<RunOutputs<OutputValue>, OrtError> {
        let ours = |place: &OutputPlace<'_>| place.belongs_to(self.runtime());
        if places.len() != wanted.len() || !places.iter().flatten().all(ours) {
            return Err(OrtError::invalid_argument("the places belong to another run"));
        }
        let mut pointers: SmallVec<[*mut sys::OrtValue; 8]> = places
            .iter()
            .map(|place| place.as_ref().map_or(ptr::null_mut(), OutputPlace::as_mut_ptr))
            .collect();
        let result = self.run_into(options, inputs, wanted, &mut pointers);
        // Takes ownership of all outputs of the run before any early return.
        let outputs: SmallVec<[Result<Option<OutputValue>, OrtError>; 4]> = pointers
            .into_iter()
            .zip(places)
            .map(|(pointer, place)| {
                if place.is_some() {
                    return Ok(None);
                }
                let pointer = not_null(pointer, "output")?;
                // SAFETY: the run has left a value that this function now owns, and these were its inputs.
                unsafe { OutputValue::take(pointer, self, inputs) }.map(Some)
            })
            .collect();
        result?;
        if !places.iter().flatten().all(OutputPlace::is_used) {
            return Err(OrtError::invalid_argument("an output is not in its place"));
        }
        outputs.into_iter().collect()
    }

    /// As [`Session::run`], but writes into the outputs of an earlier run. Their shapes must be the same.
    ///
    /// # Errors
    /// As [`Session::run`]; also outputs of another session.
    pub(crate) fn run_again(
        self: &Arc<Self>,
        inputs: &[RunInput<'_>],
        wanted: &[usize],
        outputs: &mut [OutputValue],
    ) -> Result<(), OrtError> {
        if outputs.len() != wanted.len() || !outputs.iter().all(|output| output.comes_from(self)) {
            return Err(OrtError::invalid_argument("the outputs belong to another run"));
        }
        let mut pointers: SmallVec<[*mut sys::OrtValue; 8]> =
            outputs.iter_mut().map(OutputValue::as_mut_ptr).collect();
        self.run_into(None, inputs, wanted, &mut pointers)
    }

    fn run_into(
        &self,
        options: Option<&RunOptions>,
        inputs: &[RunInput<'_>],
        wanted: &[usize],
        outputs: &mut [*mut sys::OrtValue],
    ) -> Result<(), OrtError> {
        debug_assert_eq!(wanted.len(), outputs.len());
        // A repeated output would have two owners.
        if !wanted.is_sorted_by(|one, next| one < next) {
            return Err(OrtError::invalid_argument("outputs are asked for in ascending order"));
        }
        if !inputs.iter().all(|input| input.tensor.belongs_to(self.runtime())) {
            return Err(OrtError::invalid_argument("a tensor of another runtime"));
        }
        let symbol = |symbols: &[CString], slot: usize| {
            let beyond = || OrtError::invalid_argument("a position beyond the signature");
            symbols.get(slot).map(|symbol| symbol.as_ptr()).ok_or_else(beyond)
        };
        let Symbols { feeds, outputs: fetches } = self.symbols();
        let values: SmallVec<[*const sys::OrtValue; 8]> =
            inputs.iter().map(|input| input.tensor.as_ptr()).collect();
        let input_names =
            inputs.iter().map(|input| symbol(feeds, input.slot)).collect::<Result<SmallVec<[_; 8]>, _>>()?;
        let output_names =
            wanted.iter().map(|&slot| symbol(fetches, slot)).collect::<Result<SmallVec<[_; 8]>, _>>()?;
        let options = options.map_or(ptr::null(), RunOptions::as_ptr);
        // SAFETY: session and options live; names end with NUL and live in the session; all values live and belong to
        // this runtime; the four arrays are as long as the argument says. Places that are null receive new values.
        let status = counted(self.held_bytes(), || unsafe {
            ((*self.runtime().api()).Run)(
                self.as_ptr(),
                options,
                input_names.as_ptr(),
                values.as_ptr(),
                values.len(),
                output_names.as_ptr(),
                output_names.len(),
                outputs.as_mut_ptr(),
            )
        });
        self.runtime().check(status)
    }
}

/// Settings of single runs.
pub(crate) struct RunOptions {
    pointer: NonNull<sys::OrtRunOptions>,
    runtime: Arc<Runtime>,
}

// SAFETY: the settings are only read once made.
unsafe impl Send for RunOptions {}

/// The level of messages about errors that end the process.
const FATAL: c_int = sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_FATAL as c_int;

impl RunOptions {
    fn new(runtime: &Arc<Runtime>) -> Result<Self, OrtError> {
        let mut pointer = ptr::null_mut();
        // SAFETY: `pointer` is writable.
        runtime.check(unsafe { ((*runtime.api()).CreateRunOptions)(&raw mut pointer) })?;
        Ok(Self { pointer: not_null(pointer, "run options")?, runtime: runtime.clone() })
    }

    /// Settings of runs whose failures are not logged.
    pub(crate) fn silent(runtime: &Arc<Runtime>) -> Result<Self, OrtError> {
        let options = Self::new(runtime)?;
        // SAFETY: this value owns the options.
        runtime.check(unsafe {
            ((*runtime.api()).RunOptionsSetRunLogSeverityLevel)(options.pointer.as_ptr(), FATAL)
        })?;
        Ok(options)
    }

    /// Settings with one configuration entry.
    pub(crate) fn with_entry(runtime: &Arc<Runtime>, key: &CStr, value: &CStr) -> Result<Self, OrtError> {
        let options = Self::new(runtime)?;
        // SAFETY: this value owns the options; both texts end with NUL and are copied.
        runtime.check(unsafe {
            ((*runtime.api()).AddRunConfigEntry)(options.pointer.as_ptr(), key.as_ptr(), value.as_ptr())
        })?;
        Ok(options)
    }

    fn as_ptr(&self) -> *const sys::OrtRunOptions {
        self.pointer.as_ptr()
    }
}

impl Drop for RunOptions {
    fn drop(&mut self) {
        // SAFETY: this value owns the options and frees them once.
        unsafe { ((*self.runtime.api()).ReleaseRunOptions)(self.pointer.as_ptr()) };
    }
}
