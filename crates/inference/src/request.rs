//! What a client asks for.
use std::{any::Any, fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{Error, Name, Tensor, TensorData, backend::MemoryKind};

/// A decoded inference request, independent of the protocol it came by.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Echoed in every response; may be empty.
    pub id: Name,
    /// Tensors, or bytes whose shape the model's configuration tells.
    pub inputs: RequestInputs,
    /// Names of the wanted outputs, without repetition; empty asks for all.
    pub outputs: Vec<Name>,
    /// Place in a sequence; the default is "in no sequence".
    pub sequence: SequenceStep,
    /// 1 is most urgent; 0 asks for the model's default level.
    pub priority: u64,
    /// Longest queueing time the client grants.
    pub timeout: Option<Duration>,
    /// What the client wants the model to know besides its inputs, in the client's order.
    pub parameters: Parameters,
    /// Who follows the request, as whoever asks and the backend know it; kept alive for them, and nobody else's affair.
    pub trace: Option<Arc<dyn Any + Send + Sync>>,
    /// Where outputs will lie, for a backend that asks, if whoever sends the request brings memory for them. `None` stands for
    /// host memory of the server.
    pub output_placement: Option<Arc<dyn OutputPlacement>>,
}

/// Tells where an output of a request will lie, before it is made.
pub trait OutputPlacement: fmt::Debug + Send + Sync {
    /// Kind and number of the memory for the output of that name, or for any, if it has that many bytes, as far as that is
    /// known. `preferred` is what the backend would like. May be called on any thread while the request is executed.
    ///
    /// # Errors
    /// UNAVAILABLE if that cannot be told.
    fn placement(
        &self,
        name: Option<&Name>,
        byte_size: Option<usize>,
        preferred: (MemoryKind, i64),
    ) -> Result<(MemoryKind, i64), Error>;
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

/// A request's place in its sequence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SequenceStep {
    /// Correlation id, if the request is part of a sequence.
    pub id: Option<CorrelationId>,
    /// First request of the sequence.
    pub start: bool,
    /// Last request of the sequence.
    pub end: bool,
}

/// What ties the requests of a sequence together. A number and its decimal text are different ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CorrelationId {
    /// Not zero.
    Number(std::num::NonZeroU64),
    /// Not empty.
    Text(Name),
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
