//! The command itself: reads the command line, tunes, and writes what was found.
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::options::{self, TuneOptions};
use crate::report;
use crate::scratch::CONFIG_FILE;
use crate::served::Interruption;
use crate::tuning;

/// Runs the command to its end; blocks. The first argument is the program's name. `request_rows` is the most rows of a
/// request to a model whose batch size the server completes. `interruption` ends it early, with what was measured. The
/// result goes to `out`, progress and errors go to `err`. Returns the exit code.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    request_rows: u32,
    interruption: &Interruption,
    (out, err): (&mut dyn Write, &mut dyn Write),
) -> u8 {
    let (written, status) = match options::parse(arguments) {
        // Clap does not say whose help it means.
        Err(error) if error.use_stderr() => {
            let text = error.to_string().replace("try '--help'", "try 'nereid tune --help'");
            (write!(err, "{text}"), 2)
        }
        Err(help) => (write!(out, "{help}"), 0),
        Ok(options) => match run_with(options, request_rows, interruption, err) {
            Ok(text) => (write!(out, "{text}"), 0),
            Err(error) => (writeln!(err, "error: {error:#}"), 1),
        },
    };
    // Writing fails only if the reader has closed the output. Then no message can reach the user.
    written.map_or(1, |()| status)
}

fn run_with(
    options: TuneOptions,
    request_rows: u32,
    interruption: &Interruption,
    err: &mut dyn Write,
) -> Result<String> {
    let program = std::env::current_exe().context("cannot find the program itself")?;
    let target = config_of(&options);
    // Before minutes of measurements, not after them.
    report::check_writable(&options.output)?;
    if let Some(folder) = target.parent().filter(|_| options.writes) {
        report::check_writable(folder)?;
    }
    let mut result = tuning::tune(options, &program, request_rows, interruption, err)?;
    report::write(&mut result)?;
    let mut text = report::summary(&mut result);
    let folder = result.options.output.display();
    text.push_str(&format!("wrote {folder}/config.pbtxt and {folder}/report.html\n"));
    if result.options.writes {
        report::write_file(&target, &result.tuned_text)?;
        text.push_str(&format!("wrote {}\n", target.display()));
    }
    Ok(text)
}

/// The configuration of the model in the user's repository.
fn config_of(options: &TuneOptions) -> PathBuf {
    let mut folders = options.repositories.iter().map(|repository| repository.join(&options.model));
    folders.find(|folder| folder.is_dir()).unwrap_or_default().join(CONFIG_FILE)
}
