//! Clients of ports with TLS that do not finish their handshakes, or that abuse what comes after it.
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use testing::{
    Program, Repository, eventually,
    http::{Connection, TIMEOUT, request},
};

use crate::adversarial::{
    SERVER_LIVE, STREAM_INFER,
    peer::{DATA, END_STREAM, GO_AWAY, PREFACE, Peer, RESET, SETTINGS, call, frame},
};

/// The program with TLS on every port.
struct Encrypted {
    program: Program,
    http: SocketAddr,
    grpc: SocketAddr,
    metrics: SocketAddr,
    _repository: Repository,
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../frontend/src/port/tls/test_files").join(name)
}

impl Encrypted {
    fn start(arguments: &[&str]) -> Self {
        let repository = Repository::empty().unwrap();
        let tls = ["http", "grpc", "metrics"].iter().flat_map(|port| {
            [
                format!("--{port}-use-ssl=true"),
                format!("--{port}-server-cert={}", file("server.pem").display()),
                format!("--{port}-server-key={}", file("server.key").display()),
            ]
        });
        let tls: Vec<_> = tls.collect();
        let all: Vec<_> = tls.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        let program =
            Program::start(Path::new(env!("CARGO_BIN_EXE_nereid")), repository.path(), &all).unwrap();
        let [http, grpc, metrics] = ["HTTPService", "GRPCInferenceService", "Metrics Service"]
            .map(|service| program.address_of(service));
        Self { program, http, grpc, metrics, _repository: repository }
    }

    fn ports(&self) -> [SocketAddr; 3] {
        [self.http, self.grpc, self.metrics]
    }

