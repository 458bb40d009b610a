//! What replicas cost behind HAProxy, Envoy and Ray Serve, beside one server without any of them.
//!
//! `bench/fronts.py` measures, because it starts servers and what is in front of them as the client tests do.

use std::process::Stdio;

use anyhow::Result;

use super::options::BenchOptions;
use super::results;
use super::table::table_head;
use crate::console::heading;
use crate::tools::{self, runtime_library};
use crate::{process, python};

/// Measures, prints and writes the table. A request that is not answered is an error.
pub(super) fn run(options: &BenchOptions) -> Result<bool> {
    heading("replicas");
    let server = options.server()?;
    python::install("tests/requirements.txt")?;
    let mut command = python::command();
    command.arg("bench/fronts.py").env("NEREID_BINARY", server);
    command.env(runtime_library::VARIABLE, runtime_library::fetch()?);
    command.envs(tools::fetch(tools::FRONTS)?).envs(tools::fetch(tools::RAY)?);
    command.args(["--rounds", &options.rounds.to_string(), "--seconds", &options.seconds.to_string()]);
    command.args(["--filter", &options.filter]).stderr(Stdio::inherit());
    let rows = process::output(&mut command)?;
    let numbers = [
        "req/s",
        "p50 us",
        "p99 us",
        "servers us/req",
        "front us/req",
        "Ray's replicas us/req",
        "rest us/req",
    ];
    results::show("replicas.md", &(table_head(&["way", "protocol"], &numbers) + &rows))?;
    Ok(true)
}
