//! What the connections of all ports share: accepting, counting, and the limits that a client must keep.
//!
//! A client that is slow, silent or greedy may use up its own connection, and nothing else. [`ClientLimits`] says how long
//! a client may take, [`ConnectionSlots`] says how many connections there may be.
mod accept;
mod pace;
mod slots;
mod write_timeout;

use std::time::Duration;

pub(crate) use accept::{Port, accept, answer_and_close};
pub use pace::BodyPace;
pub(crate) use pace::BodyProgress;
pub use slots::{ConnectionSlots, SlotCounter};
pub(crate) use write_timeout::{Timed, WriteTimeout};

/// How long a client may take, and how much it may send. The defaults are those of the command line. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// A whole request head must arrive within that time (`--client-header-timeout-secs`). The first head of a connection
    /// counts from the beginning of the connection, later ones from their first byte.
    pub header_timeout: Option<Duration>,
    /// A connection that has no request for that time is closed (`--client-idle-timeout-secs`): after at least that time,
    /// and at most twice that time (P-W41).
    pub idle_timeout: Option<Duration>,
    /// How fast a request body must arrive (`--client-body-timeout-secs`, `--client-body-min-byte-size`).
    pub body_pace: Option<BodyPace>,
    /// A client that takes nothing for that time while bytes wait for it loses its connection or stream
    /// (`--client-write-timeout-secs`).
    pub write_timeout: Option<Duration>,
    /// Most bytes of a request body over HTTP, or of a message over gRPC (`--max-request-byte-size`), also after
    /// decompression.
    pub max_request_bytes: u64,
}

impl ClientLimits {
    /// The most that gRPC can frame for clients of all languages, which is also the limit of Triton over gRPC.
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
        }
    }
}
