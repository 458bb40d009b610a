//! Tensors: a name, a datatype, a shape, and bytes.
use std::borrow::Cow;

use smallvec::SmallVec;

use crate::{Error, Name, TensorData, TensorMemory};

/// Element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned, 8 bits.
    Uint8,
    /// Unsigned, 16 bits.
    Uint16,
    /// Unsigned, 32 bits.
    Uint32,
    /// Unsigned, 64 bits.
    Uint64,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// IEEE half precision.
    Fp16,
    /// The upper half of an IEEE single.
    Bf16,
    /// IEEE single precision.
    Fp32,
    /// IEEE double precision.
    Fp64,
    /// Byte strings. Each consists of a little-endian `u32` length and that many bytes.
    Bytes,
}

impl DataType {
    /// All datatypes, in the order of the schema.
    pub const ALL: [Self; 14] = [
        Self::Bool,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Fp16,
        Self::Fp32,
        Self::Fp64,
        Self::Bytes,
        Self::Bf16,
    ];

    /// Size of one element in bytes, or `None` for [`DataType::Bytes`], whose elements differ in size.
    pub const fn byte_size(self) -> Option<usize> {
        Some(match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => 2,
            Self::Uint32 | Self::Int32 | Self::Fp32 => 4,
            Self::Uint64 | Self::Int64 | Self::Fp64 => 8,
            Self::Bytes => return None,
        })
    }

    /// The name in the protocols, such as `FP32` or `BYTES`.
    pub const fn protocol_name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint16 => "UINT16",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Fp16 => "FP16",
            Self::Bf16 => "BF16",
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
            Self::Bytes => "BYTES",
        }
    }

    /// The datatype with that protocol name; case matters.
    pub fn from_protocol_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|datatype| datatype.protocol_name() == name)
    }

    /// The name in model configurations, such as `TYPE_FP32` or `TYPE_STRING`.
    pub const fn config_name(self) -> &'static str {
        match self {
            Self::Bool => "TYPE_BOOL",
            Self::Uint8 => "TYPE_UINT8",
            Self::Uint16 => "TYPE_UINT16",
            Self::Uint32 => "TYPE_UINT32",
            Self::Uint64 => "TYPE_UINT64",
            Self::Int8 => "TYPE_INT8",
            Self::Int16 => "TYPE_INT16",
            Self::Int32 => "TYPE_INT32",
            Self::Int64 => "TYPE_INT64",
            Self::Fp16 => "TYPE_FP16",
            Self::Bf16 => "TYPE_BF16",
            Self::Fp32 => "TYPE_FP32",
            Self::Fp64 => "TYPE_FP64",
            Self::Bytes => "TYPE_STRING",
        }
    }
}

/// Dimensions, outermost first, including the batch dimension. In configurations -1 means any size. In a request -1
/// is an error, which the check against the configuration reports.
pub type Shape = SmallVec<[i64; 6]>;

/// Why a shape has no element count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShapeError {
    /// A dimension is negative.
    Negative,
    /// The product exceeds 2^63 - 1.
    TooLarge,
}

/// The most dimensions of a shape that a text shows. A client may send far more.
const MOST_SHOWN_DIMS: usize = 32;

/// A shape in texts: `[1,16]`.
pub fn shape_text(shape: &[i64]) -> String {
    let shown = shape.iter().take(MOST_SHOWN_DIMS).map(i64::to_string).collect::<Vec<_>>().join(",");
    match shape.len() {
        0..=MOST_SHOWN_DIMS => format!("[{shown}]"),
        count => format!("[{shown},... ({count} dimensions)]"),
    }
}

/// The number of elements of a tensor with that shape. A shape without dimensions has no elements, as in Triton
/// (`model_config_utils.h`, GetElementCount).
///
/// # Errors
/// A negative dimension, or a product beyond `i64::MAX`.
pub fn element_count(shape: &[i64]) -> Result<i64, ShapeError> {
    if shape.iter().any(|&dim| dim < 0) {
        return Err(ShapeError::Negative);
    }
    let mut dims = shape.iter();
    let Some(&first) = dims.next() else { return Ok(0) };
    // With a zero dimension the count is 0, even if the product of the others overflows.
    if shape.contains(&0) {
        return Ok(0);
    }
    dims.try_fold(first, |count, &dim| count.checked_mul(dim)).ok_or(ShapeError::TooLarge)
}

