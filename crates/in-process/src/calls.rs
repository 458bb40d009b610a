//! Calling the application: at most so deep on one thread.
//!
//! A callback may send the next request, whose execution may happen at once on the same thread and lead to the next
//! callback. So that this cannot go on until the stack is full, a callback at some depth is made on a fresh thread
//! instead. One that waits for another request, which some applications do, thereby always finds a thread that serves it.
use std::{cell::Cell, sync::Arc, thread};

use parking_lot::Mutex;

/// Callbacks within callbacks on one thread.
const DEEPEST: u32 = 8;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Makes calls to the application, here or, if that were too deep, on a thread of their own.
pub(crate) fn call_application(calls: impl FnOnce() + Send + 'static) {
    if DEPTH.get() >= DEEPEST {
        return call_on_own_thread(calls);
    }
    let _depth = CallDepth::enter();
    calls();
}

/// Makes calls to the application on a thread of their own. If there is none they are made here: late and deep is better
/// than never.
pub(crate) fn call_on_own_thread(calls: impl FnOnce() + Send + 'static) {
    let mine = Arc::new(Mutex::new(Some(calls)));
    let theirs = mine.clone();
    if let Err(error) = thread::Builder::new().name("callback".into()).spawn(move || make(&theirs)) {
        log::error!("failed to start a thread for a callback: {error}");
        make(&mine);
    }
}

fn make<F: FnOnce()>(calls: &Mutex<Option<F>>) {
    let calls = calls.lock().take();
    if let Some(calls) = calls {
        let _depth = CallDepth::enter();
        calls();
    }
}

/// One callback; a panic in it leaves its level, too.
struct CallDepth;

impl CallDepth {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for CallDepth {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn dive(left: u32, done: mpsc::Sender<u32>) {
        call_application(move || match left {
            0 => done.send(DEPTH.get()).unwrap(),
            more => dive(more - 1, done),
        });
    }

    #[test]
    fn no_thread_goes_deeper_than_allowed() {
        let (done, depth) = mpsc::channel();
        dive(10_000, done);
        assert!(depth.recv().unwrap() <= DEEPEST);
        assert_eq!(DEPTH.get(), 0);
    }
}