    /// Checks that a client that does what it should is answered.
    fn assert_others_are_answered(&self) {
        assert!(get(self.http, "/v2/health/live").unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(get(self.metrics, "/metrics").unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
    }
}

/// An encrypted connection.
fn encrypt(address: SocketAddr, protocol: &[u8]) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("root.pem")).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut stream =
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// The whole answer to a request that is the only one of its connection.
fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = encrypt(address, b"http/1.1")?;
    stream.write_all(&request("GET", path, &[("Connection", "close")], b""))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The first half of a ClientHello: the heads of its record and of its message, and some of its bytes.
fn half_a_client_hello() -> Vec<u8> {
    let mut half = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    half.resize(256, 7);
    half
}

#[test]
fn a_handshake_that_does_not_go_on_ends_its_connection() {
    let served = Encrypted::start(&["--client-header-timeout-secs=0.3"]);
    for address in served.ports() {
        let mut halfway = Connection::open(address).unwrap();
        halfway.send(&half_a_client_hello()).unwrap();
        assert!(halfway.is_closed_within(TIMEOUT));
        assert!(Connection::open(address).unwrap().is_closed_within(TIMEOUT), "silent");
        let mut drips = Peer::silent(address);
        drips.drip_until_answered(half_a_client_hello().into_iter().chain(std::iter::repeat(7)));
    }
    served.assert_others_are_answered();
}

#[test]
fn a_client_without_tls_is_refused_at_once() {
    // Only the client decides how long it takes.
    let served = Encrypted::start(&["--client-header-timeout-secs=0", "--client-idle-timeout-secs=0"]);
    for address in served.ports() {
        for begin in [&request("GET", "/", &[], b"")[..], PREFACE, b"\x80\x2e\x01\x00\x02"] {
            let mut plain = Connection::open(address).unwrap();
            plain.send(begin).unwrap();
            // At most an alert comes back before the end.
            let rest = plain.rest().unwrap();
            assert!(rest.len() < 16, "{}: {}", begin.escape_ascii(), rest.escape_ascii());
        }
    }
    served.assert_others_are_answered();
}

#[test]
fn the_port_for_sagemaker_is_encrypted_like_that_of_http() {
    let served = Encrypted::start(&["--allow-sagemaker=true", "--sagemaker-port=0"]);
    let port = served.program.address_of("Sagemaker HTTPService").port();
    let sagemaker = SocketAddr::from(([127, 0, 0, 1], port));
    assert!(get(sagemaker, "/ping").unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(Connection::open(sagemaker).unwrap().ask("GET", "/ping", &[], b"").is_err());
}

#[test]
fn handshakes_count_as_connections() {
    let served = Encrypted::start(&["--http-max-connections=3", "--max-connections-per-address=100"]);
    let mut halfway: Vec<_> = (0..3).map(|_| Connection::open(served.http).unwrap()).collect();
    halfway.iter_mut().for_each(|halfway| halfway.send(&half_a_client_hello()).unwrap());
    // A refused client of TLS gets no answer, because it could not read it.
    let mut surplus = Connection::open(served.http).unwrap();
    assert!(surplus.is_closed_within(TIMEOUT));
    assert!(get(served.http, "/v2/health/live").is_err());
    drop(halfway);
    eventually("the places of ended handshakes", || {
        get(served.http, "/v2/health/live").is_ok() && get(served.metrics, "/metrics").is_ok()
    });
    served.assert_others_are_answered();
}

#[test]
fn thousands_of_half_handshakes_take_little_memory() {
    const COUNT: usize = 3000;
    const LIMITS: [&str; 2] = ["--metrics-max-connections=4000", "--max-connections-per-address=4000"];
    // Each port is that of a server of its own: a server notices later that the connections of another port have ended.
    for port in 0..3 {
        let served = Encrypted::start(&LIMITS);
        served.assert_others_are_answered();
        let before = served.program.resident_bytes().unwrap() >> 20;
        let address = served.ports()[port];
        let mut halfway: Vec<_> = (0..COUNT).map(|_| Peer::silent(address)).collect();
        halfway.iter_mut().for_each(|peer| peer.send(&half_a_client_hello()).unwrap());
        served.assert_others_are_answered();
        let grown = (served.program.resident_bytes().unwrap() >> 20).saturating_sub(before);
        assert!(grown < 128, "{COUNT} half handshakes take {grown} MiB");
    }
}

#[test]
fn clients_that_connect_and_go_again_and_again_leave_nothing_behind() {
    let served = Encrypted::start(&["--max-connections=50", "--max-connections-per-address=50"]);
    for address in served.ports() {
        for _ in 0..300 {
            Peer::silent(address).send(&half_a_client_hello()).unwrap();
        }
        drop(encrypt(served.grpc, b"h2"));
    }
    // The server may need a moment to notice the closed connections.
    eventually("the places of ended handshakes", || {
        get(served.http, "/v2/health/live").is_ok() && get(served.metrics, "/metrics").is_ok()
    });
    served.assert_others_are_answered();
}

#[test]
fn streams_that_are_reset_at_once_end_an_encrypted_connection_too() {
    let served = Encrypted::start(&[]);
    let mut stream = encrypt(served.grpc, b"h2").unwrap();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])[..]].concat()).unwrap();
    let reset = |stream| [call(stream, STREAM_INFER, 0), frame(RESET, 0, stream, &[0, 0, 0, 8])].concat();
    let flood: Vec<u8> = (0..10_000).flat_map(|index| reset(2 * index + 1)).collect();
    let _ = stream.write_all(&flood);
    let mut rest = Vec::new();
    // The connection may end with a reset.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.windows(4).any(|bytes| bytes[3] == GO_AWAY) || stream.write_all(&[0; 1 << 20]).is_err());
    // Others may call.
    let mut stream = encrypt(served.grpc, b"h2").unwrap();
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[])[..], &call(1, SERVER_LIVE, 0)].concat();
    stream.write_all(&begin).unwrap();
    stream.write_all(&frame(DATA, END_STREAM, 1, &[0; 5])).unwrap();
    let mut answer = [0; 512];
    assert!(stream.read(&mut answer).unwrap() > 0);
    served.assert_others_are_answered();
}

#[test]
fn the_heads_of_an_encrypted_port_have_limits() {
    let served = Encrypted::start(&["--client-header-timeout-secs=0.5", "--client-idle-timeout-secs=0.3"]);
    let many: Vec<_> = (0..300).map(|index| (format!("x-{index}"), "1".to_owned())).collect();
    let many: Vec<_> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let long = "x".repeat(100_000);
    for address in [served.http, served.metrics] {
        for headers in [&many[..], &[("x", long.as_str())]] {
            let mut stream = encrypt(address, b"http/1.1").unwrap();
            // The server may close the connection before it has read everything.
            let _ = stream.write_all(&request("GET", "/metrics", headers, b""));
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "), "{}", answer.escape_ascii());
        }
        // A head that does not end, and a client without a request.
        for begin in [&b"GET /metrics HTTP/1.1\r\n"[..], b""] {
            let mut stream = encrypt(address, b"http/1.1").unwrap();
            stream.write_all(begin).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
            assert!(stream.sock.take_error().unwrap().is_none());
        }
    }
    served.assert_others_are_answered();
}
