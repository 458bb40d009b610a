//! A gate that blocks executions until the test opens it. So a test needs no sleeps.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use inference::lock::{Condvar, Mutex};

/// While the gate is shut, blocks callers that [pass](Gate::pass) it. Counts all callers.
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

    /// Lets all callers continue, now and later.
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

    /// The number of callers so far, blocked or not.
    pub fn arrived(&self) -> usize {
        self.state.lock().arrived
    }

    /// Blocks until `count` callers have come. Returns false if that takes longer than the timeout `patience`.
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
    fn threads_are_counted_at_a_shut_gate_and_continue_when_it_opens() {
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
    fn a_wait_ends_at_its_timeout() {
        assert!(!Gate::shut().wait_for(1, Duration::ZERO));
    }
}
