//! What a request states about its sequence: which sequence, and whether the sequence begins or ends.
use std::{fmt, num::NonZeroU64, sync::Arc};

/// A request's position in its sequence. The default is no sequence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SequencePosition {
    /// The sequence, if the request is part of one.
    pub id: Option<SequenceId>,
    /// The first request of the sequence (START). The model discards the state of the slot.
    pub start: bool,
    /// The last request of the sequence (END). Both flags together make a sequence of one request.
    pub end: bool,
}

/// Identifies a sequence of one model. Ids are used again: at most one sequence of an id is open at a time.
///
/// A number and its decimal text are different ids. A client's number and a number that the server generated are
/// different ids too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SequenceId {
    /// A correlation id. The id 0 would mean no sequence, so it cannot occur.
    Number(NonZeroU64),
    /// A correlation id. An empty text counts as none.
    Text(Arc<str>),
    /// An id that the scheduler of an iterative model gives to a request without a correlation id: 1, 2, 3 and so on.
    /// Clients see no correlation id.
    ServerGenerated(u64),
}

impl SequenceId {
    /// Whether a client chose the id.
    pub(crate) fn is_given(&self) -> bool {
        match self {
            Self::Number(_) => true,
            Self::Text(text) => !text.is_empty(),
            Self::ServerGenerated(_) => false,
        }
    }
}

impl fmt::Display for SequenceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(out),
            Self::Text(text) => text.fmt(out),
            Self::ServerGenerated(number) => number.fmt(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_its_text() {
        let five = NonZeroU64::new(5).unwrap();
        let ids = [SequenceId::Number(five), SequenceId::Text("5".into()), SequenceId::ServerGenerated(5)];
        for (index, id) in ids.iter().enumerate() {
            assert_eq!(id.to_string(), "5");
            assert!(ids.iter().skip(index + 1).all(|other| other != id));
        }
    }

    #[test]
    fn an_empty_text_and_server_generated_numbers_are_no_ids_of_clients() {
        assert!(SequenceId::Text("a".into()).is_given());
        assert!(!SequenceId::Text("".into()).is_given());
        assert!(!SequenceId::ServerGenerated(1).is_given());
    }
}
