//! API keys: what a client may use, by the key that it sends.
//!
//! A file lists the keys, not in clear but as SHA-256 digests, each with its scope: parts of the protocol and models. Keys
//! are random, so their digests need no salt. The file is read again when it changes. A call that has begun uses the new
//! file from its next check on.
//!
//! Keys, and digests of what clients send, are never logged.
mod digest;
mod file;
mod keys;
mod pattern;
mod sender;
mod table;
#[cfg(test)]
mod tests;

pub use digest::{digest_text, new_key};
pub use keys::ApiKeys;
pub(crate) use sender::{Access, AccessDenied, is_key_header};
