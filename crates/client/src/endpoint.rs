//! Where the server is, and how connections to it are made: plain or encrypted.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::{fs, io};

use anyhow::{Context, Result, anyhow, ensure};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use hyper_util::client::legacy::connect::{Connected, Connection};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::framing::MessageCompression;

/// See the module documentation. A clone shares what makes connections.
#[derive(Clone)]
pub struct ServerEndpoint {
    /// `host:port`.
    pub(crate) address: Arc<str>,
    /// The headers of each call of gRPC.
    pub(crate) call_headers: Arc<HeaderMap>,
    encryption: Option<(TlsConnector, ServerName<'static>)>,
}

/// How connections are encrypted.
#[derive(Debug, PartialEq, Clone)]
pub struct ClientEncryption {
    /// Which certificates the server may have.
    pub trusted: TrustedCertificates,
    /// The certificate chain of the client and its private key, in PEM files.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Which certificates the server may have.
#[derive(Debug, PartialEq, Clone)]
pub enum TrustedCertificates {
    /// Those that the system trusts.
    OfSystem,
    /// Those that a certificate in this file has signed.
    File(PathBuf),
}

/// A connection.
pub enum ServerStream {
    /// Without encryption.
    Plain(TcpStream),
    /// Over TLS.
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl ServerEndpoint {
    /// The endpoint at `host:port`.
    ///
    /// # Errors
    /// The trusted certificates cannot be read, or the host has no name that a certificate can have.
    pub fn at(address: &str, encryption: Option<&ClientEncryption>, is_grpc: bool) -> Result<ServerEndpoint> {
        let encryption = match encryption {
            None => None,
            Some(encryption) => {
                let config = ClientConfig::builder().with_root_certificates(roots(&encryption.trusted)?);
                let mut config = match &encryption.identity {
                    None => config.with_no_client_auth(),
                    Some((chain, key)) => {
                        let cannot = || format!("cannot use {} with {}", chain.display(), key.display());
                        let chain = CertificateDer::pem_file_iter(chain).with_context(cannot)?;
                        let chain = chain.collect::<Result<Vec<_>, _>>().with_context(cannot)?;
                        let key = PrivateKeyDer::from_pem_file(key).with_context(cannot)?;
                        config.with_client_auth_cert(chain, key).with_context(cannot)?
                    }
                };
                if is_grpc {
                    config.alpn_protocols = vec![b"h2".to_vec()];
                }
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(host).context("the host is no name of a certificate")?;
                Some((TlsConnector::from(Arc::new(config)), name))
            }
        };
        Ok(ServerEndpoint { address: address.into(), call_headers: Arc::new(call_headers()), encryption })
    }

    /// The same endpoint, whose calls of gRPC have these headers, too, and are compressed in this way.
    ///
    /// # Errors
    /// A name or a value cannot be that of a header.
    pub fn with_call_headers(
        self,
        headers: &[(String, String)],
        compression: Option<MessageCompression>,
    ) -> Result<ServerEndpoint> {
        let mut all = HeaderMap::clone(&self.call_headers);
        // Messages that are not compressed may be sent all the same.
        if let Some(compression) = compression {
            all.insert("grpc-encoding", HeaderValue::from_static(compression.name()));
        }
        for (name, value) in headers {
            all.append(HeaderName::try_from(name.as_str())?, HeaderValue::try_from(value.as_str())?);
        }
        Ok(ServerEndpoint { call_headers: Arc::new(all), ..self })
    }

    /// Makes a connection.
    ///
    /// # Errors
    /// The server is not reachable, or its certificate is not trusted.
    pub async fn connect(&self) -> Result<ServerStream> {
        let address = &*self.address;
        let stream =
            TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let Some((connector, name)) = &self.encryption else { return Ok(ServerStream::Plain(stream)) };
        let stream = connector.connect(name.clone(), stream).await;
        let stream = stream.map_err(|error| anyhow!("no TLS with {address}: {}", tls_refusal(&error)))?;
        Ok(ServerStream::Encrypted(Box::new(stream)))
    }
}

/// Why there is no TLS. Some errors of rustls have no words for people.
fn tls_refusal(error: &io::Error) -> String {
    match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "the certificate of the server is not trusted; --ca-certificates names the file of its authority, or its \
             own"
                .to_owned()
        }
        // The type of this error is not public.
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            "the certificate of the server is one of an authority (CA:TRUE), as 'openssl req -x509' makes it; the option \
             -addext basicConstraints=critical,CA:FALSE makes one for a server"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

fn call_headers() -> HeaderMap {
    let grpc = (header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    HeaderMap::from_iter([grpc, (header::TE, HeaderValue::from_static("trailers"))])
}

fn roots(trusted: &TrustedCertificates) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match trusted {
        TrustedCertificates::OfSystem => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            ensure!(
                !roots.is_empty(),
                "the system trusts no certificates: name a file with --ca-certificates"
            );
        }
        TrustedCertificates::File(path) => {
            let cannot = || format!("cannot use the certificates of {}", path.display());
            let pem = fs::read(path).with_context(cannot)?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                roots.add(certificate.with_context(cannot)?).with_context(cannot)?;
            }
            ensure!(!roots.is_empty(), "{}: there are none", cannot());
        }
    }
    Ok(roots)
}

impl Connection for ServerStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            ServerStream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            ServerStream::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            ServerStream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            ServerStream::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        pieces: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            ServerStream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            ServerStream::Encrypted(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            ServerStream::Plain(stream) => stream.is_write_vectored(),
            ServerStream::Encrypted(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            ServerStream::Plain(stream) => Pin::new(stream).poll_flush(context),
            ServerStream::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            ServerStream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            ServerStream::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
