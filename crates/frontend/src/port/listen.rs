//! Binds the sockets of the endpoints.
//!
//! The server binds all ports before it loads the first model, so that a port conflict fails before the time for
//! loading is spent. It listens when the models have been tried: until then connections are refused, as in Triton.
use std::{
    fmt, io,
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
};

use socket2::{Domain, Protocol, Socket, Type};
use vocabulary::Error;

use super::unix_socket::{self, SocketFile};

/// The most connections that may wait to be accepted: as many as the system permits (`net.core.somaxconn`).
const BACKLOG: i32 = i32::MAX;

/// A socket that has an address and does not listen yet.
#[derive(Debug)]
pub struct BoundSocket {
    socket: Socket,
    /// The file of a unix socket.
    file: Option<SocketFile>,
    /// Address and port as they were given.
    shown_address: String,
}

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// On a port.
    Tcp(TcpListener),
    /// On a file.
    Unix(UnixListener, SocketFile),
}

/// Where a listener listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointAddress {
    /// A port.
    Tcp(SocketAddr),
    /// The file of a unix socket.
    Unix(PathBuf),
}

/// The file that an address of the form `unix:<path>` or `unix://<absolute path>` names. `None` for other addresses. The
/// forms are those of gRPC.
pub fn unix_path(address: &str) -> Option<&Path> {
    let path = address.strip_prefix("unix:")?;
    Some(Path::new(path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path)))
}

/// The host in an address: without `ipv4:` or `ipv6:` before it, and without brackets. The forms are those of gRPC.
pub fn host_of(address: &str) -> &str {
    let host = address.strip_prefix("ipv4:").or_else(|| address.strip_prefix("ipv6:")).unwrap_or(address);
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

impl BoundSocket {
    /// Binds `address:port`.
    ///
    /// `address` is a host name or an IPv4 or IPv6 address, perhaps behind `ipv4:` or `ipv6:`. If a host name has
    /// several addresses, the first one counts. With port 0 the system chooses the port. With `reuse_port`, other
    /// processes with the same setting may listen on the same port.
    ///
    /// # Errors
    /// UNAVAILABLE, with the text of the reference if another socket listens on the port.
    pub fn bind(address: &str, port: u16, reuse_port: bool) -> Result<Self, Error> {
        let shown_address = format!("{address}:{port}");
        let is_of_the_family = |found: &SocketAddr| match address.split_once(':') {
            Some(("ipv4", _)) => found.is_ipv4(),
            Some(("ipv6", _)) => found.is_ipv6(),
            _ => true,
        };
        let target = (host_of(address), port)
            .to_socket_addrs()
            .and_then(|mut found| {
                let fitting = found.find(is_of_the_family);
                fitting.ok_or_else(|| io::Error::other("there is no such address of this family"))
            })
            .map_err(|error| Error::unavailable(format!("cannot resolve address '{address}': {error}")))?;
        let socket = bind(target, reuse_port).map_err(|error| refusal(&shown_address, &error))?;
        Ok(Self { socket, file: None, shown_address })
    }

    /// Binds the file `path`, which gets the permissions `mode`. A file that an ended server has left behind is
    /// replaced.
    ///
    /// # Errors
    /// UNAVAILABLE if another server uses the file, if it is no socket, or if it cannot be made.
    pub fn bind_unix(path: &Path, mode: u32) -> Result<Self, Error> {
        let shown_address = format!("unix:{}", path.display());
        let (socket, file) =
            unix_socket::bind(path, mode).map_err(|error| refusal(&shown_address, &error))?;
        Ok(Self { socket, file: Some(file), shown_address })
    }

    /// A socket that another program, such as a service manager, has bound to a port for this server.
    ///
    /// # Errors
    /// UNAVAILABLE if the socket cannot be used.
    pub fn from_listener(listener: TcpListener) -> Result<Self, Error> {
        let refused = |error: io::Error| Error::unavailable(format!("cannot use a given socket: {error}"));
        let shown_address = listener.local_addr().map_err(refused)?.to_string();
        listener.set_nonblocking(true).map_err(refused)?;
        Ok(Self { socket: listener.into(), file: None, shown_address })
    }

    /// Begins to listen. The listener does not block, because an asynchronous runtime needs that.
    ///
    /// # Errors
    /// UNAVAILABLE: another socket has begun to listen on the port since it was bound.
    pub fn listen(self) -> Result<Listener, Error> {
        self.socket.listen(BACKLOG).map_err(|error| refusal(&self.shown_address, &error))?;
        Ok(match self.file {
            None => Listener::Tcp(self.socket.into()),
            Some(file) => Listener::Unix(self.socket.into(), file),
        })
    }
}

impl Listener {
    /// Where clients reach the listener.
    ///
    /// # Errors
    /// The system does not know the address.
    pub fn address(&self) -> io::Result<EndpointAddress> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(EndpointAddress::Tcp),
            Self::Unix(_, file) => Ok(EndpointAddress::Unix(file.path().to_owned())),
        }
    }
}

