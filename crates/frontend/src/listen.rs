//! Binds the sockets of the endpoints.
//!
//! The server binds all ports before it loads the first model, so that a port conflict fails before the time for
//! loading is spent. Connections that arrive meanwhile wait in the backlog until the server accepts them.
use std::{
    io,
    net::{SocketAddr, TcpListener, ToSocketAddrs},
};

use inference::Error;
use socket2::{Domain, Protocol, Socket, Type};

/// The most connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Binds `address:port` and starts to listen. The listener does not block, because an asynchronous runtime needs that.
///
/// `address` is a host name or an IPv4 or IPv6 address. If a host name has several addresses, the first one counts.
/// With port 0 the system chooses the port. With `reuse_port`, other processes with the same setting may listen on the
/// same port.
///
/// # Errors
/// UNAVAILABLE, with the text of the reference if another socket uses the port.
pub fn bind(address: &str, port: u16, reuse_port: bool) -> Result<TcpListener, Error> {
    let host = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    let target = (host, port)
        .to_socket_addrs()
        .and_then(|mut found| found.next().ok_or_else(|| io::Error::other("the name has no address")))
        .map_err(|error| Error::unavailable(format!("cannot resolve address '{address}': {error}")))?;
    listen(target, reuse_port).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Error::unavailable(format!("Socket '{address}:{port}' already in use ")),
        _ => Error::unavailable(format!("cannot listen on '{address}:{port}': {error}")),
    })
}

fn listen(target: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted server may bind its port again although old connections are still in TIME_WAIT.
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&target.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_named() {
        let first = bind("127.0.0.1", 0, false).unwrap();
        let port = first.local_addr().unwrap().port();
        let error = bind("127.0.0.1", port, false).unwrap_err();
        assert_eq!(error.with_code(), format!("Unavailable: Socket '127.0.0.1:{port}' already in use "));
    }

    #[test]
    fn two_servers_may_share_a_port_if_both_allow_it() {
        let first = bind("127.0.0.1", 0, true).unwrap();
        let port = first.local_addr().unwrap().port();
        assert!(bind("127.0.0.1", port, true).is_ok());
        assert!(bind("127.0.0.1", port, false).is_err());
    }

    #[test]
    fn an_address_of_another_machine_is_refused_by_name() {
        let error = bind("192.0.2.1", 0, false).unwrap_err();
        assert!(error.message.starts_with("cannot listen on '192.0.2.1:0': "), "{error}");
    }

    #[test]
    fn brackets_around_an_ipv6_address_are_allowed() {
        // A machine without IPv6 refuses to create the socket, before it checks the address.
        if let Err(error) = bind("[::1]", 0, false) {
            assert!(error.message.starts_with("cannot listen on '[::1]:0'"), "{error}");
        }
    }
}
