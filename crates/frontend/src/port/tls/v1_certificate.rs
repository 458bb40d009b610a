//! Reads X.509 certificates of version 1. `openssl x509 -req` of OpenSSL 3.0 makes them if no extensions are given.
//!
//! rustls and webpki support version 3 only. A certificate of version 1 has no extensions: it contains a name and a
//! key, and does not say what the key may be used for. Source: RFC 5280, section 4.1. Clients with such a certificate
//! are accepted only if the operator allows it.
use der::Tag;
use rustls::pki_types::{SubjectPublicKeyInfoDer, UnixTime};

use super::elements::Elements;

/// The content of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct V1Certificate<'a> {
    /// The bytes that the signature covers.
    pub(super) signed: &'a [u8],
    /// The issuer's name, in the encoding that root certificates use.
    pub(super) issuer: &'a [u8],
    not_before: UnixTime,
    not_after: UnixTime,
    /// The whole key info.
    key: &'a [u8],
    /// The algorithm of the issuer, and the signature.
    pub(super) algorithm: &'a [u8],
    pub(super) signature: &'a [u8],
}

/// A public key in the form that verifiers need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PublicKey<'a> {
    pub(super) algorithm: &'a [u8],
    pub(super) bits: &'a [u8],
}

impl<'a> V1Certificate<'a> {
    /// Reads a certificate. `None` if it has another version or a wrong encoding.
    pub(crate) fn read(der: &'a [u8]) -> Option<Self> {
        let mut outer = Elements::of(der)?;
        let mut certificate = Elements::of(outer.content(Tag::Sequence)?)?;
        outer.end()?;
        let signed = certificate.whole(Tag::Sequence)?;
        let algorithm = certificate.content(Tag::Sequence)?;
        let signature = certificate.bits()?;
        certificate.end()?;

        let mut fields = Elements::of(Elements::of(signed)?.content(Tag::Sequence)?)?;
        // Certificates of later versions state their version in this field.
        fields.content(Tag::Integer)?;
        let inner_algorithm = fields.content(Tag::Sequence)?;
        let issuer = fields.content(Tag::Sequence)?;
        let mut validity = Elements::of(fields.content(Tag::Sequence)?)?;
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        validity.end()?;
        let _subject = fields.content(Tag::Sequence)?;
        let key = fields.whole(Tag::Sequence)?;
        // Certificates of later versions may have more fields.
        fields.end()?;
        // Both must be equal, because the signature does not cover the outer one.
        (inner_algorithm == algorithm).then_some(())?;
        PublicKey::read(key)?;
        Some(Self { signed, issuer, not_before, not_after, key, algorithm, signature })
    }

    pub(super) fn is_valid_at(&self, now: UnixTime) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    /// The key info in the form that rustls compares.
    pub(crate) fn key_info(&self) -> SubjectPublicKeyInfoDer<'a> {
        self.key.into()
    }

    pub(super) fn public_key(&self) -> PublicKey<'a> {
        PublicKey::read(self.key).expect("was read with the certificate")
    }
}

impl<'a> PublicKey<'a> {
    fn read(info: &'a [u8]) -> Option<Self> {
        Self::of_fields(Elements::of(info)?.content(Tag::Sequence)?)
    }

    /// Reads the key info without its outer sequence, as root certificates store it.
    pub(super) fn of_fields(fields: &'a [u8]) -> Option<Self> {
        let mut fields = Elements::of(fields)?;
        let algorithm = fields.content(Tag::Sequence)?;
        let bits = fields.bits()?;
        fields.end()?;
        Some(Self { algorithm, bits })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::{CertificateDer, pem::PemObject};

    use super::*;

    fn der(name: &str) -> CertificateDer<'static> {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/port/tls/test_files/");
        CertificateDer::from_pem_file(format!("{directory}{name}")).unwrap()
    }

    #[test]
    fn only_version_1_is_read() {
        let certificate = der("client-v1.pem");
        let read = V1Certificate::read(&certificate).unwrap();
        assert!(read.is_valid_at(UnixTime::now()));
        assert!(!read.is_valid_at(UnixTime::since_unix_epoch(Duration::from_secs(1))));
        assert_eq!(V1Certificate::read(&der("client.pem")), None);
    }

    #[test]
    fn a_certificate_that_is_cut_or_longer_is_refused() {
        let certificate = der("client-v1.pem");
        for len in 0..certificate.len() {
            assert_eq!(V1Certificate::read(&certificate[..len]), None, "{len}");
        }
        assert_eq!(V1Certificate::read(&[&certificate[..], &[0]].concat()), None);
    }

    #[test]
    fn no_changed_byte_makes_it_panic() {
        let certificate = der("client-v1.pem");
        for index in 0..certificate.len() {
            for change in [1, 0x7f, 0x80, 0xff] {
                let mut changed = certificate.to_vec();
                changed[index] ^= change;
                let _ = V1Certificate::read(&changed);
            }
        }
    }
}
