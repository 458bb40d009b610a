//! What targets make of their input before a parser reads it.
use bytes::Bytes;

/// The input as text. What is not UTF-8 is replaced.
pub(super) fn text(input: &[u8]) -> String {
    String::from_utf8_lossy(input).into_owned()
}

/// The first byte, as a setting of the target, and the rest.
pub(super) fn setting(input: &[u8]) -> (usize, Bytes) {
    let (first, rest) = input.split_first().unwrap_or((&0, &[]));
    (usize::from(*first), Bytes::copy_from_slice(rest))
}
