//! Tests of the work slot under every interleaving of its threads.
use std::sync::Arc;

use loom::{model::Builder, thread};

use super::instance::{InstanceMailbox, InstanceMessage};

/// Tries every interleaving with at most so many preemptions. `LOOM_MAX_PREEMPTIONS` sets another limit.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(model);
}

#[test]
fn loom_finds_no_lost_work_between_threads() {
    check(|| {
        let work_slot = Arc::new(InstanceMailbox::default());
        let done = Arc::new(InstanceMailbox::default());
        let worker = thread::spawn({
            let (work_slot, done) = (work_slot.clone(), done.clone());
            move || {
                for _ in 0..2 {
                    assert!(matches!(work_slot.take(), InstanceMessage::Shutdown(None)));
                    done.put(InstanceMessage::Shutdown(None));
                }
            }
        });
        for _ in 0..2 {
            work_slot.put(InstanceMessage::Shutdown(None));
            assert!(matches!(done.take(), InstanceMessage::Shutdown(None)));
        }
        worker.join().unwrap();
    });
}
