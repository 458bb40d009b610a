//! The elements of a certificate, one after the other. The crate `der` reads them: DER, and no other encoding. Source:
//! ITU-T X.690, and RFC 5280, section 4.1.
use der::{
    Decode, Reader, SliceReader, Tag, TagNumber,
    asn1::{AnyRef, BitStringRef, GeneralizedTime, UtcTime},
};
use rustls::pki_types::UnixTime;

/// The tag of a certificate's version.
const VERSION: Tag = Tag::ContextSpecific { constructed: true, number: TagNumber(0) };

/// When a certificate of any version expires. `None` if it has a wrong encoding.
pub(super) fn expiry(certificate: &[u8]) -> Option<UnixTime> {
    let mut certificate = Elements::of(Elements::of(certificate)?.content(Tag::Sequence)?)?;
    let mut fields = Elements::of(certificate.content(Tag::Sequence)?)?;
    // Certificates of version 1 do not state their version.
    let _version = fields.content(VERSION);
    let _serial = fields.content(Tag::Integer)?;
    let _algorithm = fields.content(Tag::Sequence)?;
    let _issuer = fields.content(Tag::Sequence)?;
    let mut validity = Elements::of(fields.content(Tag::Sequence)?)?;
    let _not_before = validity.time()?;
    validity.time()
}

/// When a revocation list must have been replaced by a newer one. `None` if it does not say so, or has a wrong
/// encoding.
pub(super) fn next_update(list: &[u8]) -> Option<UnixTime> {
    let mut list = Elements::of(Elements::of(list)?.content(Tag::Sequence)?)?;
    let mut fields = Elements::of(list.content(Tag::Sequence)?)?;
    // Lists of version 1 do not state their version.
    let _version = fields.content(Tag::Integer);
    let _algorithm = fields.content(Tag::Sequence)?;
    let _issuer = fields.content(Tag::Sequence)?;
    let _this_update = fields.time()?;
    fields.time()
}

/// The elements that have not been read yet. An element with another tag than the expected one stays.
pub(super) struct Elements<'a>(SliceReader<'a>);

impl<'a> Elements<'a> {
    /// The elements of an encoding. `None` if it is too long for a certificate.
    pub(super) fn of(encoding: &'a [u8]) -> Option<Self> {
        SliceReader::new(encoding).ok().map(Self)
    }

    /// The next element without its head.
    pub(super) fn content(&mut self, tag: Tag) -> Option<&'a [u8]> {
        self.next::<AnyRef<'a>>(tag).map(AnyRef::value)
    }

    /// The next element with its head.
    pub(super) fn whole(&mut self, tag: Tag) -> Option<&'a [u8]> {
        (Tag::peek(&self.0).ok()? == tag).then(|| self.0.tlv_bytes().ok())?
    }

    /// The next element, which is a bit string of whole bytes.
    pub(super) fn bits(&mut self) -> Option<&'a [u8]> {
        self.next::<BitStringRef<'a>>(Tag::BitString)?.as_bytes()
    }

    /// The next element, which is a time since 1970.
    pub(super) fn time(&mut self) -> Option<UnixTime> {
        let since_1970 = match Tag::peek(&self.0).ok()? {
            Tag::UtcTime => self.next::<UtcTime>(Tag::UtcTime)?.to_unix_duration(),
            _ => self.next::<GeneralizedTime>(Tag::GeneralizedTime)?.to_unix_duration(),
        };
        Some(UnixTime::since_unix_epoch(since_1970))
    }

    /// Nothing follows.
    pub(super) fn end(&self) -> Option<()> {
        self.0.is_finished().then_some(())
    }

    fn next<T: Decode<'a>>(&mut self, tag: Tag) -> Option<T> {
        (Tag::peek(&self.0).ok()? == tag).then(|| self.0.decode().ok())?
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, pem::PemObject};

    use super::*;

    fn time(text: &str) -> Option<u64> {
        let tag = if text.len() == 13 { 0x17 } else { 0x18 };
        let bytes = [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        Elements::of(&bytes).unwrap().time().map(|time| time.as_secs())
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
    fn the_next_update_of_a_revocation_list_is_read() {
        // As `openssl crl -nextupdate` prints it.
        for (name, next) in [("revoked.crl.pem", 4_949_265_296), ("expired.crl.pem", 1_738_368_000)] {
            let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/port/tls/test_files/");
            let list = CertificateRevocationListDer::from_pem_file(format!("{directory}{name}")).unwrap();
            assert_eq!(next_update(&list).map(|next| next.as_secs()), Some(next), "{name}");
            for len in 0..80 {
                assert_eq!(next_update(&list[..len]), None, "{len}");
            }
        }
    }

    #[test]
    fn only_the_shortest_form_of_a_length_is_read() {
        let integer =
            |encoding: &[u8]| Elements::of(encoding).unwrap().content(Tag::Integer).map(<[u8]>::to_vec);
        assert_eq!(integer(&[2, 1, 7]), Some(vec![7]));
        for wrong in [
            &[2, 0x81, 1, 7][..],
            &[2, 0x82, 0, 1, 7],
            &[2, 0x80, 7, 0, 0],
            &[2, 2, 7],
            &[2, 0xff],
            &[2],
            &[],
        ] {
            assert_eq!(integer(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn an_element_with_another_tag_stays() {
        let mut elements = Elements::of(&[2, 1, 7]).unwrap();
        assert_eq!((elements.content(Tag::Sequence), elements.whole(Tag::Sequence)), (None, None));
        assert_eq!(elements.bits(), None);
        assert_eq!((elements.whole(Tag::Integer), elements.end()), (Some(&[2, 1, 7][..]), Some(())));
    }

    #[test]
    fn the_expiry_of_a_certificate_is_read_whatever_its_version() {
        // As `openssl x509 -enddate` prints it.
        for (name, end) in [("server.pem", 4_948_832_408), ("server-v1.pem", 4_948_933_454)] {
            let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/port/tls/test_files/");
            let certificate = CertificateDer::from_pem_file(format!("{directory}{name}")).unwrap();
            assert_eq!(expiry(&certificate).map(|end| end.as_secs()), Some(end), "{name}");
            for len in 0..100 {
                assert_eq!(expiry(&certificate[..len]), None, "{len}");
            }
        }
    }
}
