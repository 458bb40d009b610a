//! What a model answers: output tensors and parameters.
use crate::{Error, Parameter, Parameters, Tensor};

/// One answer to a request. A decoupled model may give none or many.
#[derive(Debug, Clone, Default)]
pub struct Response {
    /// Output tensors; the backend leaves out those that the client did not ask for.
    pub outputs: Vec<Tensor>,
    /// What the model wants the client to know besides its outputs.
    pub parameters: Parameters,
}

impl Response {
    /// A response with outputs and no parameters.
    pub fn of(outputs: Vec<Tensor>) -> Self {
        Self { outputs, parameters: Vec::new() }
    }

    /// The output of that name.
    pub fn output(&self, name: &str) -> Option<&Tensor> {
        self.outputs.iter().find(|tensor| tensor.name() == name)
    }

    /// Bytes of memory that the response holds, bookkeeping included: what it counts in a budget of bytes.
    pub fn byte_size(&self) -> usize {
        let outputs: usize = self.outputs.iter().map(|output| TENSOR_BYTES + output.data().len()).sum();
        let parameters: usize =
            self.parameters.iter().map(|(name, value)| name.len() + value.byte_size()).sum();
        RESPONSE_BYTES + outputs + parameters
    }
}

/// What a response without outputs takes, about.
const RESPONSE_BYTES: usize = 128;
/// What a tensor takes besides its data, about.
const TENSOR_BYTES: usize = 128;

impl Parameter {
    /// Bytes of memory that the value holds.
    fn byte_size(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::String(text) => text.len(),
                Self::Bytes(bytes) => bytes.len(),
                Self::Int(_) | Self::Bool(_) | Self::Double(_) => 0,
            }
    }
}

/// One item of a [`ResponseStream`](crate::ResponseStream).
#[derive(Debug)]
pub struct ResponseItem {
    /// A response, or the error in its place.
    pub result: Result<Response, Error>,
    /// Nothing comes after it.
    pub last: bool,
}

impl ResponseItem {
    /// What the item counts in a budget of bytes.
    pub(crate) fn byte_size(&self) -> usize {
        match &self.result {
            Ok(response) => response.byte_size(),
            Err(error) => RESPONSE_BYTES + error.message.len(),
        }
    }
}
