//! Element types in files of the library's own format.
use vocabulary::DataType;

/// The names of an element type in the library's own format: of a constant or an input, and of what passes between
/// operators.
pub(crate) fn element_names(datatype: DataType) -> (&'static str, &'static str) {
    match datatype {
        DataType::Bool => ("boolean", "BOOL"),
        DataType::Uint8 => ("u8", "U8"),
        DataType::Uint16 => ("u16", "U16"),
        DataType::Uint32 => ("u32", "U32"),
        DataType::Uint64 => ("u64", "U64"),
        DataType::Int8 => ("i8", "I8"),
        DataType::Int16 => ("i16", "I16"),
        DataType::Int32 => ("i32", "I32"),
        DataType::Int64 => ("i64", "I64"),
        DataType::Fp16 => ("f16", "FP16"),
        DataType::Bf16 => ("bf16", "BF16"),
        DataType::Fp32 => ("f32", "FP32"),
        DataType::Fp64 => ("f64", "FP64"),
        DataType::Bytes => ("string", "STRING"),
    }
}

/// The datatype of an element type that a file names, of a constant or an input or of what passes between operators.
pub(crate) fn datatype_of(name: &str) -> Option<DataType> {
    DataType::ALL.into_iter().find(|&datatype| {
        let (element, precision) = element_names(datatype);
        [element, precision].contains(&name)
    })
}
