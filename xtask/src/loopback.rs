//! Ports of this machine, and requests to the servers that listen there.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process;
use std::time::Duration;

use anyhow::{Context, Result};

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Ports on which no program listens now.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

/// The first of three free ports in a row. The system gives them to nobody who asks for any port, nor to connections, so
/// that they are probably free when a server starts later.
pub(crate) fn free_port_base() -> Result<u16> {
    let count = first_dynamic_port().saturating_sub(LEAST_PORT) / 3;
    // Where the system gives out nearly all ports, there are no better ones.
    let count = if count == 0 { (u16::MAX - LEAST_PORT) / 3 } else { count };
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Processes that look at the same time begin at different places.
    let start = u16::try_from(process::id() % u32::from(count))?;
    let mut bases = (0..count).map(|place| LEAST_PORT + (start + place) % count * 3);
    bases.find(|base| (0..3).all(|place| is_free(base + place))).context("no three free ports in a row")
}

/// Ports below this one are of well-known services.
const LEAST_PORT: u16 = 10_000;

/// The first port that the system gives to those who ask for any.
fn first_dynamic_port() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768)
}

/// Status and body of a GET request on this machine.
pub(crate) fn http_get(port: u16, path: &str) -> Result<(u16, String)> {
    http(port, "GET", path)
}

/// Status and body of a POST request without a body on this machine.
pub(crate) fn http_post(port: u16, path: &str) -> Result<(u16, String)> {
    http(port, "POST", path)
}

fn http(port: u16, method: &str, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close");
    write!(stream, "{head}\r\nContent-Length: 0\r\n\r\n")?;
    let mut answer = BufReader::new(stream);
    let mut head = String::new();
    answer.read_line(&mut head)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.context("the answer is not HTTP")?;
    let mut length = None;
    loop {
        let mut line = String::new();
        answer.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse().context("the length of the answer is no number")?);
        }
    }
    // The connection may stay open: the processes that the reference server starts inherit its descriptors.
    let mut body = String::new();
    answer.take(length.unwrap_or(u64::MAX)).read_to_string(&mut body)?;
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let [a, b, c] = free_ports().unwrap();
        assert!(a != b && b != c && a != c);
    }

    #[test]
    fn three_free_ports_are_not_those_that_the_system_gives_out() {
        let base = free_port_base().unwrap();
        assert!(base >= LEAST_PORT);
        assert!(first_dynamic_port() < LEAST_PORT + 3 || base + 2 < first_dynamic_port());
        let _taken = TcpListener::bind(("127.0.0.1", base + 1)).unwrap();
        assert_ne!(free_port_base().unwrap(), base);
    }
}
