//! The signals of the process: SIGINT and SIGTERM ask the server to stop, SIGHUP asks it to reopen the log
//! file, to read the file of options again, and to look whether certificates and API keys have changed.
//!
//! After [`Signals::listen`], SIGINT and SIGTERM no longer end the process. The server reports the first of them. Of
//! later ones, only SIGINT counts: it ends the server at once. Some supervisors send SIGTERM several times. Rust's
//! start-up code ignores SIGPIPE, so writing to a closed connection is an ordinary error.

use std::io;
use std::sync::Arc;

use assembly::logging::{self, LogSettings};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::{AccessLogWriter, options_reload::OptionsReload};

/// Reopens the log file and the file of the access log at each SIGHUP, for ever. After the call SIGHUP no longer ends
/// the process. Must be called in a tokio runtime with I/O enabled.
///
/// # Errors
/// The system does not permit a handler for the signal.
pub fn reopen_logs_on_hangup(
    log: Arc<LogSettings>,
    access_log: watch::Receiver<Option<Arc<AccessLogWriter>>>,
) -> io::Result<impl Future<Output = ()>> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            let access_log = access_log.borrow().clone();
            access_log.inspect(|access_log| access_log.reopen());
            match log.reopen() {
                Ok(Some(path)) => log::info!("opened the log file '{}' anew (SIGHUP)", path.display()),
                Ok(None) => {
                    log::info!("the log is not in a file, so SIGHUP does not open it anew (--log-file)");
                }
                Err(error) => log::error!("the old log file stays open (SIGHUP): {error}"),
            }
        }
    })
}

/// Reads the file of options again at each SIGHUP, for ever. Must be called in a tokio runtime with I/O enabled.
///
/// # Errors
/// The system does not permit a handler for the signal.
pub fn reload_options_on_hangup(
    mut reload: OptionsReload,
    log: Arc<LogSettings>,
) -> io::Result<impl Future<Output = ()>> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            let log = Arc::clone(&log);
            let read = tokio::task::spawn_blocking(move || {
                reload.reload(&log);
                reload
            });
            let Ok(back) = read.await else { return };
            reload = back;
        }
    })
}

/// Calls `act` at each SIGHUP, for ever. Must be called in a tokio runtime with I/O enabled.
///
/// # Errors
/// The system does not permit a handler for the signal.
pub fn on_hangup(act: impl Fn()) -> io::Result<impl Future<Output = ()>> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            act();
        }
    })
}

/// The signals that ask for an orderly exit.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Starts to catch the signals. Must run inside a tokio runtime with I/O enabled.
    ///
    /// # Errors
    /// The system does not permit handlers for the signals.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the first signal, announces it on stdout as scripts expect (`Signal (15) received.`), and returns its
    /// number. Dropping the future before that loses no signal.
    pub async fn first(&mut self) -> i32 {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
        };
        let number = kind.as_raw_value();
        // A stdout that is closed, or that nobody reads, must not prevent the server from stopping.
        logging::to_stdout(format!("Signal ({number}) received.\n").as_bytes());
        number
    }

    /// Waits for the next SIGINT, such as a second Ctrl-C, and says that the server ends at once. Dropping the future
    /// before that loses no signal.
    pub async fn interrupted(&mut self) {
        self.interrupt.recv().await;
        logging::to_stdout(b"Signal (2) received again. The server ends at once.\n");
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal as Number, getpid, kill_process};

    use super::*;

    // This is one test, because signals belong to the whole process.
    #[test]
    fn either_signal_is_reported_and_a_later_one_does_not_end_the_process() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let mut signals = Signals::listen().unwrap();
            kill_process(getpid(), Number::TERM).unwrap();
            assert_eq!(signals.first().await, 15);
            kill_process(getpid(), Number::INT).unwrap();
            assert_eq!(signals.first().await, 2);
            kill_process(getpid(), Number::TERM).unwrap();
            kill_process(getpid(), Number::INT).unwrap();
            signals.interrupted().await;
        });
        kill_process(getpid(), Number::TERM).unwrap();
    }
}
