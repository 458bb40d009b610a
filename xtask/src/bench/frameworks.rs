//! What frameworks cost, each beside the bare library.
//!
//! `bench/frameworks.py` measures forests. Their libraries are installed by name into a virtual environment in the target
//! folder. An example of the crate `backend-openvino` measures what the backend adds to the calls of OpenVINO's C interface,
//! and `bench/pytorch.py` what the backend in Python adds to a network of PyTorch.

use std::fmt::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::bare_programs;
use super::options::BenchOptions;
use super::results;
use super::table::table_head;
use crate::console::heading;
use crate::python::PythonEnvironment;
use crate::tools::openvino_library;
use crate::{files, process, tools, workspace};

/// Models of OpenVINO: the file, and what it computes.
const OPENVINO_MODELS: [(&str, &str); 2] =
    [("affine.xml", "OpenVINO, 4 numbers"), ("network.xml", "OpenVINO, 3 layers of 8")];
const BATCHES: [u32; 3] = [1, 8, 64];

/// Measures, prints and writes the tables.
pub(super) fn run(options: &BenchOptions) -> Result<bool> {
    heading("frameworks");
    let numbers = ["ours us", "its library us", "treelite us", "ONNX Runtime us", "ours to the fastest"];
    let forests = table_head(&["forest"], &numbers) + &forest_rows(options)?;
    let calls = table_head(&["model", "rows"], &["ours us", "its C calls us", "added us"]);
    let calls = calls + &openvino_rows(options)?;
    let numbers = ["ours us", "the network us", "with NumPy us", "added us"];
    let networks = table_head(&["network, in Python"], &numbers) + &pytorch_rows(options)?;
    results::show("frameworks.md", &format!("{forests}\n{calls}\n{networks}"))?;
    Ok(true)
}

fn forest_rows(options: &BenchOptions) -> Result<String> {
    let folder = workspace::target().join("frameworks");
    files::make_folder(&folder)?;
    let environment = PythonEnvironment::of("frameworks");
    environment.install("bench/frameworks.txt")?;
    let mut command = Command::new(environment.program("python"));
    command.current_dir(workspace::root()).env("PYTHONWARNINGS", "ignore");
    command.arg("bench/frameworks.py").env("FRAMEWORKS_FOLDER", &folder);
    command.env("FOREST_TIMES", bare_programs::build("forest", "forest_times")?);
    command.args(["--rounds", &options.rounds.to_string(), "--filter", &options.filter]);
    process::output(command.stderr(Stdio::inherit()))
}

/// Backend and calls take turns within the program, which keeps the least of many rounds.
fn openvino_rows(options: &BenchOptions) -> Result<String> {
    let program = bare_programs::build("backend-openvino", "ov_overhead")?;
    let library = openvino_library::fetch()?;
    let mut rows = String::new();
    for (file, name) in OPENVINO_MODELS.iter().filter(|(_, name)| name.contains(&options.filter)) {
        let model = workspace::root().join("crates/backend-openvino/tests/models").join(file);
        for batch in BATCHES {
            let mut command = Command::new(&program);
            command.arg("--model").arg(&model).args(["--rows", &batch.to_string()]);
            let printed = process::output(command.env(openvino_library::VARIABLE, &library))?;
            let us = |name| bare_programs::figure(&printed, name).map(|nanoseconds| nanoseconds / 1000.0);
            let (wrapped, bare, added) = (us("wrapped_ns")?, us("bare_ns")?, us("added_ns")?);
            writeln!(rows, "| {name} | {batch} | {wrapped:.2} | {bare:.2} | {added:.2} |")?;
        }
    }
    Ok(rows)
}

fn pytorch_rows(options: &BenchOptions) -> Result<String> {
    // That of the tests, because PyTorch takes 4 GB.
    let interpreters = tools::fetch(tools::PYTORCH)?;
    let (_, python) = interpreters.first().context("no interpreter has PyTorch")?;
    let mut command = Command::new(python);
    command.current_dir(workspace::root()).arg("bench/pytorch.py");
    command.args(["--rounds", &options.rounds.to_string(), "--filter", &options.filter]);
    process::output(command.stderr(Stdio::inherit()))
}
