//! Connections: which clients are accepted, how TLS protects them, and how they end.
use std::{
    io,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::FutureExt;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf, join, sink},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::{
    grpc::transport::{PREFACE, Transport},
    port::tls::{ClientCertificateRules, TlsOptions, TlsPort, TlsProtocol, V1Certificate},
};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/port/tls/test_files").join(name)
}

fn encrypted(mutual: bool) -> Arc<TlsPort> {
    let options = TlsOptions {
        certificate: file("server.pem"),
        key: file("server.key"),
        client_roots: mutual.then(|| file("root.pem")),
        client_rules: ClientCertificateRules::default(),
    };
    port(options).unwrap()
}

fn port(options: TlsOptions) -> Result<Arc<TlsPort>, vocabulary::Error> {
    TlsPort::new("gRPC", options, TlsProtocol::Http2)
}

fn client_config(with_certificate: bool) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("root.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    if with_certificate {
        let chain = vec![CertificateDer::from_pem_file(file("client.pem")).unwrap()];
        builder
            .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(file("client.key")).unwrap())
            .unwrap()
    } else {
        builder.with_no_client_auth()
    }
}

/// The HTTP status of a call of `ServerLive` over an encrypted connection.
async fn encrypted_call(server: &Server, with_certificate: bool) -> io::Result<u16> {
    call_with(server, client_config(with_certificate)).await
}

async fn encrypt(server: &Server, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(server.address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

async fn call_with(server: &Server, mut config: ClientConfig) -> io::Result<u16> {
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = encrypt(server, config).await?;
    let (mut sender, connection): (SendRequest<Empty<Bytes>>, _) = http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let request = http::Request::post("https://localhost/inference.GRPCInferenceService/ServerLive")
        .header("content-type", "application/grpc")
        .body(Empty::new())
        .unwrap();
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    connection.abort();
    Ok(response.status().as_u16())
}

#[tokio::test]
async fn an_encrypted_port_serves_clients_that_trust_its_certificate() {
    let server = Server::start(GrpcOptions { tls: Some(encrypted(false)), ..GrpcOptions::default() }).await;
    assert_eq!(encrypted_call(&server, false).await.unwrap(), 200);
    // A client without TLS only sees the connection end.
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let ended = timeout(TIMEOUT, plain.read_to_end(&mut rest)).await.unwrap();
    assert!(ended.is_err() || rest.len() < 16, "{rest:?}");
}

#[tokio::test]
async fn an_encrypted_client_that_speaks_http1_gets_an_error_about_the_protocol() {
    let server = Server::start(GrpcOptions { tls: Some(encrypted(false)), ..GrpcOptions::default() }).await;
    // It agrees on no protocol.
    let mut stream = encrypt(&server, client_config(false)).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(TIMEOUT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 415 Unsupported Media Type\r\n"), "{answer}");
}

#[tokio::test]
async fn a_mutually_encrypted_port_wants_a_certificate() {
    let server = Server::start(GrpcOptions { tls: Some(encrypted(true)), ..GrpcOptions::default() }).await;
    assert_eq!(encrypted_call(&server, true).await.unwrap(), 200);
    assert!(timeout(TIMEOUT, encrypted_call(&server, false)).await.unwrap().is_err());
}

/// A verifier that trusts one known server certificate of version 1. rustls has no client verifier for such
/// certificates.
#[derive(Debug)]
struct Known(CertificateDer<'static>);

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        assert_eq!(certificate, &self.0);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = V1Certificate::read(certificate).unwrap().key_info();
        let algorithms = ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A client that trusts the server's certificate of version 1, and presents a certificate itself.
fn of_version_1(
    certificate: &str,
    key: &str,
    version: &'static rustls::SupportedProtocolVersion,
) -> ClientConfig {
    let key = PrivateKeyDer::from_pem_file(file(key)).unwrap();
    let key = ring::sign::any_supported_type(&key).unwrap();
    let own = CertifiedKey::new(vec![CertificateDer::from_pem_file(file(certificate)).unwrap()], key);
    let known = Known(CertificateDer::from_pem_file(file("server-v1.pem")).unwrap());
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(known))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
}

#[tokio::test]
async fn certificates_of_version_1_are_accepted_for_servers_and_clients() {
    let tls = TlsOptions {
        certificate: file("server-v1.pem"),
        key: file("server-v1.key"),
        client_roots: Some(file("root-v1.pem")),
        client_rules: ClientCertificateRules { allows_version_1: true, ..ClientCertificateRules::default() },
    };
    let encrypted = port(tls.clone()).unwrap();
    let server = Server::start(GrpcOptions { tls: Some(encrypted), ..GrpcOptions::default() }).await;
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let call = |certificate, key| call_with(&server, of_version_1(certificate, key, version));
        assert_eq!(call("client-v1.pem", "client-v1.key").await.unwrap(), 200, "{version:?}");
        // The first certificate names the root as issuer, but another key signed it. The second is signed by the root,
        // but the client has another key.
        for (certificate, key) in [("forged-v1.pem", "client-v1.key"), ("client-v1.pem", "server-v1.key")] {
            let refused = timeout(TIMEOUT, call(certificate, key)).await.unwrap();
            assert!(refused.is_err(), "{certificate} with {key}: {version:?}");
        }
    }
    let refusal = port(TlsOptions { key: file("client-v1.key"), ..tls }).unwrap_err().message;
    assert!(refusal.contains("cannot be used together"), "{refusal}");
}

#[tokio::test]
async fn an_http1_client_gets_an_error_about_the_protocol() {
    let (server, _connection) = connected().await;
    for request in ["GET / HTTP/1.1\r\nhost: x\r\n\r\n", "PROPFIND / HTTP/1.1\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(TIMEOUT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 415 Unsupported Media Type\r\n"), "{answer}");
    }
}

