//! The responses of one request that its client has not read.
use std::{collections::VecDeque, task::Waker};

use vocabulary::ByteReservation;

use crate::ResponseItem;

/// See the module documentation. The lock of the channel is around it.
#[derive(Default)]
pub(super) struct Queue {
    /// The first unread response. Most requests have one response and need no deque.
    front: Option<UnreadResponse>,
    behind: VecDeque<UnreadResponse>,
    pub(super) closed: bool,
    /// The client takes no more responses.
    pub(super) abandoned: bool,
    pub(super) waker: Option<Waker>,
    /// Threads that wait until the client has read responses.
    pub(super) senders_waiting: usize,
    /// A task that waits for the same.
    pub(super) sender: Option<Waker>,
    /// The bytes of the request in the budget of requests.
    pub(super) reservation: Option<ByteReservation>,
}

/// A response that waits for the client, and the bytes that the budget counts for it.
pub(super) struct UnreadResponse {
    pub(super) item: ResponseItem,
    pub(super) bytes: usize,
}

impl Queue {
    /// The empty queue of a request with that reservation.
    pub(super) fn new(reservation: Option<ByteReservation>) -> Self {
        Self { reservation, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.front.is_none()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.front.is_some()) + self.behind.len()
    }

    pub(super) fn push(&mut self, unread: UnreadResponse) {
        if self.front.is_none() {
            self.front = Some(unread);
        } else {
            self.behind.push_back(unread);
        }
    }

    pub(super) fn pop(&mut self) -> Option<UnreadResponse> {
        let next = self.front.take()?;
        self.front = self.behind.pop_front();
        Some(next)
    }
}
