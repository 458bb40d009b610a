//! What frameworks cost, each beside the bare library.
//!
//! `bench/frameworks.py` measures. The libraries are installed by name into a virtual environment in the target folder.

use std::process::{Command, Stdio};

use anyhow::Result;

use super::bare_programs;
use super::options::BenchOptions;
use super::results;
use super::table::table_head;
use crate::console::heading;
use crate::python::PythonEnvironment;
use crate::{files, process, workspace};

/// Measures, prints and writes the table.
pub(super) fn run(options: &BenchOptions) -> Result<bool> {
    heading("frameworks");
    let folder = workspace::target().join("frameworks");
    files::make_folder(&folder)?;
    let environment = PythonEnvironment::of("frameworks");
    environment.install("bench/frameworks.txt")?;
    let mut command = Command::new(environment.program("python"));
    command.current_dir(workspace::root()).env("PYTHONWARNINGS", "ignore");
    command.arg("bench/frameworks.py").env("FRAMEWORKS_FOLDER", &folder);
    command.env("FOREST_TIMES", bare_programs::build("forest", "forest_times")?);
    command.args(["--rounds", &options.rounds.to_string(), "--filter", &options.filter]);
    let rows = process::output(command.stderr(Stdio::inherit()))?;
    let numbers = ["ours us", "its library us", "treelite us", "ONNX Runtime us", "ours to the fastest"];
    results::show("frameworks.md", &(table_head(&["forest"], &numbers) + &rows))?;
    Ok(true)
}
