//! Enumerations as C passes them, and their names.
//!
//! C may pass any number. So the functions take numbers and convert them into Rust enumerations.
use std::ffi::{CStr, c_char};

use vocabulary::{DataType, Error, MemoryKind};

/// `TRITONSERVER_DataType`.
pub type CDataType = u32;
/// `TRITONSERVER_MemoryType`.
pub type MemoryType = u32;
/// `TRITONSERVER_ParameterType`.
pub type ParameterType = u32;
/// `TRITONSERVER_InstanceGroupKind`.
pub type InstanceGroupKind = u32;

/// No known datatype.
pub const TYPE_INVALID: CDataType = 0;
/// Ordinary host memory.
pub const MEMORY_CPU: MemoryType = 0;
/// Host memory that devices may read.
pub const MEMORY_CPU_PINNED: MemoryType = 1;
/// Device memory.
pub const MEMORY_GPU: MemoryType = 2;
/// `TRITONSERVER_PARAMETER_STRING`.
pub const PARAMETER_STRING: ParameterType = 0;
/// `TRITONSERVER_PARAMETER_INT`.
pub const PARAMETER_INT: ParameterType = 1;
/// `TRITONSERVER_PARAMETER_BOOL`.
pub const PARAMETER_BOOL: ParameterType = 2;
/// `TRITONSERVER_PARAMETER_DOUBLE`.
pub const PARAMETER_DOUBLE: ParameterType = 3;
/// `TRITONSERVER_PARAMETER_BYTES`.
pub const PARAMETER_BYTES: ParameterType = 4;
/// `TRITONSERVER_INSTANCEGROUPKIND_AUTO`.
pub const KIND_AUTO: InstanceGroupKind = 0;
/// `TRITONSERVER_INSTANCEGROUPKIND_CPU`.
pub const KIND_CPU: InstanceGroupKind = 1;
/// `TRITONSERVER_INSTANCEGROUPKIND_GPU`.
pub const KIND_GPU: InstanceGroupKind = 2;
/// `TRITONSERVER_INSTANCEGROUPKIND_MODEL`.
pub const KIND_MODEL: InstanceGroupKind = 3;

/// In the order of the numbers from 1.
const DATA_TYPES: [(DataType, &CStr); 14] = [
    (DataType::Bool, c"BOOL"),
    (DataType::Uint8, c"UINT8"),
    (DataType::Uint16, c"UINT16"),
    (DataType::Uint32, c"UINT32"),
    (DataType::Uint64, c"UINT64"),
    (DataType::Int8, c"INT8"),
    (DataType::Int16, c"INT16"),
    (DataType::Int32, c"INT32"),
    (DataType::Int64, c"INT64"),
    (DataType::Fp16, c"FP16"),
    (DataType::Fp32, c"FP32"),
    (DataType::Fp64, c"FP64"),
    (DataType::Bytes, c"BYTES"),
    (DataType::Bf16, c"BF16"),
];

/// The kind of memory of a `TRITONSERVER_MemoryType`.
///
/// # Errors
/// INVALID_ARG for an unknown number.
pub fn memory_kind(number: MemoryType) -> Result<MemoryKind, Error> {
    match number {
        MEMORY_CPU => Ok(MemoryKind::Cpu),
        MEMORY_CPU_PINNED => Ok(MemoryKind::CpuPinned),
        MEMORY_GPU => Ok(MemoryKind::Gpu),
        other => Err(Error::invalid(format!("there is no memory type {other}"))),
    }
}

/// The `TRITONSERVER_MemoryType` of a kind of memory.
pub fn memory_number(kind: MemoryKind) -> MemoryType {
    match kind {
        MemoryKind::Cpu => MEMORY_CPU,
        MemoryKind::CpuPinned => MEMORY_CPU_PINNED,
        MemoryKind::Gpu => MEMORY_GPU,
    }
}

/// The number of a datatype in C.
pub fn datatype_number(datatype: DataType) -> CDataType {
    let index = DATA_TYPES.iter().position(|(known, _)| *known == datatype);
    index.and_then(|index| u32::try_from(index + 1).ok()).unwrap_or(TYPE_INVALID)
}

/// The datatype of a number in C.
pub fn datatype(number: CDataType) -> Option<DataType> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    DATA_TYPES.get(index).map(|(datatype, _)| *datatype)
}

fn name(names: &[&'static CStr], number: u32, otherwise: &'static CStr) -> *const c_char {
    let index = usize::try_from(number).ok();
    index.and_then(|index| names.get(index)).unwrap_or(&otherwise).as_ptr()
}

/// Returns the name of a datatype, such as `FP32`; `<invalid>` for other numbers. Never null; static.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_DataTypeString(datatype: CDataType) -> *const c_char {
    let index = usize::try_from(datatype).ok().and_then(|number| number.checked_sub(1));
    index.and_then(|index| DATA_TYPES.get(index)).map_or(c"<invalid>", |(_, name)| name).as_ptr()
}

/// Returns the datatype of a name such as `FP32`; 0 (invalid) for others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_StringToDataType(name: *const c_char) -> CDataType {
    // SAFETY: a text or null.
    let name = unsafe { crate::handle::text(name) }.ok();
    name.and_then(DataType::from_protocol_name).map_or(TYPE_INVALID, datatype_number)
}

/// Returns the bytes of one element; 0 for BYTES and for other numbers.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_DataTypeByteSize(number: CDataType) -> u32 {
    let size = datatype(number).and_then(DataType::byte_size).unwrap_or(0);
    u32::try_from(size).unwrap_or(0)
}

/// Returns the name of a memory type. Never null; static.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_MemoryTypeString(memory_type: MemoryType) -> *const c_char {
    name(&[c"CPU", c"CPU_PINNED", c"GPU"], memory_type, c"<invalid>")
}

/// Returns the name of a parameter's type. Never null; static.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_ParameterTypeString(parameter_type: ParameterType) -> *const c_char {
    name(&[c"STRING", c"INT", c"BOOL", c"DOUBLE", c"BYTES"], parameter_type, c"<invalid>")
}

/// Returns the name of an instance group's kind. Never null; static.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_InstanceGroupKindString(kind: InstanceGroupKind) -> *const c_char {
    name(&[c"AUTO", c"CPU", c"GPU", c"MODEL"], kind, c"<invalid>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datatype_has_a_number_and_a_name() {
        for datatype_ in DataType::ALL {
            let number = datatype_number(datatype_);
            assert_eq!(datatype(number), Some(datatype_));
            let name = TRITONSERVER_DataTypeString(number);
            // SAFETY: a static text.
            assert_eq!(unsafe { CStr::from_ptr(name) }.to_str().unwrap(), datatype_.protocol_name());
            // SAFETY: the same.
            assert_eq!(unsafe { TRITONSERVER_StringToDataType(name) }, number);
        }
        assert_eq!((datatype(0), datatype(15)), (None, None));
        assert_eq!((TRITONSERVER_DataTypeByteSize(13), TRITONSERVER_DataTypeByteSize(14)), (0, 2));
    }

    #[test]
    fn a_number_out_of_range_has_a_name_too() {
        // SAFETY: a static text.
        let read = |name| unsafe { CStr::from_ptr(name) }.to_str().unwrap();
        assert_eq!(read(TRITONSERVER_MemoryTypeString(2)), "GPU");
        assert_eq!(read(TRITONSERVER_MemoryTypeString(9)), "<invalid>");
        assert_eq!(read(TRITONSERVER_InstanceGroupKindString(u32::MAX)), "<invalid>");
    }
}