impl EndpointAddress {
    /// The address and port. `None` for a unix socket.
    pub fn port(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

fn bind(target: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted server may bind its port again although old connections are still in TIME_WAIT. A port that the system
    // chooses belongs to nobody else, also before anybody listens.
    socket.set_reuse_address(target.port() != 0)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&target.into())?;
    Ok(socket)
}

fn refusal(shown_address: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => Error::unavailable(format!("Socket '{shown_address}' already in use ")),
        _ => Error::unavailable(format!("cannot listen on '{shown_address}': {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_taken_port_is_named() {
        let first = listener("127.0.0.1", 0, false).unwrap();
        let port = port_of(&first);
        let error = BoundSocket::bind("127.0.0.1", port, false).unwrap_err();
        assert_eq!(error.with_code(), format!("Unavailable: Socket '127.0.0.1:{port}' already in use "));
    }

    #[test]
    fn a_bound_socket_refuses_connections_until_it_listens() {
        let bound = BoundSocket::bind("127.0.0.1", 0, false).unwrap();
        let address = bound.socket.local_addr().unwrap().as_socket().unwrap();
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let _listener = bound.listen().unwrap();
        assert!(TcpStream::connect(address).is_ok());
    }

    #[test]
    fn of_two_sockets_with_one_port_one_may_listen() {
        let port = port_of(&listener("127.0.0.1", 0, false).unwrap());
        let first = BoundSocket::bind("127.0.0.1", port, false).unwrap();
        let second = BoundSocket::bind("127.0.0.1", port, false).unwrap();
        let _listener = first.listen().unwrap();
        assert!(second.listen().unwrap_err().message.contains("already in use"));
    }

    fn port_of(listener: &Listener) -> u16 {
        listener.address().unwrap().port().unwrap().port()
    }

    fn listener(address: &str, port: u16, reuse_port: bool) -> Result<Listener, Error> {
        BoundSocket::bind(address, port, reuse_port)?.listen()
    }

    #[test]
    fn two_servers_may_share_a_port_if_both_allow_it() {
        let first = listener("127.0.0.1", 0, true).unwrap();
        let port = port_of(&first);
        assert!(listener("127.0.0.1", port, true).is_ok());
        assert!(listener("127.0.0.1", port, false).is_err());
    }

    #[test]
    fn an_address_of_another_machine_is_refused_by_name() {
        let error = listener("192.0.2.1", 0, false).unwrap_err();
        assert!(error.message.starts_with("cannot listen on '192.0.2.1:0': "), "{error}");
    }

    #[test]
    fn brackets_around_an_ipv6_address_and_its_family_are_allowed() {
        for address in ["[::1]", "ipv6:[::1]", "ipv6:::1"] {
            // A machine without IPv6 refuses to create the socket, before it checks the address.
            if let Err(error) = listener(address, 0, false) {
                assert!(error.message.starts_with(&format!("cannot listen on '{address}:0'")), "{error}");
            }
        }
    }

    #[test]
    fn an_address_may_name_its_family() {
        let listening = listener("ipv4:127.0.0.1", 0, false).unwrap();
        assert!(listening.address().unwrap().port().unwrap().ip().is_loopback());
        for wrong in ["ipv6:127.0.0.1", "ipv4:[::1]"] {
            let error = BoundSocket::bind(wrong, 0, false).unwrap_err();
            let expected =
                format!("cannot resolve address '{wrong}': there is no such address of this family");
            assert_eq!(error.message, expected);
        }
    }

    #[test]
    fn an_address_may_name_a_unix_socket() {
        for (address, path) in [
            ("unix:/run/a", Some("/run/a")),
            ("unix:///run/a", Some("/run/a")),
            ("unix:a/b", Some("a/b")),
            ("unix://a", Some("//a")),
            ("unix", None),
            ("127.0.0.1", None),
        ] {
            assert_eq!(unix_path(address), path.map(Path::new), "{address}");
        }
    }
}