/// A named tensor, row-major, little-endian.
///
/// This type does not guarantee that bytes and shape agree, because a client may send any data. The check against the
/// model's configuration guarantees it, before a backend sees the tensor.
#[derive(Debug, Clone)]
pub struct Tensor {
    name: Name,
    datatype: DataType,
    shape: Shape,
    memory: TensorMemory,
}

impl Tensor {
    /// As many zeros as the shape has elements. An empty string is four zero bytes.
    pub fn zeros(name: Name, datatype: DataType, shape: Shape) -> Self {
        let bytes = usize::try_from(Self::zeros_size(datatype, &shape)).unwrap_or(0);
        Self::new(name, datatype, shape, vec![0; bytes])
    }

    /// The bytes of a tensor of zeros.
    pub fn zeros_size(datatype: DataType, shape: &[i64]) -> u128 {
        let count = element_count(shape).ok().and_then(|count| u128::try_from(count).ok()).unwrap_or(0);
        count * datatype.byte_size().unwrap_or(4) as u128
    }

    /// Makes a tensor from bytes and their description.
    pub fn new(name: Name, datatype: DataType, shape: Shape, memory: impl Into<TensorMemory>) -> Self {
        Self { name, datatype, shape, memory: memory.into() }
    }

    /// Name in the model configuration.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Element type.
    pub fn datatype(&self) -> DataType {
        self.datatype
    }

    /// Dimensions, the batch dimension included.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// The memory with the bytes.
    pub fn memory(&self) -> &TensorMemory {
        &self.memory
    }

    /// The number of bytes.
    pub fn byte_size(&self) -> usize {
        self.memory.byte_size()
    }

    /// The bytes for a reader on the host: borrowed, or a copy of foreign memory as it is now.
    ///
    /// # Errors
    /// UNSUPPORTED for memory of a device; the error of the region if foreign memory cannot be read any more.
    pub fn host(&self) -> Result<Cow<'_, TensorData>, Error> {
        self.memory.host(&self.name)
    }

    /// Copies the bytes into `target`, which has as many bytes.
    ///
    /// # Errors
    /// As [`Tensor::host`].
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_to(&self, target: &mut [u8]) -> Result<(), Error> {
        self.memory.copy_to(target, &self.name)
    }

    /// Replaces foreign memory by a copy as it is now, so that later readers find the same bytes.
    ///
    /// # Errors
    /// As [`Tensor::host`].
    pub fn bring_to_host(&mut self) -> Result<(), Error> {
        if let Cow::Owned(copy) = self.host()? {
            self.memory = copy.into();
        }
        Ok(())
    }

    /// The same tensor under another name.
    #[must_use]
    pub fn renamed(self, name: Name) -> Self {
        Self { name, ..self }
    }

    /// Keeps the bytes and replaces the shape.
    pub fn reshape(&mut self, shape: Shape) {
        self.shape = shape;
    }

    /// Keeps name, datatype and shape, and replaces the bytes.
    #[must_use]
    pub fn with_memory(self, memory: impl Into<TensorMemory>) -> Self {
        Self { memory: memory.into(), ..self }
    }
}

/// Iterates over the length-prefixed elements of a BYTES tensor. If the bytes end inside an element, the last item is
/// `Err(rest)` with the remaining bytes.
pub fn bytes_elements(data: &[u8]) -> impl Iterator<Item = Result<&[u8], &[u8]>> {
    let mut rest = data;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let whole = rest.split_first_chunk::<4>().and_then(|(prefix, after)| {
            let len = usize::try_from(u32::from_le_bytes(*prefix)).ok()?;
            (len <= after.len()).then(|| after.split_at(len))
        });
        match whole {
            Some((element, after)) => {
                rest = after;
                Some(Ok(element))
            }
            None => Some(Err(std::mem::take(&mut rest))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_count_is_checked() {
        assert_eq!(element_count(&[2, 3]), Ok(6));
        assert_eq!(element_count(&[]), Ok(0));
        assert_eq!(element_count(&[i64::MAX, 2]), Err(ShapeError::TooLarge));
        assert_eq!(element_count(&[i64::MAX, 2, 0]), Ok(0));
        assert_eq!(element_count(&[0, -1]), Err(ShapeError::Negative));
    }

    #[test]
    fn a_cut_bytes_tensor_shows_its_rest() {
        let elements: Vec<_> = bytes_elements(b"\x02\0\0\0ab\0\0\0\0\x03\0\0\0x").collect();
        assert_eq!(elements, [Ok(&b"ab"[..]), Ok(&b""[..]), Err(&b"\x03\0\0\0x"[..])]);
    }
}
