//! Ends a model: notifies its agents, ends its versions, and notifies its agents again.
//!
//! Threads of its own do all of this. If a backend or an agent hangs, it must not delay the runtime, which waits for
//! its blocking threads at its end.
use std::sync::Arc;

use inference::agent::AgentAction;
use tokio::sync::oneshot;

use super::agents::Agents;
use crate::model::Model;

/// Returns when the last request of the versions has ended and the versions are dropped.
pub(super) async fn unload(versions: Vec<Arc<Model>>, agents: Option<Agents>) {
    let agents = match agents {
        None => None,
        Some(mut agents) => {
            let told = on_a_thread("agents", move || {
                agents.notify(AgentAction::Unload);
                agents
            });
            told.await.ok()
        }
    };
    let closed: Vec<_> =
        versions.into_iter().map(|version| on_a_thread("close", move || version.close())).collect();
    for closed in closed {
        // A thread drops its sender only at its end, or in a panic, which is logged.
        let _ = closed.await;
    }
    if let Some(mut agents) = agents {
        let _ = on_a_thread("agents", move || {
            agents.notify(AgentAction::UnloadComplete);
            drop(agents);
        })
        .await;
    }
}

fn on_a_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, result) = oneshot::channel();
    let working = move || drop(done.send(work()));
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(working) {
        log::error!("failed to start a thread that ends a model: {error}");
    }
    result
}
