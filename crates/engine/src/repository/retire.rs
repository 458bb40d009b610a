//! Ends copies of models that serve no more.
//!
//! Threads of its own do this. If a backend hangs, it must not delay the runtime, which waits for its blocking threads
//! at its end.
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio::sync::oneshot;

use super::freed_memory::ModelsChange;
use crate::{MemoryFunctions, ThreadGroup, model::Model};

/// Returns when the sequences of the copy have ended or `limit` is over, the last accepted request has ended, and the
/// copy has given back what it held. A server that stops does not wait for sequences here.
pub(super) async fn retire(
    copy: Arc<Model>,
    limit: Duration,
    is_stopping: Arc<AtomicBool>,
    threads: ThreadGroup,
    memory: Option<MemoryFunctions>,
) {
    let (done, ended) = oneshot::channel::<()>();
    let end = move || {
        copy.wait_for_sequences(limit, &is_stopping);
        copy.finish_requests();
        // Requests may take long, the rest does not.
        let change = ModelsChange::begin(memory);
        copy.close();
        drop(copy);
        drop(change);
        drop(done);
    };
    if let Err(error) = threads.spawn(std::thread::Builder::new().name("retire".to_owned()), end) {
        log::error!("failed to start a thread that ends a model: {error}");
    }
    // The thread drops its sender at its end, or in a panic, which is logged.
    let _ = ended.await;
}
