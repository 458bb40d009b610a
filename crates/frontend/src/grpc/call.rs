//! A call of a client, without its messages.
use std::{net::SocketAddr, sync::Arc};

use http::HeaderMap;
use inference::ClientId;

use crate::access::{Access, ApiKeys, RequestFacts};

/// What is known of a call when its headers are there.
#[derive(Clone)]
pub(crate) struct CallHead {
    /// Its requests get the forwarded ones.
    pub(super) headers: HeaderMap,
    /// What the sender may use.
    pub(super) access: Access,
    /// The address of the client, if requests are logged.
    pub(super) peer: Option<SocketAddr>,
    /// What is learned of its request, if somebody wants to know it. A stream has none: each of its requests has its own.
    pub(super) facts: Option<Arc<RequestFacts>>,
    /// The server counts the requests of a stream under this id, because one reader reads all their responses.
    pub(super) stream: Option<ClientId>,
}

impl CallHead {
    /// A call with these headers. The sender may use what `keys` permit; without keys, everything.
    pub(super) fn new(headers: HeaderMap, keys: Option<&Arc<ApiKeys>>, peer: Option<SocketAddr>) -> Self {
        let access = Access::of(keys, &headers);
        Self { headers, access, peer, facts: None, stream: None }
    }

    /// The call as a stream keeps it. The headers go with it.
    pub(super) fn take_for_stream(&mut self) -> Self {
        let (headers, access) = (std::mem::take(&mut self.headers), self.access.clone());
        Self { headers, access, peer: self.peer, facts: None, stream: Some(ClientId::unique()) }
    }
}
