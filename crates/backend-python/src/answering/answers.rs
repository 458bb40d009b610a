//! From the items of a worker to the answers of its requests.
use inference::{OutputSelection, Response, backend::SequenceState};
use vocabulary::{Error, FailureReason};

use crate::{
    answering::outputs::{TensorReader, response},
    instance_queue::InstanceQueue,
    session::{calls::OpenRequest, worker_session::WorkerSession},
    wire::messages::{WireResponse, WorkerAnswer},
};

/// Answers the requests that a worker has.
#[derive(Clone, Copy)]
pub(crate) struct RequestAnswerer<'a> {
    pub(crate) session: &'a WorkerSession,
    pub(crate) queue: &'a InstanceQueue,
}

impl RequestAnswerer<'_> {
    /// The response that a client gets. Its execution, unless it has ended, has the state of the sequence.
    fn response(
        &self,
        wire: &WireResponse<'_>,
        wanted: &OutputSelection,
        state: Option<&SequenceState>,
    ) -> Result<Response, Error> {
        let reader = TensorReader { session: self.session };
        response(wire, &reader, (wanted, state), (&self.queue.config, &self.session.model.output_rules))
    }

    /// An execution has ended.
    pub(crate) fn done(&self, call: u64, error: Option<&str>, answers: &[WorkerAnswer<'_>]) {
        let Some(call) = self.session.outbox().calls.end_call(call) else { return };
        call.times.compute_ended();
        if let Some(error) = error {
            self.queue.log_failure(error);
            let error = Error::internal(error.to_owned()).because(FailureReason::Backend);
            for handle in call.handles {
                let request = self.session.outbox().calls.end_request(handle);
                if let Some(request) = request {
                    request.end(Err(error.clone()));
                }
            }
            return;
        }
        for (index, handle) in call.handles.into_iter().enumerate() {
            match answers.get(index) {
                // The sender of a decoupled model may send responses later.
                Some(WorkerAnswer::Nothing) | None => self.execution_ended(handle),
                Some(WorkerAnswer::Reschedule) => self.reschedule(handle),
                Some(WorkerAnswer::Response(wire)) => self.complete(handle, wire),
            }
        }
    }

    fn complete(&self, handle: u64, wire: &WireResponse<'_>) {
        let request = self.session.outbox().calls.end_request(handle);
        let Some(request) = request else { return };
        let state = request.execution.as_ref().and_then(|execution| execution.state.as_ref());
        let response = self.response(wire, &request.outputs, state);
        request.end(response);
    }

    /// Releases a request that only senders answer from now on.
    fn execution_ended(&self, handle: u64) {
        let execution = {
            let mut outbox = self.session.outbox();
            outbox.calls.request(handle).and_then(|request| request.execution.take())
        };
        // Dropped without the lock: the next request of a sequence may run.
        drop(execution);
    }

    fn reschedule(&self, handle: u64) {
        let request = self.session.outbox().calls.end_request(handle);
        let Some(OpenRequest { execution: Some(execution), .. }) = request else { return };
        if let Err((error, execution)) = execution.reschedule() {
            execution.fail(error);
        }
    }

    /// A sender has sent a response, or the end.
    pub(crate) fn sent(&self, handle: u64, wire: Option<&WireResponse<'_>>, is_last: bool) {
        let is_last = is_last || !self.queue.config.decoupled;
        let (responder, wanted, state) = {
            let mut outbox = self.session.outbox();
            let Some(request) = outbox.calls.request(handle) else { return };
            let state = request.execution.as_ref().and_then(|execution| execution.state.clone());
            (request.responder.clone(), request.outputs.clone(), state)
        };
        // What is left of the request is to bring its last response to the client.
        if is_last && let Some(times) = responder.timeline().execution() {
            times.compute_ended();
        }
        let response = wire.map(|wire| self.response(wire, &wanted, state.as_ref()));
        drop(state);
        if !is_last {
            drop(wanted);
            match response {
                Some(Ok(response)) => responder.send(response),
                Some(Err(error)) => responder.send_error(error),
                None => {}
            }
            return;
        }
        let request = self.session.outbox().calls.end_request(handle);
        match (response, request) {
            (Some(response), Some(request)) => request.end(response),
            (None, Some(OpenRequest { execution: Some(execution), .. })) => execution.finish(),
            (None, Some(OpenRequest { execution: None, responder, .. })) => responder.finish(),
            // Another thread of the model has ended the request.
            (_, None) => {}
        }
    }

    /// The model has dropped a request that has no end.
    pub(crate) fn abandoned(&self, handle: u64) {
        let request = self.session.outbox().calls.end_request(handle);
        if let Some(request) = request {
            let model = &self.session.model.name;
            let text = format!("model '{model}' dropped the request without a final response");
            request.end(Err(Error::internal(text).because(FailureReason::Backend)));
        }
    }
}

/// Ends all requests of a worker that has ended.
pub(crate) fn fail_all(session: &WorkerSession, error: &Error) {
    let requests = session.outbox().calls.close();
    requests.into_iter().for_each(|request| request.end(Err(error.clone())));
}
