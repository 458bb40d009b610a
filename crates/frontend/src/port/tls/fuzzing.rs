//! The readers of certificates and revocation lists, as an entrance for fuzzers.
use super::{elements, v1_certificate::V1Certificate};

/// Reads a certificate as that of a server, and as one of version 1 of a client; and as a revocation list.
pub fn certificate(der: &[u8]) {
    let _ = (elements::expiry(der), elements::next_update(der));
    if let Some(certificate) = V1Certificate::read(der) {
        let _ = (certificate.key_info(), certificate.public_key());
    }
}
