//! What a client must keep to.
use std::time::Duration;

use super::pace::BodyPace;

/// The time limits and the size limit for a client. The defaults are those of the command line. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// A whole request head must arrive within that time (`--client-header-timeout-secs`). The time of the first head
    /// starts with the connection. The time of a later head starts with its first byte.
    pub header_timeout: Option<Duration>,
    /// The server closes a connection that has no request for that time (`--client-idle-timeout-secs`). It closes the
    /// connection after at least that time, and at most twice that time (P-W41).
    pub idle_timeout: Option<Duration>,
    /// How fast a request body must arrive (`--client-body-timeout-secs`, `--client-body-min-byte-size`).
    pub body_pace: Option<BodyPace>,
    /// If bytes wait for a client, and the client reads nothing for that time, the server ends its connection or stream
    /// (`--client-write-timeout-secs`).
    pub write_timeout: Option<Duration>,
    /// The most bytes of a request body over HTTP, or of a message over gRPC (`--max-request-byte-size`). The limit
    /// also applies after decompression.
    pub max_request_bytes: u64,
    /// A connection of HTTP gives its buffers back when it has had no request for that time, and at the latest after twice
    /// that time. No option sets it.
    pub buffers_kept: Duration,
}

impl ClientLimits {
    /// The longest message that gRPC clients of all languages can send. It is also Triton's limit over gRPC.
    pub const MAX_REQUEST_BYTES: u64 = i32::MAX as u64;
}

impl Default for ClientLimits {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            header_timeout: Some(minute),
            idle_timeout: Some(Duration::from_secs(3600)),
            body_pace: Some(BodyPace { period: minute, min_bytes: 4096 }),
            write_timeout: Some(minute),
            max_request_bytes: Self::MAX_REQUEST_BYTES,
            buffers_kept: Duration::from_secs(1),
        }
    }
}
