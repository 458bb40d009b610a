//! `TRITONBACKEND_Input`: one input of a request, in the pieces in which the network delivered it.
use std::{
    ffi::{c_char, c_void},
    ptr,
    sync::OnceLock,
};

use smallvec::SmallVec;
use vocabulary::{DeviceRange, MemoryKind, Tensor, TensorMemory};

use crate::{
    handle::{Handle, borrow, guard, put, put_if_wanted, readable},
    types::{
        buffer_attributes::BufferAttributes,
        enums::{CDataType, MemoryType, datatype_number, memory_number},
        error::CError,
    },
};

/// `TRITONBACKEND_Input`.
#[derive(Debug)]
pub struct Input {
    tensor: Tensor,
    /// The attributes of each piece, made when the library asks for them.
    attributes: OnceLock<Box<[BufferAttributes]>>,
}

/// A piece of an input's memory. It is not empty.
#[derive(Clone, Copy)]
struct InputPiece {
    base: *const c_void,
    byte_size: usize,
    kind: MemoryKind,
    id: i64,
}

impl Handle for Input {
    const NAME: &'static str = "TRITONBACKEND_Input";
}

impl Input {
    pub(super) fn new(tensor: Tensor) -> Self {
        Self { tensor, attributes: OnceLock::new() }
    }

    pub(super) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The pieces of the memory in order.
    fn pieces(&self) -> SmallVec<[InputPiece; 1]> {
        let host = |base: *const u8, byte_size| InputPiece {
            base: base.cast(),
            byte_size,
            kind: MemoryKind::Cpu,
            id: 0,
        };
        match self.tensor.memory() {
            TensorMemory::Host(data) => {
                data.pieces().iter().map(|piece| host(piece.as_ptr(), piece.len())).collect()
            }
            TensorMemory::Foreign(memory) if memory.byte_size() == 0 => SmallVec::new(),
            TensorMemory::Foreign(memory) => {
                SmallVec::from_iter([host(memory.address().cast_const(), memory.byte_size())])
            }
            TensorMemory::Device(memory) => {
                let piece = |piece: &DeviceRange| InputPiece {
                    // An address of the device. The host does not read there.
                    base: ptr::without_provenance(piece.address),
                    byte_size: piece.byte_size,
                    kind: memory.kind(),
                    id: memory.id(),
                };
                memory.pieces().iter().map(piece).collect()
            }
        }
    }

    /// A piece of the memory: no bytes of host memory beyond the last piece.
    fn piece(&self, index: u32) -> InputPiece {
        let end = InputPiece { base: ptr::null(), byte_size: 0, kind: MemoryKind::Cpu, id: 0 };
        let piece = usize::try_from(index).ok().and_then(|index| self.pieces().get(index).copied());
        piece.unwrap_or(end)
    }

    /// The attributes of a piece.
    fn attributes(&self, index: u32) -> Option<&BufferAttributes> {
        let of = |piece: &InputPiece| BufferAttributes::of(piece.kind, piece.id, piece.byte_size);
        let all = self.attributes.get_or_init(|| self.pieces().iter().map(of).collect());
        usize::try_from(index).ok().and_then(|index| all.get(index))
    }
}

/// Returns the properties of an input. Each output parameter may be null. The shape includes the batch dimension.
/// Everything belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputProperties(
    input: *mut Input,
    name: *mut *const c_char,
    datatype: *mut CDataType,
    shape: *mut *const i64,
    dims_count: *mut u32,
    byte_size: *mut u64,
    buffer_count: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live input; null or writable.
    guard(|| unsafe {
        let input = borrow(input)?;
        put_if_wanted(name, readable(input.tensor.name()));
        put_if_wanted(datatype, datatype_number(input.tensor.datatype()));
        put_if_wanted(shape, input.tensor.shape().as_ptr());
        put_if_wanted(dims_count, u32::try_from(input.tensor.shape().len()).unwrap_or(u32::MAX));
        put_if_wanted(byte_size, input.tensor.byte_size() as u64);
        put_if_wanted(buffer_count, u32::try_from(input.pieces().len()).unwrap_or(u32::MAX));
        Ok(())
    })
}

