//! The responses of a model: output tensors and parameters.
use vocabulary::{Error, Parameters, Tensor};

/// One response to a request. A decoupled model may send none or many.
#[derive(Debug, Clone, Default)]
pub struct Response {
    /// Output tensors. The backend omits outputs that the client did not request.
    pub outputs: Vec<Tensor>,
    /// Further values from the model for the client.
    pub parameters: Parameters,
}

impl Response {
    /// A response with outputs and no parameters.
    pub fn of(outputs: Vec<Tensor>) -> Self {
        Self { outputs, parameters: Vec::new() }
    }

    /// The output with that name.
    pub fn output(&self, name: &str) -> Option<&Tensor> {
        self.outputs.iter().find(|tensor| tensor.name() == name)
    }

    /// Bytes of memory that the response uses, bookkeeping included. A budget of bytes counts this number.
    pub fn byte_size(&self) -> usize {
        let outputs: usize = self.outputs.iter().map(|output| TENSOR_BYTES + output.byte_size()).sum();
        let parameters: usize =
            self.parameters.iter().map(|(name, value)| name.len() + value.byte_size()).sum();
        RESPONSE_BYTES + outputs + parameters
    }
}

/// The approximate size of a response without outputs.
const RESPONSE_BYTES: usize = 128;
/// The approximate size of a tensor without its data.
const TENSOR_BYTES: usize = 128;

/// One item of a [`ResponseStream`](crate::ResponseStream).
#[derive(Debug)]
pub struct ResponseItem {
    /// A response, or an error instead of one.
    pub result: Result<Response, Error>,
    /// Whether this is the last item.
    pub last: bool,
}

impl ResponseItem {
    /// The bytes that a budget counts for the item.
    pub(crate) fn byte_size(&self) -> usize {
        match &self.result {
            Ok(response) => response.byte_size(),
            Err(error) => RESPONSE_BYTES + error.message.len(),
        }
    }
}
