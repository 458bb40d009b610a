//! The log line about calls that clients cancel. Scripts search for its words, which are Triton's.
use std::sync::Arc;

use inference::ResponseStream;

use crate::access::{KnownFacts, RequestFacts};

/// A call that the server is answering. If it is dropped before its end, the client has cancelled the call.
#[derive(Debug)]
pub(crate) struct CallWatch {
    handler: &'static str,
    /// What is known of the request, if the call has only one.
    facts: Option<Arc<RequestFacts>>,
    has_ended: bool,
}

impl CallWatch {
    /// `handler` is Triton's name for the handler of such calls.
    pub(crate) fn begin(handler: &'static str, facts: Option<Arc<RequestFacts>>) -> Self {
        Self { handler, facts, has_ended: false }
    }

    /// The server has answered or refused the request of these responses.
    pub(crate) fn end(&mut self, responses: &ResponseStream) {
        if let Some(facts) = &self.facts {
            facts.set_times(responses);
        }
        self.end_call();
    }

    /// The server has ended the call.
    pub(crate) fn end_call(&mut self) {
        self.has_ended = true;
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        match self.facts.as_ref().map(|facts| facts.read()) {
            Some(KnownFacts { model, version, request_id, .. }) => {
                let version = version.unwrap_or_default();
                let handler = self.handler;
                log::debug!(model:%, version, request_id:%; "Cancellation notification received for {handler}");
            }
            None => log::debug!("Cancellation notification received for {}", self.handler),
        }
    }
}
