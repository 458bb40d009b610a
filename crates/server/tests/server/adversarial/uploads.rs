//! Uploads that are refused before they are there: from many clients at once, also from such that never end.
use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, tcp::OwnedReadHalf},
    task::JoinHandle,
};

use crate::adversarial::Served;

/// The clients of each kind.
const CLIENTS: usize = 200;

/// The most memory that all of them may take, in MiB.
const MOST: u64 = 20;

const UNKNOWN: &str = "POST /v2/models/none/infer";

fn head(request: &str, length: usize) -> Vec<u8> {
    let headers = format!("Host: x\r\nInference-Header-Content-Length: 5\r\nContent-Length: {length}");
    format!("{request} HTTP/1.1\r\n{headers}\r\n\r\n").into_bytes()
}

/// A client that sends as much as the server takes.
struct EndlessClient {
    answer: String,
    _reading: OwnedReadHalf,
    sending: JoinHandle<()>,
}

impl EndlessClient {
    async fn begin(address: SocketAddr) -> Self {
        let (mut reading, mut writing) = TcpStream::connect(address).await.unwrap().into_split();
        writing.write_all(&head(UNKNOWN, 1 << 50)).await.unwrap();
        let sending = tokio::spawn(async move { while writing.write_all(&[0; 64 << 10]).await.is_ok() {} });
        let mut answer = vec![0; 4096];
        let len = reading.read(&mut answer).await.unwrap_or_default();
        answer.truncate(len);
        Self { answer: String::from_utf8(answer).unwrap(), _reading: reading, sending }
    }
}

#[test]
fn endless_uploads_take_little_memory_and_do_not_hold_up_a_stop() {
    let mut served = Served::empty(&["--max-connections-per-address=1000"]);
    let before = served.mebibytes();
    let beginning: Vec<_> =
        (0..CLIENTS).map(|_| served.runtime.spawn(EndlessClient::begin(served.http))).collect();
    let clients: Vec<_> =
        beginning.into_iter().map(|client| served.runtime.block_on(client).unwrap()).collect();
    for client in &clients {
        assert!(client.answer.starts_with("HTTP/1.1 404 "), "{}", client.answer);
        assert!(client.answer.contains("\r\nConnection: close\r\n"), "{}", client.answer);
    }
    (0..100).for_each(|_| served.assert_others_are_answered());
    let grown = served.mebibytes().saturating_sub(before);
    assert!(grown <= MOST, "{CLIENTS} endless uploads take {grown} MiB");
    assert!(clients.iter().any(|client| !client.sending.is_finished()), "the server reads on");
    served.stop();
}

/// Sends everything before it reads. Returns the answer.
async fn upload(address: SocketAddr, request: &'static str, bytes: usize) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    connection.write_all(&head(request, bytes)).await?;
    connection.write_all(&vec![0; bytes]).await?;
    let mut answer = vec![0; 4096];
    let len = connection.read(&mut answer).await?;
    answer.truncate(len);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn no_client_loses_the_refusal_of_its_upload() {
    let mut served = Served::echoing(&["--max-connections-per-address=1000", "--max-inflight-bytes=1000000"]);
    let refuse = |served: &mut Served, address, request, status| {
        let uploads: Vec<_> =
            (0..CLIENTS / 4).map(|_| served.runtime.spawn(upload(address, request, 5 << 20))).collect();
        for upload in uploads {
            let answer = served.runtime.block_on(upload).unwrap().unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        }
        served.assert_others_are_answered();
    };
    let before = served.mebibytes();
    for (address, request, status) in [
        (served.http, UNKNOWN, 404),
        (served.http, "POST /v2/health/live", 405),
        (served.metrics, "POST /metrics", 405),
    ] {
        refuse(&mut served, address, request, status);
    }
    let grown = served.mebibytes().saturating_sub(before);
    assert!(grown <= MOST, "refused uploads take {grown} MiB");
    // The bodies of these begin to be read, each into a buffer of its connection.
    let http = served.http;
    refuse(&mut served, http, "POST /v2/models/echo/infer", 503);
    served.stop();
}
