//! What all ports share: sockets, TLS, how connections are accepted and counted, what a client must keep to, and the stop.
//!
//! A client that is slow or idle, or that sends too much, may use up only its own connection. [`ClientLimits`] limits
//! how long a client may take, and `ClientTimeout` how long when the server stops. [`ConnectionPermits`] limits the number
//! of connections, also those from one address.
mod accept;
mod accept_queue;
mod client_limits;
mod client_timeout;
mod client_timer;
mod drain;
mod freed_memory;
mod half_close;
mod handshake;
mod inline_wake;
mod io_turn;
mod linger;
mod listen;
mod pace;
mod permits;
mod readable;
mod reload;
mod spare_file;
mod stream;
pub mod tls;
mod unix_socket;
mod write_timeout;

pub(crate) use accept::{Port, accept, answer_and_close};
pub use client_limits::ClientLimits;
pub(crate) use client_timeout::{ClientTimeout, idle_while_draining};
pub(crate) use client_timer::ClientTimer;
pub use drain::Drain;
pub(crate) use freed_memory::connection_has_freed;
pub use freed_memory::connections_have_freed_much;
pub(crate) use half_close::HalfCloseStream;
pub(crate) use handshake::{encrypted, handshake_in_time};
pub(crate) use io_turn::IoTurn;
pub(crate) use linger::linger;
pub use listen::{BoundSocket, EndpointAddress, Listener, host_of, unix_path};
pub use pace::BodyPace;
pub(crate) use pace::{BodyProgress, LateBody};
pub(crate) use permits::NoPermit;
pub use permits::{ConnectionCounter, ConnectionPermits};
pub(crate) use readable::Readable;
pub(crate) use reload::FileBacked;
pub use reload::{Reload, ReloadThread};
pub(crate) use stream::ClientStream;
pub use unix_socket::SocketFile;
pub(crate) use write_timeout::{StreamProgress, TimedStream, WriteTimeout};
