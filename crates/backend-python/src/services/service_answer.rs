//! The answers that a model gets to its questions.
use vocabulary::Error;

use crate::wire::marshal::MarshalWriter;

/// The answer to a question.
pub(crate) type ServiceAnswer = Result<ServiceValue, Error>;

/// A value that a worker gets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ServiceValue {
    Nothing,
    Bool(bool),
    Number(u64),
    Float(f64),
}

impl ServiceValue {
    /// Writes the value into a message.
    pub(crate) fn write(&self, writer: &mut MarshalWriter) {
        match *self {
            Self::Nothing => writer.none(),
            Self::Bool(value) => writer.bool(value),
            Self::Number(value) => writer.int(value),
            Self::Float(value) => writer.float(value),
        }
    }
}