/// Returns the properties of an input. The host policy is ignored: all host policies share one copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputPropertiesForHostPolicy(
    input: *mut Input,
    _host_policy_name: *const c_char,
    name: *mut *const c_char,
    datatype: *mut CDataType,
    shape: *mut *const i64,
    dims_count: *mut u32,
    byte_size: *mut u64,
    buffer_count: *mut u32,
) -> *mut CError {
    // SAFETY: the same promises as those of the called function.
    unsafe {
        TRITONBACKEND_InputProperties(input, name, datatype, shape, dims_count, byte_size, buffer_count)
    }
}

/// Returns a piece of an input: null and 0 bytes beyond the last. The memory belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputBuffer(
    input: *mut Input,
    index: u32,
    buffer: *mut *const c_void,
    buffer_byte_size: *mut u64,
    memory_type: *mut MemoryType,
    memory_type_id: *mut i64,
) -> *mut CError {
    // SAFETY: null or a live input; null or writable.
    guard(|| unsafe {
        let piece = borrow(input)?.piece(index);
        put(buffer, piece.base)?;
        put(buffer_byte_size, piece.byte_size as u64)?;
        put_if_wanted(memory_type, memory_number(piece.kind));
        put_if_wanted(memory_type_id, piece.id);
        Ok(())
    })
}

/// Returns a piece of an input. The host policy is ignored: all host policies share one copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputBufferForHostPolicy(
    input: *mut Input,
    _host_policy_name: *const c_char,
    index: u32,
    buffer: *mut *const c_void,
    buffer_byte_size: *mut u64,
    memory_type: *mut MemoryType,
    memory_type_id: *mut i64,
) -> *mut CError {
    // SAFETY: the same promises as those of the called function.
    unsafe { TRITONBACKEND_InputBuffer(input, index, buffer, buffer_byte_size, memory_type, memory_type_id) }
}

/// Returns a piece of an input and its attributes: null beyond the last. Both belong to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputBufferAttributes(
    input: *mut Input,
    index: u32,
    buffer: *mut *const c_void,
    buffer_attributes: *mut *mut BufferAttributes,
) -> *mut CError {
    // SAFETY: null or a live input; null or writable.
    guard(|| unsafe {
        let input = borrow(input)?;
        put(buffer, input.piece(index).base)?;
        let attributes = input.attributes(index).map_or(ptr::null(), ptr::from_ref);
        put(buffer_attributes, attributes.cast_mut())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vocabulary::{DataType, DeviceMemory, ForeignMemory};

    use super::*;

    fn input(byte_size: i64, memory: impl Into<TensorMemory>) -> Input {
        Input::new(Tensor::new("IN".into(), DataType::Uint8, [byte_size][..].into(), memory))
    }

    /// What the library is told of a piece: address, size, kind and number of the memory.
    fn piece(input: &Input, index: u32) -> (usize, u64, MemoryType, i64) {
        let input = ptr::from_ref(input).cast_mut();
        let (mut base, mut size, mut kind, mut id) = (ptr::null(), 9, 9, 9);
        // SAFETY: a live input, and places of this function.
        let error =
            unsafe { TRITONBACKEND_InputBuffer(input, index, &mut base, &mut size, &mut kind, &mut id) };
        assert!(error.is_null());
        (base.addr(), size, kind, id)
    }

    #[test]
    fn a_library_learns_which_memory_a_piece_is_in() {
        let pieces = [(64, 3), (96, 2)].map(|(address, byte_size)| DeviceRange { address, byte_size });
        let on_device = input(5, DeviceMemory::new(1, pieces, Arc::new(())));
        assert_eq!(
            [0, 1, 2].map(|index| piece(&on_device, index)),
            [(64, 3, 2, 1), (96, 2, 2, 1), (0, 0, 0, 0)]
        );
        let attributes = on_device.attributes(1).unwrap();
        assert_eq!((attributes.byte_size(), attributes.memory()), (2, (2, 1)));

        let foreign = ForeignMemory::copied_from(&vec![1, 2, 3].into());
        let in_place = input(3, foreign.clone());
        assert_eq!(piece(&in_place, 0), (foreign.address().addr(), 3, 0, 0));
        assert_eq!(piece(&in_place, 1), (0, 0, 0, 0));
        assert_eq!(piece(&input(0, ForeignMemory::zeroed(0).unwrap()), 0), (0, 0, 0, 0));
    }
}
