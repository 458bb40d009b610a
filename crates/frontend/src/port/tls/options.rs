//! The files of a port with TLS, and what it asks of its clients.
use std::path::PathBuf;

/// The files of a port with TLS, all in PEM form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsOptions {
    /// Certificate chain of the server (`--grpc-server-cert`, `--http-server-cert`, `--metrics-server-cert`).
    pub certificate: PathBuf,
    /// The private key of the server (`--grpc-server-key` and its counterparts).
    pub key: PathBuf,
    /// The root certificates for client certificates (`--grpc-root-cert` and its counterparts). If they are given, each
    /// client must present a certificate (`--grpc-use-ssl-mutual` and its counterparts).
    pub client_roots: Option<PathBuf>,
    /// Which clients the port accepts of those whose certificates a root has signed.
    pub client_rules: ClientCertificateRules,
}

/// Which certificates of clients are accepted. The rules hold for all ports that require such certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientCertificateRules {
    /// Files with revocation lists in PEM form (`--client-crl-file`). If there are any, each certificate of a client's
    /// chain needs a list of its issuer that has not expired and does not contain it.
    pub revocation_lists: Vec<PathBuf>,
    /// Accepts certificates of X.509 version 1 (`--allow-v1-client-certs`). They do not say what their key may be used
    /// for, and cannot be revoked. So the files of [`ClientCertificateRules::revocation_lists`] exclude them.
    pub allows_version_1: bool,
}

/// The protocol inside of TLS. Clients that name only other protocols (ALPN) are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsProtocol {
    /// HTTP/1.1
    Http1,
    /// HTTP/2, for gRPC
    Http2,
}
