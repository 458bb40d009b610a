//! An HTTP/1.1 client that sends exactly the given bytes and returns every received byte.
//!
//! The client blocks, so that a test reads like its exchange. It waits for an answer no longer than [`TIMEOUT`].
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use socket2::{Domain, SockRef, Socket, Type};

/// How long a read waits before it fails.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Bytes that were received and not yet consumed.
    pending: Vec<u8>,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The first line.
    pub status_line: String,
    /// The status code.
    pub status: u16,
    /// Headers in order, as on the wire.
    pub headers: Vec<(String, String)>,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of the first header of that name. The comparison ignores case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body as text, with replacement characters for bytes that are not UTF-8.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A request with a Host header and, if there is a body, its length.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if !body.is_empty() {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// Connects, and lets the kernel keep about 64 KiB that were received and not read. Without this bound the kernel
/// decides, and some systems keep tens of megabytes.
///
/// # Errors
/// No server listens at the address.
pub fn connect_with_small_buffer(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_recv_buffer_size(64 << 10)?;
    socket.connect(&address.into())?;
    Ok(socket.into())
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// No server listens at the address.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        Self::over(TcpStream::connect(address)?)
    }

    /// Connects from this address of the machine. Port 0 lets the system choose.
    ///
    /// # Errors
    /// No server listens at the address, or the machine does not have `from`.
    pub fn open_from(from: SocketAddr, address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.bind(&from.into())?;
        socket.connect(&address.into())?;
        Self::over(socket.into())
    }

    /// As [`open`](Self::open), over a socket of [`connect_with_small_buffer`].
    ///
    /// # Errors
    /// No server listens at the address.
    pub fn open_with_small_buffer(address: SocketAddr) -> io::Result<Self> {
        Self::over(connect_with_small_buffer(address)?)
    }

    fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, pending: Vec::new() })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Closes the sending side: the server reads the end of the stream.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn finish(&self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    /// Closes the connection with a reset: the server learns at once that the client has gone.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn reset(self) -> io::Result<()> {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))
    }

    /// Reads the response to a request that was sent with `method`.
    ///
    /// # Errors
    /// `UnexpectedEof` with an empty message if the connection was closed before the first byte. Otherwise the defect
    /// of the response.
    pub fn receive(&mut self, method: &str) -> io::Result<Response> {
        let head = self.head()?;
        let mut lines = head.split("\r\n");
        let status_line = lines.next().unwrap_or_default().to_owned();
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| broken(format!("no status in '{status_line}'")))?;
        let headers: Vec<_> = lines
            .map(|line| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned())))
            .collect::<Option<_>>()
            .ok_or_else(|| broken("a header without a colon"))?;
        let mut response = Response { status_line, status, headers, body: Vec::new() };
        let bodiless = method == "HEAD" || status < 200 || status == 204 || status == 304;
        response.body = if bodiless {
            Vec::new()
        } else if response.header("Transfer-Encoding") == Some("chunked") {
            self.chunks()?
        } else if let Some(length) = response.header("Content-Length") {
            let length = length.parse().map_err(|_| broken(format!("a Content-Length of '{length}'")))?;
            self.take(length)?
        } else {
            self.rest()?
        };
        Ok(response)
    }

    /// Sends a request and reads its response.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        self.send(&request(method, path, headers, body))?;
        self.receive(method)
    }

    /// Reads until the server closes the connection. Returns the received bytes.
    ///
    /// # Errors
    /// The server keeps the connection open for [`TIMEOUT`]. A reset counts as a close.
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        loop {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return Ok(std::mem::take(&mut self.pending)),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Ok(std::mem::take(&mut self.pending));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the server closes the connection within the time `patience` without sending another byte.
    pub fn is_closed_within(&mut self, patience: Duration) -> bool {
        if !self.pending.is_empty() || self.stream.set_read_timeout(Some(patience)).is_err() {
            return false;
        }
        let closed = match self.fill() {
            Ok(more) => !more,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        };
        closed && self.stream.set_read_timeout(Some(TIMEOUT)).is_ok()
    }

    /// Reads up to the end of a head. Returns it without its empty line.
    fn head(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.pending.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = self.pending.drain(..end + 4).take(end).collect();
                return String::from_utf8(head).map_err(|_| broken("a head that is not text"));
            }
            if !self.fill()? {
                return Err(if self.pending.is_empty() {
                    io::ErrorKind::UnexpectedEof.into()
                } else {
                    io::Error::new(io::ErrorKind::UnexpectedEof, "closed within a head")
                });
            }
        }
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.pending.len() < length {
            if !self.fill()? {
                let text = format!("closed after {} of {length} bytes of a body", self.pending.len());
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
        }
        Ok(self.pending.drain(..length).collect())
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let length =
                usize::from_str_radix(&line, 16).map_err(|_| broken(format!("a chunk of '{line}'")))?;
            body.extend(self.take(length)?);
            if !self.line()?.is_empty() {
                return Err(broken("a chunk that is longer than it says"));
            }
            if length == 0 {
                return Ok(body);
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.pending.windows(2).position(|window| window == b"\r\n") {
                let line = self.pending.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).map_err(|_| broken("a line that is not text"));
            }
            if !self.fill()? {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed within a chunked body"));
            }
        }
    }

    /// Reads once. Returns false at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        let count = self.stream.read(&mut buffer)?;
        self.pending.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }
}

fn broken(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    /// A connection to a server that sends these bytes and closes.
    fn connection_receiving(bytes: &'static [u8]) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || listener.accept().unwrap().0.write_all(bytes).unwrap());
        Connection::open(address).unwrap()
    }

    #[test]
    fn responses_are_cut_as_their_heads_say() {
        let mut connection = connection_receiving(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n\
              3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nrest",
        );
        let first = connection.receive("GET").unwrap();
        assert_eq!(
            (first.status, first.text().as_str(), first.header("content-length")),
            (200, "hi", Some("2"))
        );
        let second = connection.receive("GET").unwrap();
        assert_eq!((second.status, second.text().as_str()), (404, "abc0123456789"));
        assert_eq!(connection.receive("POST").unwrap().status_line, "HTTP/1.1 100 Continue");
        assert_eq!(connection.receive("POST").unwrap().text(), "rest");
        assert!(connection.is_closed_within(TIMEOUT));
    }

    #[test]
    fn a_cut_response_is_told_from_none() {
        let cut = connection_receiving(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi")
            .receive("GET")
            .unwrap_err();
        assert_eq!(cut.to_string(), "closed after 2 of 9 bytes of a body");
        let none = connection_receiving(b"").receive("GET").unwrap_err();
        assert_eq!(
            (none.kind(), none.to_string().as_str()),
            (io::ErrorKind::UnexpectedEof, "unexpected end of file")
        );
    }
}
