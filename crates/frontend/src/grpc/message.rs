//! What every message of gRPC has: a prefix of five bytes, and a largest length.

/// Bytes before each message: whether it is compressed, and its length.
pub(crate) const PREFIX: usize = 5;

/// Largest message of the protocol, in bytes: 2^31 - 1.
pub(crate) const MAX_MESSAGE: usize = i32::MAX as usize;
