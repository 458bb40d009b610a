//! What holds many, doubled: whether the cost grows with the work or with what stands around it.
//!
//! `bench/growth.py` measures, because it starts servers and clients as the client tests do.

use std::process::Stdio;

use anyhow::{Result, bail};

use super::backends::identity_backend;
use super::options::BenchOptions;
use super::results;
use super::table::table_head;
use crate::console::heading;
use crate::{files, process, python};

/// More than this for twice as many is a defect, or has a reason.
const MOST: f64 = 2.2;

/// Measures, prints and writes the table. Returns true if no row grows faster than the number of things.
pub(super) fn run(options: &BenchOptions) -> Result<bool> {
    heading("what grows with what");
    let (server, folder) = (options.server()?, results::folder()?.join("growth"));
    python::install("tests/requirements.txt")?;
    files::make_folder(&folder)?;
    let mut command = python::command();
    command.arg("bench/growth.py").arg(server).arg(identity_backend(&folder)?).arg(&folder);
    command.arg(options.rounds.to_string()).arg(&options.filter).stderr(Stdio::inherit());
    let rows = process::output(&mut command)?;
    let numbers = ["n", "ms for n", "ms for 2 n", "factor"];
    results::show("growth.md", &(table_head(&["of what"], &numbers) + &rows))?;
    let mut good = true;
    for row in rows.lines() {
        let factor =
            row.trim_end_matches([' ', '|']).rsplit('|').next().and_then(|cell| cell.trim().parse().ok());
        let Some(factor): Option<f64> = factor else { bail!("no factor in '{row}'") };
        good &= factor <= MOST;
    }
    Ok(good)
}
