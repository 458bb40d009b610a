//! The deadline that the client of a streamed call has set.
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Sleep, sleep};

/// When a call ends although it is not complete. Without a time of the client that is never.
pub(super) struct CallDeadline(Option<Pin<Box<Sleep>>>);

impl CallDeadline {
    /// The deadline of a call that begins now and has `granted` time.
    pub(super) fn after(granted: Option<Duration>) -> Self {
        Self(granted.map(|granted| Box::pin(sleep(granted))))
    }

    /// Ready when it has passed.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(sleep) => sleep.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}
