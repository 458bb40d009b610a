//! Named values of a request or a response, besides its tensors.
use bytes::Bytes;

use crate::Name;

/// Named values of a request or a response, in the given order.
pub type Parameters = Vec<(Name, Parameter)>;

/// One value of [`Parameters`].
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    /// Text.
    String(Name),
    /// Signed integer.
    Int(i64),
    /// Truth value.
    Bool(bool),
    /// Floating point.
    Double(f64),
    /// Opaque bytes. No protocol supports them in responses.
    Bytes(Bytes),
}

impl Parameter {
    /// Bytes of memory that the value uses.
    pub fn byte_size(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::String(text) => text.len(),
                Self::Bytes(bytes) => bytes.len(),
                Self::Int(_) | Self::Bool(_) | Self::Double(_) => 0,
            }
    }
}
