//! `nereid tune`: finds the best settings of a model. SIGINT and SIGTERM end it early, with what was measured.
use std::{
    ffi::OsString,
    io,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    thread,
};

use tune::served::Interruption;

use super::streams::{Streams, fail};
use crate::{backend_settings::REQUEST_ROWS, signals::Signals};

/// Runs the command; blocks. The first argument is the program's name. Returns the exit code.
pub(super) fn run(arguments: impl Iterator<Item = OsString>, (out, err): Streams<'_>) -> u8 {
    let interrupted = Arc::new(AtomicBool::new(false));
    if let Err(error) = watch_signals(interrupted.clone()) {
        return fail(format_args!("cannot watch for signals: {error}"), err);
    }
    tune::run(arguments, REQUEST_ROWS, &Interruption(interrupted), (out, err))
}

/// Notes the first signal that asks for the end. The thread lives as long as the process.
fn watch_signals(interrupted: Arc<AtomicBool>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::listen()?
    };
    let watch = move || {
        runtime.block_on(signals.first());
        interrupted.store(true, Ordering::Relaxed);
    };
    thread::Builder::new().name("signals".to_owned()).spawn(watch).map(drop)
}
