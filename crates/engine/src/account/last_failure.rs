//! The last failure of a model version's requests, as its client got it.
use std::time::Duration;

use host::unix_time;
use inference::lock::Mutex;
use vocabulary::Error;

/// The most bytes of a text that are kept.
const MOST_BYTES: usize = 1024;

/// A failure that is kept until the next one.
#[derive(Debug, Default)]
pub(crate) struct LastFailure(Mutex<Option<FailureSnapshot>>);

/// A failure of a request, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureSnapshot {
    /// The error's text, cut if it is long.
    pub text: String,
    /// When the request ended, since 1970.
    pub at: Duration,
}

impl LastFailure {
    /// A request has failed now.
    pub(crate) fn note(&self, error: &Error) {
        let text = error.message[..error.message.floor_char_boundary(MOST_BYTES)].to_owned();
        *self.0.lock() = Some(FailureSnapshot { text, at: unix_time() });
    }

    /// The last failure, if there was one.
    pub(crate) fn read(&self) -> Option<FailureSnapshot> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_failure_replaces_the_one_before_and_is_cut_between_two_characters() {
        let last = LastFailure::default();
        assert_eq!(last.read(), None);
        last.note(&Error::internal("first"));
        last.note(&Error::internal("é".repeat(MOST_BYTES)));
        assert_eq!(last.read().unwrap().text, "é".repeat(MOST_BYTES / 2));
    }
}
