//! Starts a server and ends it with the test.

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use testing::{TestProcess, command, eventually};

/// A server process, which ends when this is dropped.
pub(crate) struct StoreServer {
    _process: TestProcess,
    pub(crate) port: u16,
}

/// The command for the program that an environment variable names.
///
/// # Panics
/// The variable is not set.
pub(crate) fn program(variable: &str) -> Command {
    let Some(program) = std::env::var_os(variable) else {
        panic!("{variable} does not name the program of the server: 'cargo xtask integrations' sets it")
    };
    command(program)
}

impl StoreServer {
    /// Starts a command that `prepare` completes for a free port, and waits until it accepts connections.
    pub(crate) fn start(mut command: Command, prepare: impl FnOnce(&mut Command, u16)) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        prepare(&mut command, port);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = TestProcess::start(&mut command).unwrap();
        eventually("the server to accept connections", || {
            let ended = process.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended: {ended:?}");
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self { _process: process, port }
    }
}
