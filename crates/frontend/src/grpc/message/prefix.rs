//! What every gRPC message has: a prefix of five bytes, and a maximum length.

/// Length of the prefix of each message, in bytes. The prefix says whether the message is compressed, and states its
/// length.
pub(crate) const PREFIX: usize = 5;

/// Largest message of the protocol, in bytes: 2^31 - 1.
pub(crate) const MAX_MESSAGE: usize = i32::MAX as usize;
