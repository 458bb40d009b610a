//! What the connections of all ports share: accepting, counting, and the limits that a client must keep.
//!
//! A client that is slow or idle, or that sends too much, may use up only its own connection. [`ClientLimits`] limits
//! how long a client may take, and `ClientTimeout` how long when the server stops. [`ConnectionSlots`] limits the number
//! of connections, also those from one address.
mod accept;
mod client_timeout;
mod handshake;
mod pace;
mod slots;
mod stream;
mod write_timeout;

use std::{sync::Arc, time::Duration};

pub(crate) use accept::{Port, accept, answer_and_close};
pub(crate) use client_timeout::{ClientTimeout, idle_while_draining};
pub(crate) use handshake::{encrypted, handshake_in_time};
pub use pace::BodyPace;
pub(crate) use pace::{BodyProgress, LateBody};
pub(crate) use slots::NoSlot;
pub use slots::{ConnectionSlots, SlotCounter};
pub(crate) use stream::ClientStream;
pub(crate) use write_timeout::{StreamProgress, Timed, WriteTimeout};

use crate::{http::OriginRules, tls::TlsPort};

/// How an HTTP port treats its connections.
#[derive(Debug, Clone)]
pub struct PortOptions {
    /// The limits that clients must keep.
    pub limits: ClientLimits,
    /// How many connections there may be. Handshakes count, too.
    pub slots: ConnectionSlots,
    /// Encrypts the connections. `None` for plain text.
    pub tls: Option<Arc<TlsPort>>,
    /// Which web pages may send requests.
    pub origin_rules: Arc<OriginRules>,
}

impl PortOptions {
    /// Plain text, with these limits. No foreign web page may send requests.
    pub fn plain(limits: ClientLimits, slots: ConnectionSlots) -> Self {
        Self { limits, slots, tls: None, origin_rules: Arc::default() }
    }
}

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
        }
    }
}
