//! Verifies the certificates of clients where the operator allows version 1 (`--allow-v1-client-certs`): certificates
//! of version 3 and of version 1 that a root has signed.
//!
//! webpki verifies version 3, and is the only verifier where version 1 is not allowed. A certificate of version 1 is
//! accepted if three conditions hold: a root has signed it directly, the algorithm is one that webpki accepts, and the
//! certificate is valid now. Such a certificate cannot sign other certificates.
use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, RootCertStore,
    SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

use super::v1_certificate::{PublicKey, V1Certificate};

/// Verifies the certificates of clients.
#[derive(Debug)]
pub(super) struct ClientCertificates {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
    version_3: Arc<dyn ClientCertVerifier>,
}

impl ClientCertificates {
    /// Accepts each client that `version_3`, which trusts `roots`, accepts. Also accepts clients whose certificate of
    /// version 1 was signed by one of `roots`.
    pub(super) fn new(
        roots: Arc<RootCertStore>,
        algorithms: WebPkiSupportedAlgorithms,
        version_3: Arc<dyn ClientCertVerifier>,
    ) -> Self {
        Self { roots, algorithms, version_3 }
    }

    /// Checks that a root has signed the certificate.
    fn verify_version_1(
        &self,
        certificate: &V1Certificate<'_>,
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        let mut issuer_is_known = false;
        for root in &self.roots.roots {
            // The check of name constraints needs the extensions of version 3.
            if root.subject.as_ref() != certificate.issuer || root.name_constraints.is_some() {
                continue;
            }
            issuer_is_known = true;
            let key = PublicKey::of_fields(root.subject_public_key_info.as_ref());
            if key.is_some_and(|key| self.is_signed_by(certificate, key)) {
                return if certificate.is_valid_at(now) { Ok(()) } else { Err(CertificateError::Expired) };
            }
        }
        Err(if issuer_is_known { CertificateError::BadSignature } else { CertificateError::UnknownIssuer })
    }

    fn is_signed_by(&self, certificate: &V1Certificate<'_>, key: PublicKey<'_>) -> bool {
        self.algorithms.all.iter().any(|algorithm| {
            algorithm.signature_alg_id().as_ref() == certificate.algorithm
                && algorithm.public_key_alg_id().as_ref() == key.algorithm
                && algorithm.verify_signature(key.bits, certificate.signed, certificate.signature).is_ok()
        })
    }

    /// Checks that the client has the key of its certificate. As webpki: TLS 1.2 names a hash and a kind of key, and
    /// several algorithms may match both.
    fn verify_handshake(
        &self,
        message: &[u8],
        certificate: &V1Certificate<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let offered = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let Some((_, algorithms)) = offered else {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        };
        let key = certificate.public_key();
        let is_valid = algorithms.iter().any(|algorithm| {
            algorithm.public_key_alg_id().as_ref() == key.algorithm
                && algorithm.verify_signature(key.bits, message, signed.signature()).is_ok()
        });
        if is_valid {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }
}

impl ClientCertVerifier for ClientCertificates {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.version_3.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match V1Certificate::read(certificate) {
            None => self.version_3.verify_client_cert(certificate, intermediates, now),
            Some(certificate) => {
                self.verify_version_1(&certificate, now)?;
                Ok(ClientCertVerified::assertion())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match V1Certificate::read(certificate) {
            None => self.version_3.verify_tls12_signature(message, certificate, signed),
            Some(certificate) => self.verify_handshake(message, &certificate, signed),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match V1Certificate::read(certificate) {
            None => self.version_3.verify_tls13_signature(message, certificate, signed),
            Some(certificate) => {
                let key = certificate.key_info();
                verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
            }
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.version_3.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::{crypto::ring, pki_types::pem::PemObject, server::WebPkiClientVerifier};

    use super::*;

    fn der(name: &str) -> CertificateDer<'static> {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/port/tls/test_files/");
        CertificateDer::from_pem_file(format!("{directory}{name}")).unwrap()
    }

    /// The result of verifying a certificate when this root is trusted.
    fn verify(root: &str, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        roots.add(der(root)).unwrap();
        let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
        let version_3 = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let algorithms = provider.signature_verification_algorithms;
        let verifier = ClientCertificates::new(roots, algorithms, version_3.build().unwrap());
        verifier.verify_client_cert(certificate, &[], now).map(drop)
    }

    #[test]
    fn a_certificate_of_version_1_must_be_signed_by_a_root_and_valid() {
        use CertificateError::{BadSignature, Expired, UnknownIssuer};
        let now = UnixTime::now();
        let in_two_centuries =
            UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + 200 * 31_557_600));
        let good = der("client-v1.pem");
        assert_eq!(verify("root-v1.pem", &good, now), Ok(()));
        assert_eq!(verify("root-v1.pem", &good, in_two_centuries), Err(Expired.into()));
        assert_eq!(verify("root.pem", &good, now), Err(UnknownIssuer.into()));
        assert_eq!(verify("root-v1.pem", &der("forged-v1.pem"), now), Err(BadSignature.into()));
    }

    #[test]
    fn certificates_of_version_3_are_verified_as_usual() {
        let good = der("client.pem");
        assert_eq!(verify("root.pem", &good, UnixTime::now()), Ok(()));
        let unknown = Error::from(CertificateError::UnknownIssuer);
        assert_eq!(verify("root-v1.pem", &good, UnixTime::now()), Err(unknown));
    }

    #[test]
    fn a_certificate_with_a_changed_byte_is_refused() {
        let good = der("client-v1.pem");
        for index in 0..good.len() {
            let mut changed = good.to_vec();
            changed[index] ^= 1;
            assert!(verify("root-v1.pem", &changed.into(), UnixTime::now()).is_err(), "byte {index}");
        }
    }
}
