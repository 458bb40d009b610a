//! What every gRPC message has: a prefix of five bytes, and a maximum length.

/// Length of the prefix of each message, in bytes. The prefix says whether the message is compressed, and states its
/// length.
pub(crate) const PREFIX: usize = 5;

/// Largest message of the protocol, in bytes: 2^31 - 1.
pub(crate) const MAX_MESSAGE: usize = i32::MAX as usize;

/// The largest DATA frame of a reply, in bytes. h2 may hold one such frame of a call that hyper has finished, if the
/// client does not open its window.
pub(crate) const MAX_PIECE: usize = 64 << 10;
