//! Reads X.509 certificates of version 1. `openssl x509 -req` of OpenSSL 3.0 makes them if no extensions are given.
//!
//! rustls and webpki support version 3 only. A certificate of version 1 has no extensions: it contains a name and a
//! key, and does not say what the key may be used for. Source: RFC 5280, section 4.1. The reader accepts only DER and
//! refuses any other encoding.
use std::time::Duration;

use rustls::pki_types::{SubjectPublicKeyInfoDer, UnixTime};

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;

/// The content of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct V1Certificate<'a> {
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
    pub(super) fn read(der: &'a [u8]) -> Option<Self> {
        let mut outer = Der(der);
        let mut certificate = Der(outer.take(SEQUENCE)?.content);
        outer.end()?;
        let signed = certificate.take(SEQUENCE)?;
        let algorithm = certificate.take(SEQUENCE)?.content;
        let signature = bits(certificate.take(BIT_STRING)?.content)?;
        certificate.end()?;

        let mut fields = Der(signed.content);
        // Certificates of later versions state their version in this field.
        fields.take(INTEGER)?;
        let inner_algorithm = fields.take(SEQUENCE)?.content;
        let issuer = fields.take(SEQUENCE)?.content;
        let mut validity = Der(fields.take(SEQUENCE)?.content);
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        validity.end()?;
        let _subject = fields.take(SEQUENCE)?;
        let key = fields.take(SEQUENCE)?.whole;
        // Certificates of later versions may have more fields.
        fields.end()?;
        // Both must be equal, because the signature does not cover the outer one.
        (inner_algorithm == algorithm).then_some(())?;
        PublicKey::read(key)?;
        Some(Self { signed: signed.whole, issuer, not_before, not_after, key, algorithm, signature })
    }

    pub(super) fn is_valid_at(&self, now: UnixTime) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    /// The key info in the form that rustls compares.
    pub(super) fn key_info(&self) -> SubjectPublicKeyInfoDer<'a> {
        self.key.into()
    }

    pub(super) fn public_key(&self) -> PublicKey<'a> {
        PublicKey::read(self.key).expect("was read with the certificate")
    }
}

impl<'a> PublicKey<'a> {
    fn read(info: &'a [u8]) -> Option<Self> {
        Self::of_fields(Der(info).take(SEQUENCE)?.content)
    }

    /// Reads the key info without its outer sequence, as root certificates store it.
    pub(super) fn of_fields(fields: &'a [u8]) -> Option<Self> {
        let mut fields = Der(fields);
        let algorithm = fields.take(SEQUENCE)?.content;
        let bits = bits(fields.take(BIT_STRING)?.content)?;
        fields.end()?;
        Some(Self { algorithm, bits })
    }
}

/// The content of a bit string of whole bytes.
fn bits(content: &[u8]) -> Option<&[u8]> {
    let (unused, bits) = content.split_first()?;
    (*unused == 0).then_some(bits)
}

/// The rest of an encoding.
struct Der<'a>(&'a [u8]);

/// A value with and without its head.
struct DerElement<'a> {
    whole: &'a [u8],
    content: &'a [u8],
}

impl<'a> Der<'a> {
    /// The next value, which must have that tag.
    fn take(&mut self, tag: u8) -> Option<DerElement<'a>> {
        let [found, first, ..] = *self.0 else { return None };
        let (head, len) = match first {
            0..=0x7f => (2, usize::from(first)),
            // DER accepts only the shortest form of a length.
            0x81 => (3, self.len(1).filter(|len| *len > 0x7f)?),
            0x82 => (4, self.len(2).filter(|len| *len > 0xff)?),
            0x83 => (5, self.len(3).filter(|len| *len > 0xffff)?),
            _ => return None,
        };
        let (whole, rest) = self.0.split_at_checked(head + len)?;
        (found == tag).then_some(())?;
        self.0 = rest;
        Some(DerElement { whole, content: &whole[head..] })
    }

    /// Reads a length from this many bytes, which follow the first byte of the length.
    fn len(&self, bytes: usize) -> Option<usize> {
        let bytes = self.0.get(2..2 + bytes)?;
        Some(bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)))
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    fn time(&mut self) -> Option<UnixTime> {
        let (digits, years) = match self.0.first()? {
            &UTC_TIME => (self.take(UTC_TIME)?.content, 2),
            _ => (self.take(GENERALIZED_TIME)?.content, 4),
        };
        let digits = digits.strip_suffix(b"Z").filter(|digits| digits.len() == years + 10)?;
        let number = |digits: &[u8]| {
            let all = digits.iter().all(u8::is_ascii_digit);
            all.then(|| digits.iter().fold(0, |number: u64, digit| number * 10 + u64::from(digit - b'0')))
        };
        let (year, rest) = digits.split_at(years);
        let year = match (number(year)?, years) {
            // RFC 5280, section 4.1.2.5.1.
            (year @ 0..50, 2) => 2000 + year,
            (year, 2) => 1900 + year,
            (year, _) => year,
        };
        let mut fields = [0; 5];
        for (field, digits) in fields.iter_mut().zip(rest.chunks(2)) {
            *field = number(digits)?;
        }
        let [month, day, hour, minute, second] = fields;
        let in_range = (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60
            && year >= 1970;
        let days = in_range.then(|| days_since_1970(year, month, day))?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(
            days * 86400 + hour * 3600 + minute * 60 + second,
        )))
    }
}

/// Days from 1970-01-01 to this date of the Gregorian calendar. `year` is at least 1970.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    // The calculation lets years begin in March, so that the leap day is the last day of a year.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    use super::*;

    fn der(name: &str) -> CertificateDer<'static> {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/grpc/tests/tls/");
        CertificateDer::from_pem_file(format!("{directory}{name}")).unwrap()
    }

    fn time(text: &str) -> Option<u64> {
        let tag = if text.len() == 13 { UTC_TIME } else { GENERALIZED_TIME };
        let bytes = [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        Der(&bytes).time().map(|time| time.as_secs())
    }

    #[test]
    fn times_count_from_1970() {
        assert_eq!(time("700101000000Z"), Some(0));
        assert_eq!(time("19700101000001Z"), Some(1));
        assert_eq!(time("000301000000Z"), Some(951_868_800));
        assert_eq!(time("20240229235959Z"), Some(1_709_251_199));
        assert_eq!(time("491231235959Z"), Some(2_524_607_999));
        for wrong in
            ["20241301000000Z", "20240101240000Z", "2024010100000Z0", "500101000000Z", "2024010100000xZ"]
        {
            assert_eq!(time(wrong), None, "{wrong}");
        }
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
