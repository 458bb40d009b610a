//! One run of a session: its settings, and from its inputs to its outputs.
use std::{
    ffi::{CStr, c_int},
    ptr::{self, NonNull},
    sync::Arc,
};

use ort_sys as sys;
use smallvec::SmallVec;

use super::{
    Feed, OrtError, OutputPlace, OutputValue, Runtime, Session, process_allocator::counted, runtime::not_null,
};

impl Session {
    /// Computes the outputs at those ascending positions of [`Signature::outputs`]. Blocks.
    ///
    /// # Errors
    /// The errors of the runtime, or positions beyond the signature. The session stays usable.
    pub(crate) fn run(
        self: &Arc<Self>,
        options: Option<&RunOptions>,
        feeds: &[Feed<'_>],
        wanted: &[usize],
    ) -> Result<SmallVec<[OutputValue; 4]>, OrtError> {
        let places: SmallVec<[Option<OutputPlace<'_>>; 4]> = wanted.iter().map(|_| None).collect();
        self.run_to_places(options, feeds, wanted, &places)
    }

    /// As [`Session::run`], but writes outputs to the given places. They have the shapes that the outputs will have.
    /// Returns the outputs without a place, in their order.
    ///
    /// # Errors
    /// As [`Session::run`]; also if an output has another shape than its place. The places may have been written then.
    pub(crate) fn run_to_places(
        self: &Arc<Self>,
        options: Option<&RunOptions>,
        feeds: &[Feed<'_>],
        wanted: &[usize],
        places: &[Option<OutputPlace<'_>>],
    ) -> Result<SmallVec<[OutputValue; 4]>, OrtError> {
        let ours = |place: &OutputPlace<'_>| place.belongs_to(self.runtime());
        if places.len() != wanted.len() || !places.iter().flatten().all(ours) {
            return Err(OrtError::invalid_argument("the places belong to another run"));
        }
        let mut pointers: SmallVec<[*mut sys::OrtValue; 8]> = places
            .iter()
            .map(|place| place.as_ref().map_or(ptr::null_mut(), OutputPlace::as_mut_ptr))
            .collect();
        let result = self.run_into(options, feeds, wanted, &mut pointers);
        let made = pointers.into_iter().zip(places).filter(|(_, place)| place.is_none());
        // Takes ownership of all outputs of the run before any early return.
        let outputs: SmallVec<[Result<OutputValue, OrtError>; 4]> = made
            .map(|(pointer, _)| {
                let pointer = not_null(pointer, "output")?;
                // SAFETY: the run has left a value that this function now owns, and these were its inputs.
                unsafe { OutputValue::take(pointer, self, feeds) }
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
        feeds: &[Feed<'_>],
        wanted: &[usize],
        outputs: &mut [OutputValue],
    ) -> Result<(), OrtError> {
        if outputs.len() != wanted.len() || !outputs.iter().all(|output| output.comes_from(self)) {
            return Err(OrtError::invalid_argument("the outputs belong to another run"));
        }
        let mut pointers: SmallVec<[*mut sys::OrtValue; 8]> =
            outputs.iter_mut().map(OutputValue::as_mut_ptr).collect();
        self.run_into(None, feeds, wanted, &mut pointers)
    }

    fn run_into(
        &self,
        options: Option<&RunOptions>,
        feeds: &[Feed<'_>],
        wanted: &[usize],
        outputs: &mut [*mut sys::OrtValue],
    ) -> Result<(), OrtError> {
        debug_assert_eq!(wanted.len(), outputs.len());
        // A repeated output would have two owners.
        if !wanted.is_sorted_by(|one, next| one < next) {
            return Err(OrtError::invalid_argument("outputs are asked for in ascending order"));
        }
        if !feeds.iter().all(|feed| feed.value.belongs_to(self.runtime())) {
            return Err(OrtError::invalid_argument("a tensor of another runtime"));
        }
        let input_symbol = |slot: usize| {
            let inputs = &self.signature().inputs;
            inputs.get(slot).or_else(|| self.signature().overridable.get(slot - inputs.len()))
        };
        let beyond = || OrtError::invalid_argument("a position beyond the signature");
        let inputs: SmallVec<[*const sys::OrtValue; 8]> =
            feeds.iter().map(|feed| feed.value.as_ptr()).collect();
        let input_names = feeds
            .iter()
            .map(|feed| input_symbol(feed.slot).map(|slot| slot.symbol.as_ptr()).ok_or_else(beyond))
            .collect::<Result<SmallVec<[_; 8]>, _>>()?;
        let output_names = wanted
            .iter()
            .map(|&slot| {
                self.signature().outputs.get(slot).map(|slot| slot.symbol.as_ptr()).ok_or_else(beyond)
            })
            .collect::<Result<SmallVec<[_; 8]>, _>>()?;
        let options = options.map_or(ptr::null(), RunOptions::as_ptr);
        // SAFETY: session and options live; names end with NUL and live in the signature; all values live and belong to
        // this runtime; the four arrays are as long as the argument says. Places that are null receive new values.
        let status = counted(self.held_bytes(), || unsafe {
            ((*self.runtime().api()).Run)(
                self.as_ptr(),
                options,
                input_names.as_ptr(),
                inputs.as_ptr(),
                inputs.len(),
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
