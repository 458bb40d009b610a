//! The command: it opens the ports and the file, and waits for the end.

use std::ffi::OsString;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::{Semaphore, watch};

use super::options::{self, RecordOptions};
use super::proxy::{ProxyContext, ProxyPort};
use super::recorder::Recorder;
use crate::event::CallProtocol;

/// How often the command looks whether the recording is complete, to say so.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// Resolves when the recording has to end.
pub type RecordingEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs `nereid record` until `end` resolves; blocks. The first argument is the program's name. `end` is called in the
/// runtime of the recording.
///
/// Writes the help to `out`, what happens and errors to `errors`. Returns the exit status: 0 if all was recorded, 1 if the
/// file cannot be written or a port is not free, 2 if the command line is wrong.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    end: impl FnOnce() -> std::io::Result<RecordingEnd>,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> u8 {
    let (written, status) = match options::parse(arguments) {
        // Clap does not say whose help it means.
        Err(error) if error.use_stderr() => {
            let text = error.to_string().replace("try '--help'", "try 'nereid record --help'");
            (write!(errors, "{text}"), 2)
        }
        Err(help) => (write!(out, "{help}"), 0),
        Ok(options) => match record(&options, end, errors) {
            Ok(()) => (Ok(()), 0),
            Err(error) => (writeln!(errors, "error: {error:#}"), 1),
        },
    };
    // Writing fails only if the reader has closed the output. Then no message can reach the user.
    written.map_or(1, |()| status)
}

/// How long the end waits for tasks that block, such as the search of a host name.
const LAST_TASKS: Duration = Duration::from_secs(1);
/// How long the end waits until the file has taken everything.
const LAST_WRITES: Duration = Duration::from_secs(30);

fn record(
    options: &RecordOptions,
    end: impl FnOnce() -> std::io::Result<RecordingEnd>,
    errors: &mut dyn Write,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (recorder, thread) = Recorder::start(options)?;
    let recorder = Arc::new(recorder);
    runtime.block_on(pass_calls(options, &recorder, end, errors))?;
    let figures = recorder.figures();
    // The connections that have not ended hold the recorder, too.
    runtime.shutdown_timeout(LAST_TASKS);
    drop(recorder);
    thread.join(LAST_WRITES)?;
    let file = options.file.display();
    writeln!(errors, "recorded {} calls in {file}; {} bodies were left out", figures.calls, figures.omitted)?;
    Ok(())
}

/// Serves the ports until `end` resolves.
async fn pass_calls(
    options: &RecordOptions,
    recorder: &Arc<Recorder>,
    end: impl FnOnce() -> std::io::Result<RecordingEnd>,
    errors: &mut dyn Write,
) -> Result<()> {
    let context = ProxyContext {
        recorder: recorder.clone(),
        has_answers: options.has_answers,
        connections: Arc::new(Semaphore::new(options.max_connections)),
    };
    let (ending, ended) = watch::channel(());
    let mut ports = tokio::task::JoinSet::new();
    for (side, protocol) in [(&options.http, CallProtocol::Http), (&options.grpc, CallProtocol::Grpc)] {
        let Some((listen, server)) = side else { continue };
        let port = ProxyPort::open(listen, server, protocol, context.clone()).await?;
        let name = if protocol == CallProtocol::Http { "HTTP" } else { "gRPC" };
        writeln!(errors, "recording {name} at {} for {}", port.address()?, server.host)?;
        let mut ended = ended.clone();
        // It fails when the sender is dropped, which is the end.
        ports.spawn(port.serve(async move { while ended.changed().await.is_ok() {} }));
    }
    let mut end = end().context("cannot watch for signals")?;
    tokio::select! {
        () = &mut end => {}
        () = complete(recorder) => {
            writeln!(errors, "nothing more is recorded; calls are still passed on")?;
            end.await;
        }
    }
    drop(ending);
    while ports.join_next().await.is_some() {}
    Ok(())
}

/// Returns when nothing more is recorded.
async fn complete(recorder: &Recorder) {
    let mut looks = tokio::time::interval(LOOKS_EVERY);
    while !recorder.is_complete() {
        looks.tick().await;
    }
}
