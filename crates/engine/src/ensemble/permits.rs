//! The limit on requests of a step that run at a time (`max_inflight_requests`).
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits for steps, if the ensemble limits the requests that run at a time.
#[derive(Default)]
pub(super) struct Permits {
    /// By step; taken by the next request of the step.
    granted: Vec<Option<OwnedSemaphorePermit>>,
    /// Steps that wait for one.
    awaited: Vec<usize>,
    waiting: Option<FuturesUnordered<Pin<Box<AwaitedPermit>>>>,
}

type AwaitedPermit = dyn Future<Output = (usize, Option<OwnedSemaphorePermit>)> + Send + Sync;

impl Permits {
    /// Whether a request of the step may run. Steps that may not are noted.
    pub(super) fn take(&mut self, limits: &[Arc<Semaphore>], step: usize) -> bool {
        let Some(limit) = limits.get(step) else { return true };
        self.granted.resize_with(limits.len(), || None);
        if self.granted[step].is_none() && !self.awaited.contains(&step) {
            self.granted[step] = limit.clone().try_acquire_owned().ok();
        }
        let may = self.granted[step].is_some();
        if !may && !self.awaited.contains(&step) {
            self.awaited.push(step);
            let limit = limit.clone();
            self.waiting
                .get_or_insert_default()
                .push(Box::pin(async move { (step, limit.acquire_owned().await.ok()) }));
        }
        may
    }

    /// The permit of a request that runs now.
    pub(super) fn used(&mut self, step: usize) -> Option<OwnedSemaphorePermit> {
        self.granted.get_mut(step).and_then(Option::take)
    }

    /// Whether a step has got its permit.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let Some(waiting) = &mut self.waiting else { return false };
        match waiting.poll_next_unpin(context) {
            Poll::Ready(Some((step, permit))) => {
                self.awaited.retain(|awaited| *awaited != step);
                self.granted[step] = permit;
                true
            }
            Poll::Ready(None) | Poll::Pending => false,
        }
    }
}
