//! Waits of tasks for what others tell.
use std::pin::pin;

use tokio::sync::Notify;

/// Returns when `holds` is true. `told` must be notified after each change that may make it true.
pub async fn notified_until(told: &Notify, mut holds: impl FnMut() -> bool) {
    loop {
        // Listens before it looks: a change after the look is heard of.
        let mut change = pin!(told.notified());
        change.as_mut().enable();
        if holds() {
            return;
        }
        change.await;
    }
}
