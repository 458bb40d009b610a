//! New keys, and the digests of keys.
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom, SystemRandom},
};
use vocabulary::Error;

/// A SHA-256 digest.
pub(super) type KeyDigest = [u8; 32];

/// A new random key.
///
/// # Errors
/// INTERNAL: the system has no random numbers.
pub fn new_key() -> Result<String, Error> {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::internal("the system has no random numbers"))?;
    Ok(hexadecimal(&bytes))
}

/// The digest of a key in the form of the file.
pub fn digest_text(key: &str) -> String {
    hexadecimal(&digest_of(key.as_bytes()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn digest_of(key: &[u8]) -> KeyDigest {
    digest(&SHA256, key).as_ref().try_into().expect("a SHA-256 digest has 32 bytes")
}
