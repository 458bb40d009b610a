//! A gate that holds executions back, so that a test decides when they go on instead of guessing with sleeps.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

/// Holds whoever [passes](Gate::pass) while it is shut, and counts everybody who came.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    open: bool,
    arrived: usize,
}

impl Gate {
    /// A shut gate.
    pub fn shut() -> Arc<Self> {
        Self::new(false)
    }

    /// An open gate, which only counts.
    pub fn opened() -> Arc<Self> {
        Self::new(true)
    }

    fn new(open: bool) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { open, arrived: 0 }), changed: Condvar::new() })
    }

    /// Lets everybody go, for good.
    pub fn open(&self) {
        self.state.lock().open = true;
        self.changed.notify_all();
    }

    /// Counts the caller and blocks until the gate is open.
    pub fn pass(&self) {
        let mut state = self.state.lock();
        state.arrived += 1;
        self.changed.notify_all();
        while !state.open {
            self.changed.wait(&mut state);
        }
    }

    /// How many have come so far, held or not.
    pub fn arrived(&self) -> usize {
        self.state.lock().arrived
    }

    /// Blocks until `count` have come; false if that takes longer than `patience`.
    pub fn wait_for(&self, count: usize, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        while state.arrived < count {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return state.arrived >= count;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_is_counted_before_and_goes_on_after_the_opening() {
        let gate = Gate::shut();
        let passing = std::thread::spawn({
            let gate = gate.clone();
            move || gate.pass()
        });
        assert!(gate.wait_for(1, Duration::from_secs(60)));
        assert!(!passing.is_finished());
        gate.open();
        passing.join().unwrap();
        assert_eq!(gate.arrived(), 1);
    }

    #[test]
    fn patience_ends() {
        assert!(!Gate::shut().wait_for(1, Duration::ZERO));
    }
}
