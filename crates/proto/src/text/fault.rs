//! A mistake in a source, before its line is known.

/// The kind of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MistakeKind {
    /// The source breaks off, or contains something where nothing can be.
    Syntax,
    /// A message does not have the field.
    UnknownField,
    /// An enumeration does not have the value.
    UnknownValue,
    /// The value does not have the type of the field.
    WrongValue,
    /// A field is set twice, or together with a field that it excludes.
    Repeated,
}

/// A position in the source with a mistake, and the reason.
#[derive(Debug)]
pub(super) struct TextFault {
    /// Byte offset.
    pub(super) at: usize,
    pub(super) kind: MistakeKind,
    pub(super) why: String,
    /// The word that was probably meant.
    pub(super) suggestion: Option<String>,
}

impl TextFault {
    pub(super) fn new(at: usize, why: impl Into<String>) -> Self {
        Self { at, kind: MistakeKind::Syntax, why: why.into(), suggestion: None }
    }

    pub(super) fn of_kind(self, kind: MistakeKind) -> Self {
        Self { kind, ..self }
    }
}
