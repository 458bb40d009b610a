//! The inputs and outputs of a graph, as a library describes them.
use std::borrow::Cow;

use vocabulary::{DataType, Error, Name, Shape};

/// Inputs and outputs of a graph, in its own order.
///
/// A *slot* is a position: of an input among [`Signature::feeds`], of an output among [`Signature::outputs`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signature {
    /// Inputs that every run needs.
    pub inputs: Vec<GraphValue>,
    /// Inputs that have a default: a run may set them.
    pub overridable: Vec<GraphValue>,
    /// Outputs that a run can compute.
    pub outputs: Vec<GraphValue>,
}

/// One input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphValue {
    /// Its name in the graph.
    pub name: Name,
    /// Its type.
    pub kind: ValueKind,
}

/// The type of an input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueKind {
    /// A tensor; -1 stands for an open dimension.
    Tensor(ElementType, Shape),
    /// Something that the server cannot serve.
    Other(OtherKind),
}

/// A type that is no tensor, in the words of its library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherKind {
    /// The library's name for it, such as `ONNX_TYPE_SEQUENCE`.
    pub name: Cow<'static, str>,
    /// The library's word for such names, such as `ONNX Type`.
    pub noun: &'static str,
    /// The library's name for tensors, such as `ONNX_TYPE_TENSOR`.
    pub tensor: &'static str,
}

/// The type of the elements of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementType {
    datatype: Option<DataType>,
    library_name: Cow<'static, str>,
}

impl Signature {
    /// The inputs that a run can have, the required ones first.
    pub fn feeds(&self) -> impl Iterator<Item = &GraphValue> + Clone {
        self.inputs.iter().chain(&self.overridable)
    }

    /// Requires that all inputs and outputs are tensors. The server can serve no other values.
    ///
    /// # Errors
    /// UNSUPPORTED for the first input or output that is not a tensor.
    pub(crate) fn require_tensors(&self) -> Result<(), Error> {
        for value in self.inputs.iter().chain(&self.outputs) {
            if let ValueKind::Other(OtherKind { name, noun, tensor }) = &value.kind {
                return Err(Error::unsupported(format!(
                    "Unsupported {noun} '{name}' for I/O '{}', expected '{tensor}'.",
                    value.name
                )));
            }
        }
        Ok(())
    }
}

impl GraphValue {
    /// An input or output that is a tensor.
    pub fn tensor(name: &str, element: ElementType, dims: &[i64]) -> Self {
        Self { name: Name::new(name), kind: ValueKind::Tensor(element, dims.into()) }
    }
}

impl ElementType {
    /// A type of that datatype, which the library calls by that name. `None`: the protocols lack the type.
    pub fn new(datatype: Option<DataType>, library_name: impl Into<Cow<'static, str>>) -> Self {
        Self { datatype, library_name: library_name.into() }
    }

    /// The datatype; `None` if the protocols lack the type.
    pub fn datatype(&self) -> Option<DataType> {
        self.datatype
    }

    /// The protocol's name, or the library's name for a type that the protocols lack.
    pub fn name(&self) -> &str {
        match self.datatype {
            Some(datatype) => datatype.protocol_name(),
            None => &self.library_name,
        }
    }

    /// The library's own name.
    pub fn library_name(&self) -> &str {
        &self.library_name
    }
}

/// A type that the library calls as the protocols do.
impl From<DataType> for ElementType {
    fn from(datatype: DataType) -> Self {
        Self::new(Some(datatype), datatype.protocol_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_outside_the_protocols_still_has_a_name() {
        let complex = ElementType::new(None, "COMPLEX64");
        assert_eq!(
            (complex.datatype(), complex.name(), complex.library_name()),
            (None, "COMPLEX64", "COMPLEX64")
        );
        let float = ElementType::new(Some(DataType::Fp32), "FLOAT");
        assert_eq!(
            (float.datatype(), float.name(), float.library_name()),
            (Some(DataType::Fp32), "FP32", "FLOAT")
        );
        assert_eq!(ElementType::from(DataType::Bytes).library_name(), "BYTES");
    }
}
