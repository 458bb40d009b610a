//! The refusals of a streamed call that wait to be sent, behind the answers of earlier requests or for a client that reads
//! slowly.
use std::sync::Arc;

use bytes::Buf;
use vocabulary::{ByteBudget, ByteReservation, Error};

use crate::{
    chunks::Chunks,
    grpc::message::{encode::InferResponse, prefix::MAX_MESSAGE},
};

/// At this many bytes of refusals that wait, the call reads no more requests.
const MAX_WAITING: usize = 4 << 20;

/// What a refusal counts besides its message, in bytes: its place in the order of answers.
const REFUSAL_BYTES: usize = 1024;

/// The longest id in a refusal for which there is no room. The bytes of the call itself cover such a refusal.
const MAX_UNCOUNTED_ID: usize = 256;

/// Counts the refusals of a call, and reserves their bytes. If there is no room for a refusal, its client is told that
/// instead of the reason, and the call reads no more requests until that refusal has been sent.
pub(super) struct Refusals {
    budget: Arc<ByteBudget>,
    /// The bytes of those that wait.
    waiting: usize,
    /// The number of those that wait and for which there was no room.
    uncounted: usize,
}

/// A refusal that is not sent yet. It holds its bytes.
pub(super) struct PendingRefusal {
    message: Chunks,
    /// `None` if there is no room.
    reservation: Option<ByteReservation>,
}

impl Refusals {
    /// No refusals. The bytes of later ones are reserved in `budget`.
    pub(super) fn within(budget: &Arc<ByteBudget>) -> Self {
        Self { budget: budget.clone(), waiting: 0, uncounted: 0 }
    }

    /// The refusal of a request that was never started. It contains only the id.
    #[cold]
    pub(super) fn add(&mut self, id: &str, error: &Error) -> PendingRefusal {
        let refusal = match self.budget.reserve(REFUSAL_BYTES + id.len() + error.message.len()) {
            Ok(reservation) => PendingRefusal { message: encode(id, error), reservation: Some(reservation) },
            Err(refused) => {
                self.uncounted += 1;
                let id = if id.len() <= MAX_UNCOUNTED_ID { id } else { "" };
                PendingRefusal { message: encode(id, &refused.into()), reservation: None }
            }
        };
        self.waiting += refusal.message.remaining();
        refusal
    }

    /// Takes the message of a refusal, which waits no longer. The caller then drops the refusal.
    pub(super) fn take(&mut self, refusal: &mut PendingRefusal) -> Chunks {
        let message = std::mem::take(&mut refusal.message);
        self.waiting -= message.remaining();
        if refusal.reservation.is_none() {
            self.uncounted -= 1;
        }
        message
    }

    /// Tells whether the call must send refusals before it reads more requests.
    pub(super) fn are_full(&self) -> bool {
        self.waiting >= MAX_WAITING || self.uncounted > 0
    }
}

fn encode(id: &str, error: &Error) -> Chunks {
    InferResponse { id, ..InferResponse::default() }.streamed(&error.message, MAX_MESSAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_reserved_until_they_are_taken() {
        let budget = ByteBudget::new(1 << 20);
        let mut refusals = Refusals::within(&budget);
        let error = Error::invalid("no");
        let mut waiting: Vec<_> = (0..3).map(|_| refusals.add(&"i".repeat(1000), &error)).collect();
        assert_eq!(budget.used(), 3 * (REFUSAL_BYTES + 1002));
        assert!(!refusals.are_full());
        waiting.iter_mut().for_each(|refusal| drop(refusals.take(refusal)));
        drop(waiting);
        assert_eq!((budget.used(), refusals.waiting), (0, 0));
    }

    #[test]
    fn a_limit_of_bytes_stops_the_reader() {
        let mut refusals = Refusals::within(&ByteBudget::new(usize::MAX));
        let error = Error::invalid("x".repeat(MAX_WAITING / 4));
        let mut waiting: Vec<_> = (0..3).map(|_| refusals.add("id", &error)).collect();
        assert!(!refusals.are_full());
        waiting.push(refusals.add("id", &error));
        assert!(refusals.are_full());
        drop(refusals.take(&mut waiting[0]));
        assert!(!refusals.are_full());
    }

    #[test]
    fn a_refusal_without_room_is_short_and_stops_the_reader_until_it_is_taken() {
        let mut refusals = Refusals::within(&ByteBudget::new(10));
        let error = Error::invalid("x".repeat(10_000));
        let mut one = refusals.add(&"i".repeat(10_000), &error);
        assert!(refusals.are_full() && one.message.remaining() < 512);
        drop(refusals.take(&mut one));
        assert!(!refusals.are_full());
    }
}