async fn plain(server: &Server) -> SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (sender, connection) =
        http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

#[tokio::test]
async fn a_request_that_is_not_grpc_is_refused_by_its_status() {
    let (server, _connection) = connected().await;
    let mut sender = plain(&server).await;
    let ask = |method: &str, content_type: &str| {
        http::Request::builder()
            .method(method)
            .uri("http://x/inference.GRPCInferenceService/ServerLive")
            .header("content-type", content_type)
            .body(Empty::new())
            .unwrap()
    };
    let json = sender.send_request(ask("POST", "application/json")).await.unwrap();
    assert_eq!(json.status(), 415);
    let text = json.into_body().collect().await.unwrap().to_bytes();
    assert!(
        text.starts_with(b"this port speaks gRPC (content-type: application/grpc); gRPC-Web"),
        "{text:?}"
    );
    let get = sender.send_request(ask("GET", "application/grpc")).await.unwrap();
    assert_eq!(get.status(), 405);
    // A call without a message fails.
    let empty = sender.send_request(ask("POST", "application/grpc")).await.unwrap();
    assert_eq!(empty.headers()["grpc-status"], "13");
    assert_eq!(empty.headers()["grpc-accept-encoding"], "identity, deflate, gzip");
    assert!(empty.into_body().collect().await.unwrap().to_bytes().is_empty());
}

