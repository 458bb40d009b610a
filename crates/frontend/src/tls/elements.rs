//! Reads the encoding of certificates: DER, and no other encoding. Source: ITU-T X.690, and RFC 5280, section 4.1.
use std::time::Duration;

use rustls::pki_types::UnixTime;

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
/// The tag of a certificate's version.
const VERSION: u8 = 0xa0;

/// When a certificate of any version expires. `None` if it has a wrong encoding.
pub(super) fn expiry(certificate: &[u8]) -> Option<UnixTime> {
    let mut certificate = Der(Der(certificate).take(SEQUENCE)?.content);
    let mut fields = Der(certificate.take(SEQUENCE)?.content);
    // Certificates of version 1 do not state their version.
    let _version = fields.take(VERSION);
    let _serial = fields.take(INTEGER)?;
    let _algorithm = fields.take(SEQUENCE)?;
    let _issuer = fields.take(SEQUENCE)?;
    let mut validity = Der(fields.take(SEQUENCE)?.content);
    let _not_before = validity.time()?;
    validity.time()
}

/// The rest of an encoding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Der<'a>(pub(super) &'a [u8]);

/// A value with and without its head.
pub(super) struct DerElement<'a> {
    pub(super) whole: &'a [u8],
    pub(super) content: &'a [u8],
}

impl<'a> Der<'a> {
    /// The next value, which must have that tag.
    pub(super) fn take(&mut self, tag: u8) -> Option<DerElement<'a>> {
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

    /// Nothing follows.
    pub(super) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    /// The next value, which must be a time.
    pub(super) fn time(&mut self) -> Option<UnixTime> {
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
    fn the_expiry_of_a_certificate_is_read_whatever_its_version() {
        // As `openssl x509 -enddate` prints it.
        for (name, end) in [("server.pem", 4_948_832_408), ("server-v1.pem", 4_948_933_454)] {
            let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tls/test_files/");
            let certificate = CertificateDer::from_pem_file(format!("{directory}{name}")).unwrap();
            assert_eq!(expiry(&certificate).map(|end| end.as_secs()), Some(end), "{name}");
            for len in 0..100 {
                assert_eq!(expiry(&certificate[..len]), None, "{len}");
            }
        }
    }
}
