//! Tensors that come out of a run.
use std::{
    ops::Range,
    ptr::{self, NonNull},
    sync::Arc,
};

use native_backend::{ElementType, byte_count};
use ort_sys as sys;
use vocabulary::{DataType, Shape};

use super::{OrtError, RunInput, Session, runtime::not_null, signature::element_and_shape};

/// An output of a run, in memory of its session's allocator.
///
/// Invariant: no code writes to it any more, so any thread may read it. The memory is freed with this value.
pub(crate) struct OutputValue {
    pointer: NonNull<sys::OrtValue>,
    datatype: DataType,
    shape: Shape,
    data: OutputElements,
    /// The order of the fields does not matter: `drop` frees the value before any field is dropped.
    session: Arc<Session>,
}

enum OutputElements {
    /// The address and length of memory that the runtime owns.
    Foreign(NonNull<u8>, usize),
    /// A copy of an input that the graph returns as an output.
    Copied(Box<[u8]>),
    /// The number of strings. The runtime stores each string separately.
    Strings(usize),
}

// SAFETY: the memory is read-only from now on, and the allocators and reference counts may be released to from
// any thread.
unsafe impl Send for OutputValue {}
// SAFETY: as above; reading strings does not change them.
unsafe impl Sync for OutputValue {}

impl OutputValue {
    /// Takes ownership of the value that a run has left at `pointer`.
    ///
    /// A graph may return an input as an output. The output is then the memory of the input, which the caller will
    /// reuse, so its bytes are copied.
    ///
    /// # Safety
    /// `pointer` is a live value of the session's runtime without another owner; `inputs` are those of its run.
    pub(super) unsafe fn take(
        pointer: NonNull<sys::OrtValue>,
        session: &Arc<Session>,
        inputs: &[RunInput<'_>],
    ) -> Result<Self, OrtError> {
        let mut output = Self {
            pointer,
            datatype: DataType::Bytes,
            shape: Shape::new(),
            data: OutputElements::Strings(0),
            session: session.clone(),
        };
        // From this line on, dropping `output` frees the value.
        let element = output.read_shape()?;
        let Some(datatype) = element.datatype() else {
            return Err(OrtError::invalid_argument(format!(
                "an output has the unsupported type {}",
                ElementType::from(element).name()
            )));
        };
        output.datatype = datatype;
        if datatype == DataType::Bytes {
            let count = output
                .shape
                .iter()
                .try_fold(1, |count: usize, &dim| count.checked_mul(usize::try_from(dim).ok()?));
            output.data = OutputElements::Strings(count.ok_or_else(too_large)?);
            return Ok(output);
        }
        let len = byte_count(datatype, &output.shape).ok_or_else(too_large)?;
        if len == 0 {
            output.data = OutputElements::Foreign(NonNull::dangling(), 0);
            return Ok(output);
        }
        let (runtime, mut data) = (session.runtime(), ptr::null_mut());
        // SAFETY: the value lives and is a tensor of fixed-size elements; the address stays its own.
        runtime.check(unsafe { ((*runtime.api()).GetTensorMutableData)(pointer.as_ptr(), &raw mut data) })?;
        let data = not_null(data.cast::<u8>(), "data")?;
        output.data = if inputs.iter().any(|input| input.tensor.lends(data.addr().get())) {
            // SAFETY: the input's bytes are borrowed during the run and are as many as the output's shape needs.
            OutputElements::Copied(unsafe { std::slice::from_raw_parts(data.as_ptr(), len) }.into())
        } else {
            OutputElements::Foreign(data, len)
        };
        Ok(output)
    }

    /// Element type.
    pub(crate) fn datatype(&self) -> DataType {
        self.datatype
    }

    /// Dimensions; none for a scalar.
    pub(crate) fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Appends the strings at those positions, each after its length, in the form of the protocols.
    ///
    /// # Errors
    /// Positions beyond the shape, a tensor of another type, and a string of 4 GiB or more.
    pub(crate) fn append_strings(
        &self,
        positions: Range<usize>,
        target: &mut Vec<u8>,
    ) -> Result<(), OrtError> {
        let OutputElements::Strings(count) = self.data else {
            return Err(OrtError::invalid_argument("an output of numbers has no strings"));
        };
        if positions.end > count {
            return Err(OrtError::invalid_argument(format!("string {} of {count}", positions.end)));
        }
        let runtime = self.session.runtime();
        for index in positions {
            let mut len = 0;
            // SAFETY: the value lives and holds strings, `index` is below their count.
            runtime.check(unsafe {
                ((*runtime.api()).GetStringTensorElementLength)(self.pointer.as_ptr(), index, &raw mut len)
            })?;
            let prefix = u32::try_from(len).map_err(|_| {
                OrtError::invalid_argument("a string of 4 GiB or more has no place in a tensor")
            })?;
            target.extend_from_slice(&prefix.to_le_bytes());
            target.reserve(len);
            let end = target.len();
            // SAFETY: as above; `len` bytes after `end` are allocated, and the call writes every one of them or fails.
            unsafe {
                let place = target.as_mut_ptr().add(end);
                let status = ((*runtime.api()).GetStringTensorElement)(
                    self.pointer.as_ptr(),
                    len,
                    index,
                    place.cast(),
                );
                runtime.check(status)?;
                target.set_len(end + len);
            }
        }
        Ok(())
    }

    /// Bytes of all strings with their lengths, as [`OutputValue::append_strings`] writes them.
    pub(crate) fn strings_len(&self) -> Result<usize, OrtError> {
        let OutputElements::Strings(count) = self.data else { return Ok(0) };
        let (runtime, mut len) = (self.session.runtime(), 0);
        // SAFETY: the value lives and holds strings.
        runtime.check(unsafe {
            ((*runtime.api()).GetStringTensorDataLength)(self.pointer.as_ptr(), &raw mut len)
        })?;
        Ok(len + 4 * count)
    }

    /// Whether a run of that session made the value, and the value itself holds the bytes.
    pub(super) fn comes_from(&self, session: &Arc<Session>) -> bool {
        Arc::ptr_eq(&self.session, session) && !matches!(self.data, OutputElements::Copied(_))
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut sys::OrtValue {
        self.pointer.as_ptr()
    }

    fn read_shape(&mut self) -> Result<super::Element, OrtError> {
        let (runtime, mut tensor) = (self.session.runtime(), ptr::null_mut());
        // SAFETY: the value lives; the call fails for a value that is not a tensor.
        runtime.check(unsafe {
            ((*runtime.api()).GetTensorTypeAndShape)(self.pointer.as_ptr(), &raw mut tensor)
        })?;
        let tensor = not_null(tensor, "tensor type")?;
        let read = element_and_shape(runtime, tensor);
        // SAFETY: this function owns it and frees it once.
        unsafe { ((*runtime.api()).ReleaseTensorTypeAndShapeInfo)(tensor.as_ptr()) };
        let (element, shape) = read?;
        self.shape = shape;
        Ok(element)
    }
}

/// The bytes of an output of fixed-size elements; empty for strings.
impl AsRef<[u8]> for OutputValue {
    fn as_ref(&self) -> &[u8] {
        match &self.data {
            // SAFETY: the runtime's tensor has that many initialised bytes, and no code writes them while `self` lives.
            OutputElements::Foreign(data, len) => unsafe { std::slice::from_raw_parts(data.as_ptr(), *len) },
            OutputElements::Copied(bytes) => bytes,
            OutputElements::Strings(_) => &[],
        }
    }
}

impl Drop for OutputValue {
    fn drop(&mut self) {
        // SAFETY: this value owns it and frees it once; the session whose allocator receives the memory is still alive.
        unsafe { ((*self.session.runtime().api()).ReleaseValue)(self.pointer.as_ptr()) };
    }
}

fn too_large() -> OrtError {
    OrtError::invalid_argument("an output is larger than memory")
}
