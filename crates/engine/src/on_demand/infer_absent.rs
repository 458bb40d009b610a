//! Requests that come from inside the server, or that came just before their model was unloaded, to models that are not in
//! memory.
use std::{
    future::poll_fn,
    num::NonZeroUsize,
    sync::{Arc, Weak},
};

use host::now;
use inference::{
    EntryId, Request, Responder, ResponseItem, ResponseObserver, ResponseStream, Timeline, UnreadBudget,
    UnreadPolicy, response_channel,
};
use tokio::{runtime::Handle, sync::Notify};
use vocabulary::{ByteBudget, Error, Name};

use super::demands::{Demands, server_ended};
use crate::models::{AbsentModels, Repository};

/// So many responses wait for the sender of the request.
const MOST_UNREAD: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// Sends requests to models when these have been loaded. Does not keep the repository alive.
pub(super) struct AbsentModelsInferer {
    pub(super) demands: Arc<Demands>,
    pub(super) repository: Weak<Repository>,
    /// Counts the requests that wait.
    pub(super) inflight: Arc<ByteBudget>,
    /// Counts their responses.
    pub(super) unread: Arc<UnreadBudget>,
    pub(super) runtime: Handle,
}

/// Wakes what waits for a model or for a response, when the sender of the request has gone.
#[derive(Default)]
struct Cancellation(Notify);

impl ResponseObserver for Cancellation {
    fn cancelled(&self, _: Option<EntryId>) {
        self.0.notify_one();
    }
}

impl AbsentModels for AbsentModelsInferer {
    fn come(&self, model: &str) -> bool {
        self.demands.takes_requests(&Name::new(model))
    }

    fn are_decoupled(&self, model: &str) -> bool {
        self.demands.is_decoupled(&Name::new(model))
    }

    fn infer(&self, model: &str, version: Option<i64>, mut request: Request) -> ResponseStream {
        let cancellation = Arc::new(Cancellation::default());
        let timeline = Timeline::new(now(), 1).traced(request.trace.clone());
        let flow = UnreadPolicy {
            budget: self.unread.clone(),
            client: request.client,
            most_unread: Some(MOST_UNREAD),
            reservation: None,
        };
        let (responder, stream) = response_channel(timeline, cancellation.clone(), flow);
        if request.reservation.is_none() {
            match self.inflight.reserve(request.reserved_bytes()) {
                Ok(reservation) => request.reservation = Some(reservation),
                Err(no_room) => {
                    responder.fail(no_room.into());
                    return stream;
                }
            }
        }
        let (demands, repository, name) = (self.demands.clone(), self.repository.clone(), Name::new(model));
        self.runtime.spawn(async move {
            let answer = async {
                let repository = repository.upgrade().ok_or_else(server_ended)?;
                let looked_up = Error::not_found(format!("Request for unknown model: '{name}' is not found"));
                demands.model(&repository, &name, version, looked_up).await?.infer(request)
            };
            // Both may be dropped while they wait: a request that was dropped has ended.
            tokio::select! {
                () = cancellation.0.notified() => responder.fail(cancelled()),
                answer = answer => match answer {
                    Ok(responses) => pass_on(responses, responder, &cancellation).await,
                    Err(error) => responder.fail(error),
                },
            }
        });
        stream
    }
}

fn cancelled() -> Error {
    Error::unavailable("the request was cancelled while its model was being loaded")
}

/// Passes on the responses of a model. Dropping its stream cancels the request there.
async fn pass_on(mut responses: ResponseStream, responder: Responder, cancellation: &Cancellation) {
    loop {
        let item = tokio::select! {
            () = cancellation.0.notified() => return responder.fail(cancelled()),
            item = responses.next() => item,
        };
        match item {
            None => return responder.finish(),
            Some(ResponseItem { result: Ok(response), last: true }) => return responder.complete(response),
            Some(ResponseItem { result: Err(error), last: true }) => return responder.fail(error),
            Some(ResponseItem { result, last: false }) => {
                tokio::select! {
                    () = cancellation.0.notified() => return responder.fail(cancelled()),
                    () = poll_fn(|context| responder.poll_capacity(context)) => {}
                }
                match result {
                    Ok(response) => responder.send(response),
                    Err(error) => responder.send_error(error),
                }
            }
        }
    }
}
