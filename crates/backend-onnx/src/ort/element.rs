//! Element types by the numbers of the runtime's C interface, and their datatypes.
use std::borrow::Cow;

use native_backend::ElementType;
use ort_sys::ONNXTensorElementDataType as Sys;
use vocabulary::DataType;

/// An element type by the runtime's number. The number may be unknown to this crate and to `ort-sys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Element(pub(super) i32);

impl Element {
    /// The type of that number in a file. The runtime's interface has the same numbers.
    pub(crate) fn of_number(number: i32) -> Self {
        Self(number)
    }

    /// The runtime's type for a datatype. Every datatype has one.
    pub(crate) fn of(datatype: DataType) -> Self {
        Self(Self::sys(datatype) as i32)
    }

    /// As [`Element::of`], for calls of the runtime.
    pub(super) fn sys(datatype: DataType) -> Sys {
        match datatype {
            DataType::Bool => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
            DataType::Uint8 => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
            DataType::Uint16 => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
            DataType::Uint32 => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
            DataType::Uint64 => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
            DataType::Int8 => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
            DataType::Int16 => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
            DataType::Int32 => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
            DataType::Int64 => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
            DataType::Fp16 => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
            DataType::Bf16 => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
            DataType::Fp32 => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
            DataType::Fp64 => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
            DataType::Bytes => Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING,
        }
    }

    /// The datatype; `None` if the element type has none.
    pub(crate) fn datatype(self) -> Option<DataType> {
        DataType::ALL.into_iter().find(|&datatype| Self::of(datatype) == self)
    }

    /// The runtime's own name.
    fn runtime_name(self) -> Cow<'static, str> {
        const OTHERS: [(Sys, &str); 13] = [
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED, "UNDEFINED"),
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_COMPLEX64, "COMPLEX64"),
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_COMPLEX128, "COMPLEX128"),
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FN, "FLOAT8E4M3FN"),
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FNUZ, "FLOAT8E4M3FNUZ"),
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2, "FLOAT8E5M2"),
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2FNUZ, "FLOAT8E5M2FNUZ"),
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E8M0, "FLOAT8E8M0"),
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT4E2M1, "FLOAT4E2M1"),
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4, "UINT4"),
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4, "INT4"),
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT2, "UINT2"),
            (Sys::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT2, "INT2"),
        ];
        let own = match self.datatype() {
            Some(DataType::Fp16) => "FLOAT16",
            Some(DataType::Bf16) => "BFLOAT16",
            Some(DataType::Fp32) => "FLOAT",
            Some(DataType::Fp64) => "DOUBLE",
            Some(DataType::Bytes) => "STRING",
            Some(datatype) => datatype.protocol_name(),
            None => match OTHERS.into_iter().find(|(other, _)| *other as i32 == self.0) {
                Some((_, name)) => name,
                None => return format!("ONNX_{}", self.0).into(),
            },
        };
        own.into()
    }
}

impl From<Element> for ElementType {
    fn from(element: Element) -> Self {
        Self::new(element.datatype(), element.runtime_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datatype_comes_back_from_its_element() {
        for datatype in DataType::ALL {
            assert_eq!(Element::of(datatype).datatype(), Some(datatype));
        }
    }

    #[test]
    fn a_type_outside_the_protocols_still_has_a_name() {
        let named = |element: Element| ElementType::from(element);
        assert_eq!(named(Element(14)).name(), "COMPLEX64");
        assert_eq!(named(Element(14)).datatype(), None);
        assert_eq!(named(Element(77)).name(), "ONNX_77");
        assert_eq!(named(Element::of(DataType::Bytes)).name(), "BYTES");
        assert_eq!(named(Element::of(DataType::Bytes)).library_name(), "STRING");
        assert_eq!(named(Element::of(DataType::Int64)).library_name(), "INT64");
    }
}
