//! A client that takes more than its share, in a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};

use super::server_contender::ServerContender;
use crate::python;

/// A client that takes more than its share, ended when dropped.
pub(super) struct AdversaryProcess {
    child: Child,
}

impl AdversaryProcess {
    /// Starts a program in Python and waits until it has taken its share once.
    pub(super) fn start(program: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = python::command();
        command.arg(program).args(arguments);
        let child = command.stdout(Stdio::piped()).spawn().context("cannot start Python")?;
        let mut adversary = Self { child };
        let output = adversary.child.stdout.take().context("its output is a pipe")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line.trim() == "begun", "the adversary {arguments:?} has ended early");
        Ok(adversary)
    }

    /// Starts one of the kinds that `bench/adversary.py` names.
    pub(super) fn of_kind(kind: &str, against: &ServerContender) -> Result<Self> {
        let ports = [against.http_port, against.grpc_port, against.metrics_port].map(|port| port.to_string());
        Self::start("bench/adversary.py", &[kind, &ports[0], &ports[1], &ports[2]])
    }
}

impl Drop for AdversaryProcess {
    fn drop(&mut self) {
        // Errors mean that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
