//! A log that nobody reads holds up neither requests nor the stop.
use std::{
    io::{BufRead, BufReader, PipeReader, pipe},
    net::SocketAddr,
    path::Path,
    process::Stdio,
};

use rustix::process::{Pid, Signal, kill_process};
use testing::{Repository, TestProcess, command, http::Connection};

/// More than the pipe and the queue of the log take.
const REQUESTS: usize = 2000;

/// A program whose two streams are one pipe, as under a container runtime.
struct Unread {
    program: TestProcess,
    log: BufReader<PipeReader>,
    _repository: Repository,
}

impl Unread {
    fn start() -> (Self, SocketAddr) {
        let repository = Repository::empty().unwrap();
        let (reader, writer) = pipe().unwrap();
        let mut command = command(Path::new(env!("CARGO_BIN_EXE_nereid")));
        command
            .arg(format!("--model-repository={}", repository.path().display()))
            .args([
                "--http-address=127.0.0.1",
                "--http-port=0",
                "--allow-grpc=false",
                "--allow-metrics=false",
            ])
            .args(["--log-verbose=1", "--exit-timeout-secs=3600"])
            .stdin(Stdio::null())
            .stdout(writer.try_clone().unwrap())
            .stderr(writer);
        let program = TestProcess::start(&mut command).unwrap();
        // The command holds the ends for writing.
        drop(command);
        let mut unread = Self { program, log: BufReader::new(reader), _repository: repository };
        let line = unread.read_until("Started HTTPService at ");
        let address = line.trim_end().trim_end_matches('"').rsplit(' ').next().unwrap();
        (unread, address.parse().unwrap())
    }

    /// Reads to the line with these words, and no further than a buffer behind it.
    fn read_until(&mut self, words: &str) -> String {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "the log ends without '{words}'");
        }
        line
    }

    fn end(mut self) {
        let id = Pid::from_raw(i32::try_from(self.program.id()).unwrap()).unwrap();
        kill_process(id, Signal::TERM).unwrap();
        let status = self.program.wait().unwrap();
        assert_eq!(status.code(), Some(0), "the program ended with {status}");
    }
}

/// Each request has a line with its path.
fn ask(address: SocketAddr) {
    let path = format!("/v2/models/{}/ready", "x".repeat(1000));
    let mut connection = Connection::open(address).unwrap();
    for _ in 0..REQUESTS {
        assert_eq!(connection.ask("GET", &path, &[], b"").unwrap().status, 400);
    }
}

#[test]
fn requests_and_the_stop_do_not_wait_for_a_log_that_nobody_reads() {
    let (mut unread, address) = Unread::start();
    ask(address);
    // Who reads on learns what is missing.
    let told = unread.read_until("lines of the log were dropped");
    assert!(!told.contains(" 0 lines"), "{told}");
    ask(address);
    unread.end();
}
