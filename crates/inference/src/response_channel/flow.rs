//! What a request demands of its response channel.
use std::{num::NonZeroUsize, sync::Arc};

use super::unread::UnreadBudget;
use crate::{ByteReservation, ClientId};

/// How responses are treated that the client has not read yet.
#[derive(Debug)]
pub struct Flow {
    /// The budget that counts them.
    pub budget: Arc<UnreadBudget>,
    /// The client that reads them. Requests of one client are counted together. Without an id the request is a client
    /// of its own.
    pub client: Option<ClientId>,
    /// The backend waits in [`Responder::send`](super::Responder::send) while this many responses are unread. All other requests of its
    /// instance then wait too. `None`: the backend never waits.
    pub most_unread: Option<NonZeroUsize>,
    /// The bytes of the request in the budget of requests. They are released when all responders and the stream are gone,
    /// unless the reader of the responses takes them: [`ResponseStream::take_reservation`](super::ResponseStream::take_reservation).
    pub reservation: Option<ByteReservation>,
}

impl Flow {
    /// Unread responses have no limit. For tests and tools.
    pub fn unlimited() -> Self {
        Self { budget: UnreadBudget::unlimited(), client: None, most_unread: None, reservation: None }
    }
}
