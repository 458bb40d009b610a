//! What the server and its service manager (systemd) tell each other: sockets that the manager has opened, and how far the
//! server is. Without a manager nothing happens.
//!
//! Source of the contracts: sd_listen_fds(3) and sd_notify(3).
use std::{
    ffi::OsStr,
    io,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

use listenfd::ListenFd;
use vocabulary::Error;

/// The listening sockets that the service manager has opened, with their ports.
#[derive(Debug, Default)]
pub struct GivenSockets(Vec<(u16, TcpListener)>);

impl GivenSockets {
    /// Takes the sockets of the environment variable `LISTEN_FDS`, which it removes. Must be called before the first
    /// thread starts.
    ///
    /// # Errors
    /// INVALID_ARG if one of them is no TCP socket that listens.
    pub fn take() -> Result<Self, Error> {
        let mut inherited = ListenFd::from_env();
        let sockets = (0..inherited.len()).map(|index| {
            let refused = |error| {
                let text =
                    format!("socket {index} of the service manager is no TCP socket that listens: {error}");
                Error::invalid(text)
            };
            let socket = inherited.take_tcp_listener(index).map_err(refused)?;
            let socket = socket.ok_or_else(|| Error::internal("a socket of the service manager is gone"))?;
            let port = socket.local_addr().map_err(refused)?.port();
            Ok((port, socket))
        });
        sockets.collect::<Result<_, Error>>().map(Self)
    }

    /// The socket for an endpoint with this port, if there is one.
    pub(crate) fn remove(&mut self, port: u16) -> Option<TcpListener> {
        let index = self.0.iter().position(|(bound, _)| *bound == port)?;
        Some(self.0.swap_remove(index).1)
    }

    /// # Errors
    /// INVALID_ARG if a socket is left: its clients would wait for ever.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.0.first().map_or(Ok(()), |(port, _)| {
            Err(Error::invalid(format!(
                "the service manager has opened port {port}, but no endpoint of the server has this port"
            )))
        })
    }
}

/// Tells the service manager that the server serves.
pub fn notify_ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={status}\n"));
}

/// Tells the service manager that the server stops.
pub fn notify_stopping() {
    notify("STOPPING=1\n");
}

fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        log::warn!("the service manager cannot be told that the state has changed: {error}");
    }
}

/// Sends a state to a socket: that of a path, or behind an `@` a name that is in no directory.
fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_sent_to_a_socket_with_and_without_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("nereid-test-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        let by_path = SocketAddr::from_pathname(&path).unwrap();
        for (address, socket) in [(by_path, path.into_os_string()), (by_name, format!("@{name}").into())] {
            let manager = UnixDatagram::bind_addr(&address).unwrap();
            send(&socket, "READY=1\n").unwrap();
            let mut told = [0; 64];
            let length = manager.recv(&mut told).unwrap();
            assert_eq!(&told[..length], b"READY=1\n");
        }
    }

    #[test]
    fn an_endpoint_gets_the_socket_of_its_port_and_none_may_be_left() {
        let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let mut inherited = GivenSockets(vec![(port, socket)]);
        assert!(inherited.remove(port - 1).is_none());
        let taken = inherited.remove(port).unwrap();
        assert_eq!(taken.local_addr().unwrap().port(), port);
        inherited.finish().unwrap();
        let left = GivenSockets(vec![(port, taken)]).finish().unwrap_err();
        assert_eq!(
            left.message,
            format!(
                "the service manager has opened port {port}, but no endpoint of the server has this port"
            )
        );
    }
}
