//! What a client asks for.
use std::{fmt, num::NonZeroUsize, sync::Arc, time::Duration};

use bytes::Bytes;
use scheduling::SequenceStep;

use crate::{
    ByteReservation, ClientId, Error, Name, NoRoom, Tensor, TensorData, TraceContext, backend::MemoryKind,
};

/// A decoded inference request, independent of the protocol it came by.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Echoed in every response; may be empty.
    pub id: Name,
    /// Tensors, or bytes whose shape the model's configuration tells.
    pub inputs: RequestInputs,
    /// Which outputs the client wants.
    pub outputs: OutputSelection,
    /// Place in a sequence; the default is "in no sequence". Neither the number 0 nor the empty text is an id of a client.
    pub sequence: SequenceStep,
    /// 1 is most urgent; 0 asks for the model's default level.
    pub priority: u64,
    /// Longest queueing time the client grants.
    pub timeout: Option<Duration>,
    /// What the client wants the model to know besides its inputs, in the client's order.
    pub parameters: Parameters,
    /// Who reads the responses: requests of one client are counted together. `None`: a client of its own.
    pub client: Option<ClientId>,
    /// The backend waits while so many responses of the request are unread. `None`: as the model's configuration says.
    pub most_unread: Option<NonZeroUsize>,
    /// The bytes of memory that count for the request in the server's budget, held until the request has gone. Whoever
    /// receives a request from a network reserves them; otherwise the engine does.
    pub reservation: Option<Arc<ByteReservation>>,
    /// Who follows the request, if anybody does.
    pub trace: Option<TraceContext>,
    /// Where outputs will lie, for a backend that asks, if the sender of the request brings memory for them. `None` stands
    /// for host memory of the server.
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

/// Which outputs of a model a request wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OutputSelection {
    /// All that the model has.
    #[default]
    All,
    /// These, without repetition; at least one.
    Named(Vec<Name>),
    /// None at all: a padding row, which keeps its place in a batch.
    Nothing,
}

impl OutputSelection {
    /// Whether the output of that name is wanted.
    pub fn includes(&self, output: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| name == output),
            Self::Nothing => false,
        }
    }

    /// The names that are given, if any.
    pub fn names(&self) -> &[Name] {
        match self {
            Self::Named(names) => names,
            Self::All | Self::Nothing => &[],
        }
    }
}

impl From<Vec<Name>> for OutputSelection {
    /// As clients say it: without names they want all.
    fn from(names: Vec<Name>) -> Self {
        if names.is_empty() { Self::All } else { Self::Named(names) }
    }
}

impl FromIterator<Name> for OutputSelection {
    fn from_iter<I: IntoIterator<Item = Name>>(names: I) -> Self {
        Vec::from_iter(names).into()
    }
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

    /// Bytes of all input data.
    pub fn input_bytes(&self) -> usize {
        match &self.inputs {
            RequestInputs::Tensors(tensors) => tensors.iter().map(|tensor| tensor.data().len()).sum(),
            RequestInputs::Raw(data) => data.len(),
        }
    }

    /// Counts the request in `received`, which holds what was received of it, and its inputs if they take more.
    ///
    /// # Errors
    /// There is no room for the inputs.
    pub fn count_in(&mut self, mut received: ByteReservation) -> Result<(), NoRoom> {
        received.grow_to(self.input_bytes())?;
        self.reservation = Some(Arc::new(received));
        Ok(())
    }

    /// Whether the client wants that output.
    pub fn wants(&self, output: &str) -> bool {
        self.outputs.includes(output)
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

/// What many messages about a request begin with, in the words of the reference: its id.
pub fn id_prefix(request_id: &str) -> String {
    let id = if request_id.is_empty() { "<id_unknown>" } else { request_id };
    format!("[request id: {id}] ")
}
