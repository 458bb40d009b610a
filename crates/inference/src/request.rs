//! What a client asks for.
use std::{any::Any, sync::Arc, time::Duration};

use bytes::Bytes;
use scheduling::SequenceStep;

use crate::{Name, Tensor, TensorData};

/// A decoded inference request, independent of the protocol it came by.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Echoed in every response; may be empty.
    pub id: Name,
    /// Tensors, or bytes whose shape the model's configuration tells.
    pub inputs: RequestInputs,
    /// Names of the wanted outputs, without repetition; empty asks for all.
    pub outputs: Vec<Name>,
    /// Place in a sequence; the default is "in no sequence". Neither the number 0 nor the empty text is an id of a client.
    pub sequence: SequenceStep,
    /// 1 is most urgent; 0 asks for the model's default level.
    pub priority: u64,
    /// Longest queueing time the client grants.
    pub timeout: Option<Duration>,
    /// What the client wants the model to know besides its inputs, in the client's order.
    pub parameters: Parameters,
    /// Who follows the request, as whoever asks and the backend know it; kept alive for them, and nobody else's affair.
    pub trace: Option<Arc<dyn Any + Send + Sync>>,
}

/// How a request brings its inputs.
#[derive(Debug, Clone)]
pub enum RequestInputs {
    /// Named tensors with datatype and shape.
    Tensors(Vec<Tensor>),
    /// The bytes of the only input of the model; name, datatype and shape follow from the configuration.
    Raw(TensorData),
}

impl Default for RequestInputs {
    fn default() -> Self {
        Self::Tensors(Vec::new())
    }
}

impl Request {
    /// The input tensors. Empty for a raw request that has not been checked against its model yet.
    pub fn tensors(&self) -> &[Tensor] {
        match &self.inputs {
            RequestInputs::Tensors(tensors) => tensors,
            RequestInputs::Raw(_) => &[],
        }
    }

    /// The input of that name.
    pub fn input(&self, name: &str) -> Option<&Tensor> {
        self.tensors().iter().find(|tensor| tensor.name() == name)
    }

    /// Whether the client asked for that output, by name or by asking for all.
    pub fn wants(&self, output: &str) -> bool {
        self.outputs.is_empty() || self.outputs.iter().any(|name| name == output)
    }
}

/// Named values that travel with a request or a response, in the order they were given.
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
    /// Opaque bytes; no protocol carries them in responses.
    Bytes(Bytes),
}
