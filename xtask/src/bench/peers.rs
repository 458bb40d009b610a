//! What users would pick instead: the same model behind MLServer, LitServe, BentoML, Ray Serve and FastAPI, beside ours and
//! Triton.
//!
//! `bench/peers.py` measures. It installs what each server needs by name, into virtual environments in the target folder.

use std::process::Stdio;

use anyhow::Result;

use super::backends::reference_backends;
use super::options::BenchOptions;
use super::results;
use super::table::table_head;
use crate::console::heading;
use crate::tools::{debian_program, runtime_library};
use crate::{files, process, python, workspace};

/// Measures, prints and writes the table. A request that is not answered is an error.
pub(super) fn run(options: &BenchOptions) -> Result<bool> {
    heading("peers");
    let server = options.server()?;
    python::install("tests/requirements.txt")?;
    let folder = workspace::target().join("peers");
    files::make_folder(&folder)?;
    let mut command = python::command();
    command.arg("bench/peers.py").env("NEREID_BINARY", server).env("PEERS_FOLDER", &folder);
    command.env(runtime_library::VARIABLE, runtime_library::fetch()?);
    command.env("PEERS_WRK", debian_program::WRK.fetch()?);
    match &options.reference {
        Some(packages) => {
            let backends = reference_backends(packages, &folder)?;
            command.env("PEERS_REFERENCE", packages).env("PEERS_BACKENDS", backends);
        }
        None => println!("without the reference server: name its site-packages folder with --reference"),
    }
    command.args(["--rounds", &options.rounds.to_string(), "--seconds", &options.seconds.to_string()]);
    command.args(["--filter", &options.filter]).stderr(Stdio::inherit());
    let picture = results::folder()?.join("peers.svg");
    command.arg("--picture").arg(&picture);
    let rows = process::output(&mut command)?;
    let numbers = ["callers", "req/s", "p50 us", "p99 us", "processor us/req"];
    results::show("peers.md", &(table_head(&["server"], &numbers) + &rows))?;
    println!("drawn in {}", picture.display());
    Ok(true)
}
