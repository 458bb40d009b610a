//! Returns memory to the system that loads and ended models have freed.
use std::{sync::Arc, time::Duration};

use inference::MemoryFunctions;
use tokio::{
    sync::Notify,
    task::{JoinSet, spawn_blocking},
    time::sleep,
};

/// The shortest time between two returns. A return may hold up the threads that allocate meanwhile.
const PAUSE: Duration = Duration::from_secs(1);

/// Returns freed memory on a blocking thread, at most once in a while.
pub(super) struct HeapTrimmer {
    wanted: Arc<Notify>,
    /// The task, which ends when this is dropped.
    _task: JoinSet<()>,
}

impl HeapTrimmer {
    /// Must be called in a tokio runtime.
    pub(super) fn new(functions: Option<MemoryFunctions>) -> Self {
        let wanted = Arc::new(Notify::new());
        let mut task = JoinSet::new();
        if let Some(MemoryFunctions { return_freed, .. }) = functions {
            task.spawn(run(wanted.clone(), return_freed));
        }
        Self { wanted, _task: task }
    }

    /// Much memory may have been freed. It is returned soon, together with what is freed until then.
    pub(super) fn return_soon(&self) {
        self.wanted.notify_one();
    }
}

async fn run(wanted: Arc<Notify>, return_freed: fn()) {
    loop {
        // One call that comes while memory is returned is kept, however many come.
        wanted.notified().await;
        if let Err(error) = spawn_blocking(return_freed).await {
            log::error!("freed memory was not returned to the system: {error}");
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use tokio::time::Instant;

    use super::*;

    static RETURNS: AtomicU32 = AtomicU32::new(0);

    const COUNTED: Option<MemoryFunctions> = Some(MemoryFunctions {
        models_change: |_| {},
        memory_is_scarce: |_| {},
        return_all: || {},
        return_freed: || {
            RETURNS.fetch_add(1, SeqCst);
        },
    });

    async fn until(returns: u32) {
        while RETURNS.load(SeqCst) < returns {
            sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_returned_at_once_and_then_once_in_a_while() {
        let memory = HeapTrimmer::new(COUNTED);
        memory.return_soon();
        until(1).await;
        let first = Instant::now();
        (0..100).for_each(|_| memory.return_soon());
        until(2).await;
        // The clock of a paused test counts whole milliseconds.
        assert!(first.elapsed() + Duration::from_millis(2) >= PAUSE, "{:?}", first.elapsed());
        sleep(3 * PAUSE).await;
        assert_eq!(RETURNS.load(SeqCst), 2, "many calls are one");
        memory.return_soon();
        until(3).await;
        drop(memory);
    }
}
