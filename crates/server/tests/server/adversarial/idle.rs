//! Ten thousand clients that connect to one port and want nothing, and heads in numbers.
use std::net::SocketAddr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testing::http::{Connection, TIMEOUT, request};

use crate::adversarial::{
    Served, asked,
    peer::{CONTINUATION, END_HEADERS, HEADERS, Peer, call_headers, frame},
};

/// How many connections the system permits, up to ten thousand.
fn many() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let permitted = limit.maximum.unwrap_or(u64::MAX).saturating_sub(500);
    usize::try_from(permitted).unwrap_or(usize::MAX).min(10_000)
}

#[test]
fn ten_thousand_idle_connections_on_each_port_take_little_memory() {
    let most = "--max-connections-per-address=10100";
    let limits = ["--max-connections=10100", "--metrics-max-connections=10100", most];
    let options = ["--allow-sagemaker=true", "--sagemaker-port=0"];
    let mut served = Served::empty(&[&limits[..], &options].concat());
    let sagemaker =
        SocketAddr::from(([127, 0, 0, 1], served.program.address_of("Sagemaker HTTPService").port()));
    let count = many();
    for (address, kibibytes) in [(served.http, 36), (served.metrics, 36), (sagemaker, 36), (served.grpc, 48)]
    {
        let before = served.mebibytes();
        let open = || if address == served.grpc { Peer::open(address, &[]) } else { Peer::silent(address) };
        let idle: Vec<_> = (0..count).map(|_| open()).collect();
        served.assert_others_are_answered();
        let grown = served.mebibytes().saturating_sub(before);
        let most = count as u64 * kibibytes / 1024;
        assert!(grown <= most, "{count} connections to {address} take {grown} MiB, not {most}");
        drop(idle);
    }
    served.assert_others_are_answered();
}

/// The ports of platforms have the limits of the others.
#[test]
fn slow_and_idle_clients_of_the_port_for_sagemaker_lose_their_connections() {
    let limits = ["--client-header-timeout-secs=0.3", "--client-idle-timeout-secs=0.2"];
    let options = ["--allow-sagemaker=true", "--sagemaker-port=0"];
    let served = Served::empty(&[&limits[..], &options].concat());
    let sagemaker =
        SocketAddr::from(([127, 0, 0, 1], served.program.address_of("Sagemaker HTTPService").port()));
    assert!(Connection::open(sagemaker).unwrap().is_closed_within(TIMEOUT), "silent");
    let endless = b"GET /ping HTTP/1.1\r\nX-Long: ".iter().copied().chain(std::iter::repeat(b'x'));
    let answer = Peer::silent(sagemaker).drip_until_answered(endless);
    assert!(answer.is_empty(), "{}", answer.escape_ascii());
    assert!(asked(sagemaker, "/ping", 200).is_closed_within(TIMEOUT), "idle");
}

#[test]
fn heads_have_a_largest_size_on_every_port() {
    let options = ["--allow-sagemaker=true", "--sagemaker-port=0"];
    let mut served = Served::empty(&options);
    let sagemaker =
        SocketAddr::from(([127, 0, 0, 1], served.program.address_of("Sagemaker HTTPService").port()));
    let before = served.mebibytes();
    let many: Vec<_> = (0..300).map(|index| format!("x-{index}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "1")).collect();
    let long = "x".repeat(100_000);
    for address in [served.http, served.metrics, sagemaker] {
        for headers in [&many[..], &[("x", long.as_str())]] {
            let mut connection = Connection::open(address).unwrap();
            // The server may close the connection before it has read everything.
            let _ = connection.send(&request("GET", "/", headers, b""));
            assert!(connection.receive("GET").map_or(431, |answer| answer.status) == 431);
        }
    }
    // A header block of HTTP/2 that does not end, in frames of the largest size.
    let mut peer = Peer::open(served.grpc, &[]);
    let field = [&[0x00, 1, b'x', 0x7f, 0x80, 0x7e][..], &[b'x'; 16255]].concat();
    peer.send(&frame(HEADERS, 0, 1, &call_headers("/x"))).unwrap();
    for _ in 0..2000 {
        if peer.send(&frame(CONTINUATION, 0, 1, &field)).is_err() {
            break;
        }
    }
    let _ = peer.send(&frame(CONTINUATION, END_HEADERS, 1, &[]));
    while peer.next().is_some() {}
    served.assert_others_are_answered();
    let grown = served.mebibytes().saturating_sub(before);
    assert!(grown < 32, "long heads take {grown} MiB");
}
