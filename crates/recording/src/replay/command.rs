//! The command: it reads the recording, plays it and writes the report.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use super::call_target::CallKind;
use super::options::{self, ReplayOptions};
use super::player::CallPlayer;
use super::recorded_call::{self, CallBody, RecordedCall};
use super::report::ReplayReport;
use crate::event::CallProtocol;

/// Runs `nereid replay` to its end; blocks. The first argument is the program's name.
///
/// Writes the report or the help to `out`, and errors to `errors`. Returns the exit status: 0 if all answers are as
/// recorded, 1 if the file cannot be read or the server cannot be reached, 2 if the command line is wrong, 3 if an answer
/// differs or is missing.
pub fn run(arguments: impl IntoIterator<Item = OsString>, out: &mut dyn Write, errors: &mut dyn Write) -> u8 {
    let (written, status) = match options::parse(arguments) {
        // Clap does not say whose help it means.
        Err(error) if error.use_stderr() => {
            let text = error.to_string().replace("try '--help'", "try 'nereid replay --help'");
            (write!(errors, "{text}"), 2)
        }
        Err(help) => (write!(out, "{help}"), 0),
        Ok(options) => match replay(&options, out) {
            Ok(report) if report.different + report.failed > 0 => (Ok(()), 3),
            Ok(_) => (Ok(()), 0),
            Err(error) => (writeln!(errors, "error: {error:#}"), 1),
        },
    };
    // Writing fails only if the reader has closed the output. Then no message can reach the user.
    written.map_or(1, |()| status)
}

fn replay(options: &ReplayOptions, out: &mut dyn Write) -> Result<ReplayReport> {
    let calls: Arc<[RecordedCall]> = recorded_call::read(&options.file)?.into();
    let is_sent = |call: &RecordedCall| {
        !matches!(call.body, CallBody::Omitted) && (options.sends_all || call.target.kind != CallKind::Change)
    };
    let places: Vec<usize> = (0..calls.len()).filter(|&place| is_sent(&calls[place])).collect();
    ensure!(!places.is_empty(), "{} has no call that is sent", options.file.display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let player = CallPlayer::new(calls.clone(), options.clone())?;
    let played = runtime.block_on(player.play(&places))?;
    let report = ReplayReport::new(&calls, played, calls.len() - places.len(), options.speed);
    out.write_all(report.text(&servers(options, &calls)).as_bytes())?;
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report.json())?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    ensure!(report.answered > 0, "no call was answered");
    Ok(report)
}

/// The addresses that the calls go to.
fn servers(options: &ReplayOptions, calls: &[RecordedCall]) -> String {
    let sides = [(CallProtocol::Http, &options.http), (CallProtocol::Grpc, &options.grpc)];
    let used = sides.iter().filter(|(protocol, _)| calls.iter().any(|call| call.protocol == *protocol));
    used.map(|(_, server)| server.host.as_str()).collect::<Vec<_>>().join(" and ")
}
