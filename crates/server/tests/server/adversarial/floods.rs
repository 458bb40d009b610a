//! HTTP/2 frames in numbers that no client needs.
use crate::adversarial::{
    SERVER_LIVE, STREAM_INFER, Served,
    peer::{
        CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, Peer, RESET, SETTINGS, call,
        call_headers, frame,
    },
};

/// The ids of the streams that a client opens.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|index| 2 * index + 1)
}

#[test]
fn many_streams_on_few_connections_take_little_memory() {
    let mut served = Served::empty(&[]);
    let before = served.mebibytes();
    let flood: Vec<u8> = streams(16_000).flat_map(|stream| call(stream, STREAM_INFER, 0)).collect();
    let mut peers: Vec<_> = (0..4).map(|_| Peer::open(served.grpc, &[])).collect();
    for peer in &mut peers {
        // The server may close the connection before it has read everything.
        let _ = peer.send(&flood);
    }
    for peer in &mut peers {
        peer.wait_until_read();
    }
    served.assert_others_are_answered();
    let grown = served.mebibytes().saturating_sub(before);
    assert!(grown < 96, "64,000 streams take {grown} MiB");
    drop(peers);
    served.assert_others_are_answered();
}

#[test]
fn streams_that_are_reset_at_once_end_their_connection() {
    let mut served = Served::empty(&[]);
    let before = served.mebibytes();
    let flood: Vec<u8> = streams(10_000)
        .flat_map(|stream| [call(stream, STREAM_INFER, 0), frame(RESET, 0, stream, &[0, 0, 0, 8])].concat())
        .collect();
    let mut peer = Peer::open(served.grpc, &[]);
    let _ = peer.send(&flood);
    while peer.next().is_some() {}
    served.assert_others_are_answered();
    let grown = served.mebibytes().saturating_sub(before);
    assert!(grown < 64, "10,000 streams that were reset take {grown} MiB");
}

/// A client whose calls are answered may cancel other calls, as many as it likes.
#[test]
fn a_client_that_cancels_some_of_its_calls_keeps_its_connection() {
    let served = Served::empty(&["--grpc-max-concurrent-streams=8"]);
    let mut peer = Peer::open(served.grpc, &[]);
    let mut streams = streams(1000);
    while let (Some(answered), Some(reset)) = (streams.next(), streams.next()) {
        peer.send(&call(answered, SERVER_LIVE, 0)).unwrap();
        peer.send(&frame(DATA, END_STREAM, answered, &[0; 5])).unwrap();
        peer.send(&call(reset, STREAM_INFER, 0)).unwrap();
        peer.send(&frame(RESET, 0, reset, &[0, 0, 0, 8])).unwrap();
        let ended = peer.wait_for(|frame| {
            frame.stream == answered && frame.kind == HEADERS && frame.flags & END_STREAM != 0
        });
        assert!(ended.is_some(), "closed at stream {answered}");
    }
}

#[test]
fn pings_are_counted_as_the_options_of_grpc_say() {
    let ping = || frame(PING, 0, 0, &[7; 8]);
    let mut served = Served::empty(&[]);
    let mut peer = Peer::open(served.grpc, &[]);
    let _ = peer.send(&ping().repeat(4));
    assert_eq!(peer.reason_of_close().as_deref(), Some("too_many_pings"));
    // A ping that a call follows is no strike.
    let mut peer = Peer::open(served.grpc, &[]);
    for stream in streams(20) {
        peer.send(&ping()).unwrap();
        peer.send(&call(stream, SERVER_LIVE, 0)).unwrap();
        peer.send(&frame(DATA, END_STREAM, stream, &[0; 5])).unwrap();
        assert!(peer.wait_for(|frame| frame.stream == stream && frame.flags & END_STREAM != 0).is_some());
    }
    served.assert_others_are_answered();

    let served = Served::empty(&[
        "--grpc-http2-min-recv-ping-interval-without-data=0",
        "--grpc-keepalive-permit-without-calls=true",
    ]);
    let mut peer = Peer::open(served.grpc, &[]);
    peer.send(&ping().repeat(100)).unwrap();
    assert!(peer.wait_until_read());
}

#[test]
fn floods_of_frames_without_content_end_their_connections() {
    let mut served = Served::empty(&["--grpc-http2-max-ping-strikes=0"]);
    let before = served.mebibytes();
    let opened = call(1, STREAM_INFER, 0);
    let block = frame(HEADERS, 0, 1, &call_headers(STREAM_INFER));
    let floods = [
        ("pings", vec![], frame(PING, 0, 0, &[7; 8])),
        ("settings", vec![], frame(SETTINGS, 0, 0, &[])),
        ("priorities", vec![], frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("empty data", opened, frame(DATA, 0, 1, &[])),
        ("empty continuations", block, frame(CONTINUATION, 0, 1, &[])),
        ("unknown frames", vec![], frame(0x42, END_HEADERS, 0, &[])),
    ];
    for (name, begin, flood) in floods {
        let mut peer = Peer::open(served.grpc, &[]);
        peer.send(&begin).unwrap();
        let _ = peer.send(&flood.repeat(20_000));
        let mut frames = 0;
        while peer.next().is_some() {
            frames += 1;
        }
        assert!(frames < 10_000, "{name}: {frames} frames came back");
        served.assert_others_are_answered();
    }
    let grown = served.mebibytes().saturating_sub(before);
    assert!(grown < 64, "floods take {grown} MiB");
}
