//! `TRITONBACKEND_State`: a state that a model stores for its sequence.
use std::{ffi::c_void, ptr};

use inference::{backend::SequenceState, lock::Mutex};
use vocabulary::{DataType, Error, ForeignMemory, Name, Shape, Tensor, TensorMemory};

use super::memory::zeroed;
use crate::{
    handle::{Handle, borrow, guard, put, put_if_wanted},
    types::{
        buffer_attributes::BufferAttributes,
        enums::{MEMORY_CPU, MemoryType},
        error::CError,
    },
};

/// `TRITONBACKEND_State`: the next value of one state, in memory that the backend writes.
#[derive(Debug)]
pub struct State {
    memory_of_sequence: SequenceState,
    output: Name,
    datatype: DataType,
    shape: Shape,
    memory: Mutex<StateMemory>,
    attributes: BufferAttributes,
}

/// Where the library writes a state.
#[derive(Debug)]
enum StateMemory {
    /// Beside the state's input.
    Apart(Vec<u8>),
    /// Where the state's input lies, or will lie if the size has changed.
    InPlace(ForeignMemory),
}

impl Handle for State {
    const NAME: &'static str = "TRITONBACKEND_State";
}

impl State {
    /// A new value of the state with that output, without memory.
    pub(super) fn new(
        memory_of_sequence: SequenceState,
        output: &str,
        datatype: DataType,
        shape: &[i64],
    ) -> Self {
        Self {
            memory: Mutex::new(match memory_of_sequence.in_place_memory(output) {
                Some(buffer) => StateMemory::InPlace(buffer),
                None => StateMemory::Apart(Vec::new()),
            }),
            memory_of_sequence,
            output: output.into(),
            datatype,
            shape: shape.into(),
            attributes: BufferAttributes::default(),
        }
    }

    /// Memory of that size; the same as before if the size is. In place, that is the memory of the state's input.
    fn allocate(&self, byte_size: u64) -> Result<*mut c_void, Error> {
        let no_room = || {
            Error::unavailable(format!("failed to allocate {byte_size} bytes for state '{}'", self.output))
        };
        let len = usize::try_from(byte_size).map_err(|_| no_room())?;
        let mut memory = self.memory.lock();
        let address = match &mut *memory {
            StateMemory::Apart(buffer) => {
                if buffer.len() != len {
                    *buffer = zeroed(len).ok_or_else(no_room)?;
                }
                buffer.as_mut_ptr()
            }
            StateMemory::InPlace(buffer) => {
                if buffer.byte_size() != len {
                    *buffer = ForeignMemory::zeroed(len).ok_or_else(no_room)?;
                }
                buffer.address()
            }
        };
        self.attributes.set_byte_size(len);
        Ok(address.cast())
    }

    /// Stores the written value in the sequence, without copying it.
    fn update(&self) -> Result<(), Error> {
        let memory: TensorMemory = match &mut *self.memory.lock() {
            StateMemory::Apart(buffer) => {
                self.attributes.set_byte_size(0);
                std::mem::take(buffer).into()
            }
            StateMemory::InPlace(buffer) => buffer.clone().into(),
        };
        let value = Tensor::new(self.output.clone(), self.datatype, self.shape.clone(), memory);
        self.memory_of_sequence.update(&self.output, &value)
    }
}

/// Gives memory for a state, to be written before the update; it belongs to the state, until the update. It is host
/// memory whatever was preferred. With `use_same_buffer_for_input_output` it is the memory of the state's input, if that
/// has the size, and what is written is remembered without an update.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_StateBuffer(
    state: *mut State,
    buffer: *mut *mut c_void,
    buffer_byte_size: u64,
    memory_type: *mut MemoryType,
    memory_type_id: *mut i64,
) -> *mut CError {
    // SAFETY: null or a live state; null or writable.
    guard(|| unsafe {
        put(buffer, borrow(state)?.allocate(buffer_byte_size)?)?;
        put_if_wanted(memory_type, MEMORY_CPU);
        put_if_wanted(memory_type_id, 0);
        Ok(())
    })
}

/// Returns the attributes of a state's memory. They belong to the state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_StateBufferAttributes(
    state: *mut State,
    buffer_attributes: *mut *mut BufferAttributes,
) -> *mut CError {
    // SAFETY: null or a live state; null or writable.
    guard(|| unsafe { put(buffer_attributes, ptr::from_ref(&borrow(state)?.attributes).cast_mut()) })
}

/// Stores the written value. The sequence's next request reads it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_StateUpdate(state: *mut State) -> *mut CError {
    // SAFETY: null or a live state.
    guard(|| unsafe { borrow(state)?.update() })
}
