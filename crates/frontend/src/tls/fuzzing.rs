//! The readers of certificates, as an entrance for fuzzers.
use super::{der, v1_certificate::V1Certificate};

/// Reads a certificate as that of a server, and as one of version 1 of a client.
pub fn certificate(der: &[u8]) {
    let _ = der::expiry(der);
    if let Some(certificate) = V1Certificate::read(der) {
        let _ = (certificate.key_info(), certificate.public_key());
    }
}
