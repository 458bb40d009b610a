//! Ends copies of models that serve no more.
//!
//! Threads of its own do this. If a backend hangs, it must not delay the runtime, which waits for its blocking threads
//! at its end.
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::model::Model;

/// Returns when the last accepted request of the copy has ended and the copy has given back what it held. Requests that
/// come to the copy from now on go to `successor`, if there is one.
pub(super) async fn retire(copy: Arc<Model>, successor: Option<Arc<Model>>) {
    copy.replace(successor);
    let (done, ended) = oneshot::channel::<()>();
    let end = move || {
        copy.close();
        drop(copy);
        drop(done);
    };
    if let Err(error) = std::thread::Builder::new().name("retire".to_owned()).spawn(end) {
        log::error!("failed to start a thread that ends a model: {error}");
    }
    // The thread drops its sender at its end, or in a panic, which is logged.
    let _ = ended.await;
}
