//! Ends copies of models that serve no more.
//!
//! A copy waits for its sequences and requests, and for a backend that releases late, without a thread. Only what its
//! backend does at its end takes one.
use std::{
    mem,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use inference::MemoryFunctions;
use tokio::sync::watch;

use super::closing_threads::ClosingThreads;
use crate::{memory_phase::MemoryPhase, models::loaded_version::LoadedVersion};

/// How long a copy waits for its backend, before the log says so.
const TOLD_AFTER: Duration = Duration::from_secs(10);

/// How long a server that stops waits for the backend of a copy whose requests have ended: less than it has for its end.
const RELEASE_LIMIT_AT_STOP: Duration = Duration::from_secs(5);

/// How long it then waits for the end of the instances, which may hang.
const CLOSE_LIMIT_AT_STOP: Duration = Duration::from_secs(2);

/// How copies end.
#[derive(Clone)]
pub(super) struct Retirement {
    /// How long a copy waits for its sequences.
    pub(super) sequence_limit: Duration,
    /// Whether the server stops. It does not wait for sequences then.
    pub(super) is_stopping: watch::Receiver<bool>,
    pub(super) threads: ClosingThreads,
    pub(super) memory: Option<MemoryFunctions>,
    /// The stop has ended a copy whose backend has not released what it was given. Code of the backend may still run.
    pub(super) has_left_copies: Arc<AtomicBool>,
}

impl Retirement {
    /// Returns when the sequences of the copy have ended or the limit is over, the last accepted request has ended, the
    /// backend has released all that it was given, and the copy has given back what it held. If the server stops and the
    /// backend does not release, the instances end, and the rest stays.
    pub(super) async fn end(mut self, copy: Arc<LoadedVersion>) {
        copy.wait_for_sequences(self.sequence_limit, self.server_stops()).await;
        copy.finish_requests().await;
        let (name, memory) =
            (format!("model '{}' version {}", copy.model().name(), copy.model().version()), self.memory);
        let limit = async {
            self.server_stops().await;
            tokio::time::sleep(RELEASE_LIMIT_AT_STOP).await;
        };
        let has_released = tokio::select! {
            biased;
            () = released(&name, &copy) => true,
            () = limit => false,
        };
        if !has_released {
            log::error!(
                "{name} ends now, although its backend has not released its requests, responses or response factories"
            );
            self.has_left_copies.store(true, SeqCst);
            copy.work().abandon_releases();
            // The backend may still execute its own code, so its library and the model stay.
            mem::forget(copy.clone());
        }
        let close = move || {
            let change = memory.map(|functions| MemoryPhase::begin(functions.models_change));
            copy.close();
            drop(copy);
            drop(change);
        };
        let closed = self.threads.close(name, close);
        if has_released {
            closed.await;
        } else {
            // The instances go on ending, however long they take.
            let _ = tokio::time::timeout(CLOSE_LIMIT_AT_STOP, closed).await;
        }
    }

    async fn server_stops(&mut self) {
        // An error means that the repository's task has ended.
        let _ = self.is_stopping.wait_for(|is_stopping| *is_stopping).await;
    }
}

/// Returns when the backend has released all that it was given.
async fn released(name: &str, copy: &LoadedVersion) {
    let mut released = pin!(copy.released());
    if tokio::time::timeout(TOLD_AFTER, &mut released).await.is_err() {
        log::info!(
            "{name} ends when its backend has released all its requests, responses and response factories"
        );
        released.await;
    }
}

#[cfg(test)]
mod tests {
    use config::{ModelConfig, Scheduling};
    use host::ThreadGroup;
    use inference::{
        backend::{BackendModel, BuiltInstance, InstanceSpec, ReleaseFuture},
        lock::Mutex,
    };
    use tokio::sync::oneshot;
    use vocabulary::Error;

    use super::*;
    use crate::models::loaded_version::{
        VersionParts,
        tests::{GateAnswer, ask, config, echoed, gated},
    };

    fn retirement(is_stopping: watch::Receiver<bool>) -> Retirement {
        Retirement {
            sequence_limit: Duration::MAX,
            is_stopping,
            threads: ClosingThreads::at_most(1, ThreadGroup::default()),
            memory: None,
            has_left_copies: Arc::default(),
        }
    }

    /// Holds something until the test lets it go.
    struct LateRelease(Mutex<Option<oneshot::Receiver<()>>>);

    impl BackendModel for LateRelease {
        fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
            Err(Error::internal("none is built"))
        }

        fn released(&self) -> ReleaseFuture {
            let released = self.0.lock().take().expect("the server asks once");
            Box::pin(async { _ = released.await })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_whose_backend_releases_late_takes_no_thread() {
        let (_stop, is_stopping) = watch::channel(false);
        let retirement = retirement(is_stopping);
        let (release, released) = oneshot::channel();
        let backend = LateRelease(Mutex::new(Some(released)));
        let parts = VersionParts::for_test(config(Scheduling::Unbatched), backend, vec![]);
        let mut ending = tokio::spawn(retirement.clone().end(LoadedVersion::start(parts).unwrap()));
        let (quiet, _begun) = gated(Scheduling::Unbatched, &["n_0"]);
        retirement.end(quiet).await;
        assert!(tokio::time::timeout(10 * TOLD_AFTER, &mut ending).await.is_err(), "it has ended too early");
        release.send(()).unwrap();
        ending.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_leaves_a_copy_whose_backend_does_not_release() {
        let (stop, is_stopping) = watch::channel(false);
        let retirement = retirement(is_stopping);
        let (_release, released) = oneshot::channel();
        let backend = LateRelease(Mutex::new(Some(released)));
        let parts = VersionParts::for_test(config(Scheduling::Unbatched), backend, vec![]);
        let mut ending = tokio::spawn(retirement.clone().end(LoadedVersion::start(parts).unwrap()));
        assert!(tokio::time::timeout(10 * TOLD_AFTER, &mut ending).await.is_err(), "it has ended too early");
        assert!(!retirement.has_left_copies.load(SeqCst));
        stop.send(true).unwrap();
        ending.await.unwrap();
        assert!(retirement.has_left_copies.load(SeqCst));
    }

    #[tokio::test]
    async fn a_copy_that_waits_for_its_last_request_takes_no_thread() {
        let (stop, is_stopping) = watch::channel(false);
        let retirement = retirement(is_stopping);
        let (busy, begun) = gated(Scheduling::Unbatched, &["m_0"]);
        let (quiet, _begun) = gated(Scheduling::Unbatched, &["n_0"]);
        let running = ask(&busy, 1);
        let execution = begun.recv().unwrap();
        let ending = tokio::spawn(retirement.clone().end(busy));
        retirement.end(quiet).await;
        execution.go_on.send(GateAnswer::Echo).unwrap();
        assert_eq!(echoed(running).await, 1);
        ending.await.unwrap();
        drop(stop);
    }
}
