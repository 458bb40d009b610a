//! Starts a server and ends it with the test.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a server may take until it accepts connections. Node and Python are slow on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server process, which ends when this is dropped.
pub(crate) struct StoreServer {
    child: Child,
    pub(crate) port: u16,
}

/// The path of a program from an environment variable. Prints why a test does nothing without it.
pub(crate) fn program(variable: &str) -> Option<PathBuf> {
    let program = std::env::var_os(variable).map(PathBuf::from);
    if program.is_none() {
        eprintln!("skipped: {variable} does not name the program of the server; `cargo xtask test` sets it");
    }
    program
}

impl StoreServer {
    /// Starts a command that `prepare` completes for a free port, and waits until it accepts connections.
    pub(crate) fn start(mut command: Command, prepare: impl FnOnce(&mut Command, u16)) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        prepare(&mut command, port);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut server = Self { child, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("the server ended with {status}");
            }
            assert!(start.elapsed() < START_TIMEOUT, "the server does not accept connections");
            sleep(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
