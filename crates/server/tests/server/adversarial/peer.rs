//! A HTTP/2 client of single frames. It sends nothing on its own except acknowledgements of settings.
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use testing::{
    eventually,
    http::{TIMEOUT, connect_with_small_buffer},
};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// A connection.
pub(crate) struct Peer {
    stream: TcpStream,
    received: Vec<u8>,
    /// The bytes that the server has granted besides HTTP/2's default windows, by stream; 0 is the connection.
    granted: BTreeMap<u32, usize>,
}

impl Frame {
    /// Whether the server sends nothing more on the frame's stream.
    fn ends_stream(&self) -> bool {
        self.kind == RESET || (matches!(self.kind, HEADERS | DATA) && self.flags & END_STREAM != 0)
    }
}

/// HTTP/2's default window. The server's windows are no smaller.
const DEFAULT_WINDOW: usize = 65_535;

/// Encodes a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a gRPC call, compressed without tables.
pub(crate) fn call_headers(path: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    // :method POST, :scheme http, :path, content-type, te
    [
        &[0x83, 0x86, 0x04],
        &text(path)[..],
        &[0x0f, 0x10],
        &text("application/grpc"),
        &[0x00],
        &text("te"),
        &text("trailers"),
    ]
    .concat()
}

/// The HEADERS frame of a call.
pub(crate) fn call(stream: u32, path: &str, flags: u8) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, stream, &call_headers(path))
}

impl Peer {
    /// Connects and sends nothing. The kernel keeps little for a client that does not read.
    pub(crate) fn silent(address: SocketAddr) -> Self {
        let stream = connect_with_small_buffer(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { stream, received: Vec::new(), granted: BTreeMap::new() }
    }

    /// Connects with these settings: pairs of identifier and value.
    pub(crate) fn open(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let mut peer = Self::silent(address);
        let settings: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        peer.send(PREFACE).unwrap();
        peer.send(&frame(SETTINGS, 0, 0, &settings)).unwrap();
        peer
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends the same bytes repeatedly until the server closes the connection, whether or not the server reads them.
    /// Reads nothing.
    pub(crate) fn send_until_closed(&mut self, bytes: &[u8]) {
        self.stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut left = bytes;
        let mut is_closed = || {
            match self.stream.write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return true,
            }
            if left.is_empty() {
                left = bytes;
            }
            false
        };
        eventually("the end of a connection whose client reads nothing", || (0..1000).any(|_| is_closed()));
    }

    /// Sends the same bytes repeatedly until the server takes no more of them. Reads nothing.
    pub(crate) fn send_until_full(&mut self, bytes: &[u8]) {
        self.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut left = bytes;
        eventually("a connection that takes no more", || match self.stream.write(left) {
            Ok(count) => {
                left = &left[count..];
                if left.is_empty() {
                    left = bytes;
                }
                false
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        });
    }

    /// Sends one byte after the other, a few in each tenth of a second, until the server closes the connection or
    /// answers. Returns the answer.
    pub(crate) fn drip_until_answered(&mut self, mut bytes: impl Iterator<Item = u8>) -> Vec<u8> {
        self.stream.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
        let mut answer = vec![0; 4096];
        let mut len = 0;
        eventually("the end of a connection whose client sends byte after byte", || {
            if let Some(byte) = bytes.next()
                && self.stream.write_all(&[byte]).is_err()
            {
                return true;
            }
            match self.stream.read(&mut answer) {
                Ok(count) => len = count,
                Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            }
            true
        });
        answer.truncate(len);
        answer
    }

    /// Sends the only data of a stream and of its connection, as the windows permit it, or until the server ends the
    /// stream.
    pub(crate) fn send_data(&mut self, stream: u32, data: &[u8]) {
        let mut sent = 0;
        for piece in data.chunks(16_000) {
            while [0, stream].iter().any(|window| {
                sent + piece.len() > DEFAULT_WINDOW + self.granted.get(window).copied().unwrap_or_default()
            }) {
                match self.next() {
                    Some(frame) if frame.stream == stream && frame.ends_stream() => return,
                    Some(_) => {}
                    None => return,
                }
            }
            if self.send(&frame(DATA, 0, stream, piece)).is_err() {
                return;
            }
            sent += piece.len();
        }
    }

    /// The next frame. `None` when the server has closed the connection.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.cut() {
                if frame.kind == SETTINGS && frame.flags & ACK == 0 {
                    // Until the acknowledgement the server relies on HTTP/2's default windows only.
                    let _ = self.send(&self::frame(SETTINGS, ACK, 0, &[]));
                }
                if frame.kind == WINDOW_UPDATE {
                    let bytes = u32::from_be_bytes(frame.payload[..4].try_into().unwrap());
                    *self.granted.entry(frame.stream).or_default() += bytes as usize;
                }
                return Some(frame);
            }
            let mut buffer = [0; 64 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("the server neither sends nor closes")
                }
                Err(_) => return None,
            }
        }
    }

    /// The next frame that `wanted` accepts.
    pub(crate) fn wait_for(&mut self, wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        std::iter::from_fn(|| self.next()).find(|frame| wanted(frame))
    }

    /// Waits until the server has read everything so far: the server answers a ping after the frames before it.
    pub(crate) fn wait_until_read(&mut self) -> bool {
        self.send(&frame(PING, 0, 0, b"read all")).is_ok()
            && self.wait_for(|frame| frame.kind == PING && frame.flags == ACK).is_some()
    }

    /// Reads until the server closes the connection. Returns the reason in its GOAWAY frame, if it sent one. The code of
    /// the frame must be ENHANCE_YOUR_CALM.
    pub(crate) fn reason_of_close(&mut self) -> Option<String> {
        let mut reason = None;
        while let Some(frame) = self.next() {
            if frame.kind == GO_AWAY {
                assert_eq!(frame.payload[4..8], 0xb_u32.to_be_bytes());
                reason = Some(String::from_utf8_lossy(&frame.payload[8..]).into_owned());
            }
        }
        reason
    }

    fn cut(&mut self) -> Option<Frame> {
        let head = self.received.get(..9)?;
        let len = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        if self.received.len() < 9 + len {
            return None;
        }
        let payload = self.received.drain(..9 + len).skip(9).collect();
        Some(Frame { kind, flags, stream, payload })
    }
}
