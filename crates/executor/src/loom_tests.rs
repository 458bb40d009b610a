//! Tests of the mailbox under every interleaving of its threads.
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
        let mailbox = Arc::new(InstanceMailbox::default());
        let done = Arc::new(InstanceMailbox::default());
        let worker = thread::spawn({
            let (mailbox, done) = (mailbox.clone(), done.clone());
            move || {
                for _ in 0..2 {
                    assert!(matches!(mailbox.take(), InstanceMessage::Shutdown));
                    done.put(InstanceMessage::Shutdown);
                }
            }
        });
        for _ in 0..2 {
            mailbox.put(InstanceMessage::Shutdown);
            assert!(matches!(done.take(), InstanceMessage::Shutdown));
        }
        worker.join().unwrap();
    });
}
