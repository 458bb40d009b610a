//! Request parameters that the server itself uses, and the rules for them that the protocols share.
//!
//! The form of a value depends on the protocol: JSON has unsigned integers, gRPC has a choice of types. So each codec
//! reads its own values and words its own refusals. This module defines what the values mean.
use std::{num::NonZeroU64, time::Duration};

use inference::{Request, SequenceId};
use vocabulary::{Error, Name};

/// Names that cannot be custom parameters, except `headers`, which only should not be one. The comparison is
/// case-sensitive.
pub const RESERVED: [&str; 7] =
    ["sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"];

/// The prefix of parameters that belong to the server.
pub const OWN_PREFIX: &str = "triton_";

/// The refusal of a parameter that starts with [`OWN_PREFIX`].
pub fn own_prefix() -> Error {
    Error::invalid(
        "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
    )
}

/// Sets `sequence_id` from a number. 0 means "in no sequence".
pub fn set_correlation_number(request: &mut Request, id: u64) {
    request.sequence.id = NonZeroU64::new(id).map(SequenceId::Number);
}

/// Sets `sequence_id` from a text. The empty text means "in no sequence".
pub fn set_correlation_text(request: &mut Request, id: &str) {
    let id = Name::new(id);
    request.sequence.id = (!id.is_empty()).then(|| SequenceId::Text(id.as_str().into()));
}

/// Sets `timeout`, in microseconds. 0 means no limit.
pub fn set_timeout_us(request: &mut Request, timeout_us: u64) {
    request.timeout = (timeout_us > 0).then(|| Duration::from_micros(timeout_us));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_or_empty_sequence_id_is_none() {
        let mut request = Request::default();
        set_correlation_number(&mut request, 5);
        assert_eq!(request.sequence.id, NonZeroU64::new(5).map(SequenceId::Number));
        set_correlation_text(&mut request, "");
        assert_eq!(request.sequence.id, None);
        set_correlation_text(&mut request, "5");
        assert_eq!(request.sequence.id, Some(SequenceId::Text("5".into())));
        set_correlation_number(&mut request, 0);
        assert_eq!(request.sequence.id, None);
    }

    #[test]
    fn a_zero_timeout_is_none() {
        let mut request = Request::default();
        set_timeout_us(&mut request, 1500);
        assert_eq!(request.timeout, Some(Duration::from_micros(1500)));
        set_timeout_us(&mut request, 0);
        assert_eq!(request.timeout, None);
    }
}