/// The first windows of a connection: of a stream, and of the connection.
async fn windows_of(stream: &mut TcpStream) -> (u32, u32) {
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let (mut of_stream, mut of_connection) = (None, 65_535);
    loop {
        if let Some(of_stream) = of_stream
            && of_connection > 65_535
        {
            return (of_stream, of_connection);
        }
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        match (head[3], head[4]) {
            // SETTINGS_INITIAL_WINDOW_SIZE
            (4, 0) => payload.chunks(6).filter(|setting| setting[..2] == [0, 4]).for_each(|setting| {
                of_stream = Some(number(&setting[2..]));
            }),
            (8, _) => of_connection += number(&payload),
            // The server has read the client's settings.
            (4, 1) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn windows_come_from_an_eighth_of_the_budget() {
    for (inflight_bytes, first, last) in
        [(8 << 30, 16 << 20, 13 << 20), (256 << 20, 512 << 10, 400 << 10), (1 << 20, 128 << 10, 128 << 10)]
    {
        let limits = host::MemoryLimits { inflight_bytes, ..host::MemoryLimits::default() };
        let server = Server::start_within(GrpcOptions::default(), limits).await;
        let mut open = Vec::new();
        for _ in 0..10 {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let windows = timeout(TIMEOUT, windows_of(&mut stream)).await.unwrap();
            open.push((stream, windows));
        }
        let windows: Vec<_> = open.iter().map(|(_, windows)| *windows).collect();
        assert!(windows.iter().all(|(stream, connection)| *stream == connection / 2), "{windows:?}");
        assert_eq!(windows[0].1, first);
        assert!(windows.is_sorted_by(|one, next| one >= next) && windows[9].1 >= last, "{windows:?}");
    }
}

/// A client that sends DATA frames without an end, so that no read ever waits.
struct EndlessData;

impl AsyncRead for EndlessData {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A frame of 16,384 bytes of stream 1.
        let frame = [&[0, 0x40, 0, 0, 0, 0, 0, 0, 1][..], &[0; 16 << 10]].concat();
        buffer.put_slice(&frame);
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_client_that_sends_or_takes_more_and_more_lets_others_have_their_turn() {
    let server = Server::start(GrpcOptions::default()).await;
    let endpoint = GrpcContext::new(server.engine.clone(), GrpcOptions::default(), Drain::new()).unwrap();
    let stream = join(EndlessData, sink());
    let mut transport = Transport::new(stream, Bytes::from_static(PREFACE), &endpoint, Arc::default());
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..3 {
        let reads = (0..1000).map_while(|_| transport.read(&mut buffer).now_or_never());
        let read: usize = reads.map(Result::unwrap).sum();
        assert!((1 << 20..2 << 20).contains(&read), "{read} bytes in a row");
        let writes = (0..1000).map_while(|_| transport.write(&[0; 64 << 10]).now_or_never());
        let written: usize = writes.map(Result::unwrap).sum();
        assert_eq!(written, 1 << 20);
    }
}

/// Begins a call that waits at the gate. The task ends with the number of its messages and its status.
async fn held_call(server: &Server, connection: &Connection) -> JoinHandle<(usize, u32)> {
    let mut running = connection.call(INFER, &[]).await.unwrap();
    running.send(sent(&request("gated", "r", &[1])));
    running.finish();
    let running = tokio::spawn(async move {
        let (messages, status) = running.rest().await.unwrap();
        (messages.len(), status.code)
    });
    server.in_flight(1).await;
    running
}

#[tokio::test]
async fn a_stopping_endpoint_finishes_its_calls() {
    let (server, connection) = connected().await;
    let running = held_call(&server, &connection).await;
    let idle = server.connect().await;
    server.drain.begin();
    // The idle connection ends at once. The busy connection ends after its answer.
    let left = async {
        while !idle.is_closed() || server.drain.open() != 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, left).await.unwrap();
    server.gate.open();
    assert_eq!(timeout(TIMEOUT, running).await.unwrap().unwrap(), (1, 0));
    timeout(TIMEOUT, server.serving).await.unwrap().unwrap().unwrap();
    assert_eq!(server.drain.open(), 0);
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn an_announced_stop_ends_connections_after_their_calls_and_accepts_others() {
    let (server, connection) = connected().await;
    let running = held_call(&server, &connection).await;
    let idle = server.connect().await;
    server.drain.announce();
    let left = async {
        while !idle.is_closed() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, left).await.unwrap();
    // A client that comes again can use its connection.
    let late = server.connect().await;
    for number in [1, 2, 3] {
        assert!(infer(&late, &[], &request("id_int32", "", &[number])).await.is_ok());
    }
    server.gate.open();
    assert_eq!(timeout(TIMEOUT, running).await.unwrap().unwrap(), (1, 0));
    assert!(!server.serving.is_finished());
    server.drain.begin();
    timeout(TIMEOUT, server.serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_silent_client_does_not_delay_the_stop() {
    let (server, connection) = connected().await;
    let _silent = TcpStream::connect(server.address).await.unwrap();
    let mut halfway = TcpStream::connect(server.address).await.unwrap();
    halfway.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    // The server accepted this connection after the other two.
    assert!(infer(&connection, &[], &request("id_int32", "", &[1])).await.is_ok());
    assert!(infer(&server.connect().await, &[], &request("id_int32", "", &[1])).await.is_ok());
    server.drain.begin();
    timeout(TIMEOUT, server.serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_beyond_its_age_gets_goaway_and_is_then_closed() {
    let options = GrpcOptions {
        max_connection_age: Some(Duration::from_millis(20)),
        max_connection_age_grace: Some(Duration::from_millis(20)),
        ..GrpcOptions::default()
    };
    let server = Server::start(options).await;
    // On a slow machine, a connection may be too old before its first call.
    while server.gate.arrived() == 0 {
        let connection = server.connect().await;
        let Ok(mut call) = connection.call(INFER, &[]).await else { continue };
        call.send(sent(&request("gated", "", &[1])));
        call.finish();
        // The call takes longer than the age and the grace time together.
        assert!(timeout(TIMEOUT, call.rest()).await.unwrap().is_err());
    }
    assert!(timeout(TIMEOUT, server.drain.emptied()).await.is_ok());
    server.gate.open();
}
