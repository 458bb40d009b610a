//! From the items of a worker to the answers of its requests.
use std::sync::Arc;

use inference::{Error, FailureReason, OutputSelection};

use crate::{
    area::SharedArea,
    calls::OpenRequest,
    channel::WorkerChannel,
    link::InstanceLink,
    messages::{WireResponse, WorkerAnswer},
    model_context::ModelContext,
    outputs::{TensorReader, response},
};

/// Answers the requests that a worker has.
pub(crate) struct RequestAnswerer<'a> {
    pub(crate) channel: &'a WorkerChannel,
    /// The area of the worker.
    pub(crate) outputs: &'a SharedArea,
    pub(crate) link: &'a InstanceLink,
    pub(crate) model: &'a Arc<ModelContext>,
}

impl RequestAnswerer<'_> {
    fn response(
        &self,
        wire: &WireResponse<'_>,
        wanted: &OutputSelection,
    ) -> Result<inference::Response, Error> {
        let reader = TensorReader { channel: self.channel, outputs: self.outputs };
        response(wire, &reader, wanted, (&self.link.config, &self.model.output_rules))
    }

    /// An execution has ended.
    pub(crate) fn done(&self, call: u64, error: Option<&str>, answers: &[WorkerAnswer<'_>]) {
        let Some(call) = self.channel.calls.lock().end_call(call) else { return };
        call.times.compute_ended();
        if let Some(error) = error {
            self.link.log_failure(error);
            let error = Error::internal(error.to_owned()).because(FailureReason::Backend);
            for handle in call.handles {
                let request = self.channel.calls.lock().end_request(handle);
                if let Some(request) = request {
                    end(request, Err(error.clone()));
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
        let request = self.channel.calls.lock().end_request(handle);
        let Some(request) = request else { return };
        let response = self.response(wire, &request.outputs);
        end(request, response);
    }

    /// Releases a request that only senders answer from now on.
    fn execution_ended(&self, handle: u64) {
        let execution = {
            let mut calls = self.channel.calls.lock();
            calls.request(handle).and_then(|request| request.execution.take())
        };
        // Dropped without the lock: the next request of a sequence may run.
        drop(execution);
    }

    fn reschedule(&self, handle: u64) {
        let request = self.channel.calls.lock().end_request(handle);
        let Some(OpenRequest { execution: Some(execution), .. }) = request else { return };
        if let Err((error, execution)) = execution.reschedule() {
            execution.fail(error);
        }
    }

    /// A sender has sent a response, or the end.
    pub(crate) fn sent(&self, handle: u64, wire: Option<&WireResponse<'_>>, is_last: bool) {
        let is_last = is_last || !self.link.config.decoupled;
        let (responder, wanted) = {
            let mut calls = self.channel.calls.lock();
            let Some(request) = calls.request(handle) else { return };
            (request.responder.clone(), request.outputs.clone())
        };
        let response = wire.map(|wire| self.response(wire, &wanted));
        if !is_last {
            drop(wanted);
            match response {
                Some(Ok(response)) => responder.send(response),
                Some(Err(error)) => responder.send_error(error),
                None => {}
            }
            return;
        }
        let request = self.channel.calls.lock().end_request(handle);
        match (response, request) {
            (Some(response), Some(request)) => end(request, response),
            (None, Some(OpenRequest { execution: Some(execution), .. })) => execution.finish(),
            (None, Some(OpenRequest { execution: None, responder, .. })) => responder.finish(),
            // Another thread of the model has ended the request.
            (_, None) => {}
        }
    }

    /// The model has dropped a request that has no end.
    pub(crate) fn abandoned(&self, handle: u64) {
        let request = self.channel.calls.lock().end_request(handle);
        if let Some(request) = request {
            let text = format!("model '{}' dropped the request without a final response", self.model.name);
            end(request, Err(Error::internal(text).because(FailureReason::Backend)));
        }
    }
}

/// Ends a request, and then releases it.
fn end(request: OpenRequest, response: Result<inference::Response, Error>) {
    let OpenRequest { execution, responder, .. } = request;
    match (execution, response) {
        (Some(execution), Ok(response)) => execution.complete(response),
        (Some(execution), Err(error)) => execution.fail(error),
        (None, Ok(response)) => responder.complete(response),
        (None, Err(error)) => responder.fail(error),
    }
}

/// Ends all requests of a worker that has ended.
pub(crate) fn fail_all(channel: &WorkerChannel, error: &Error) {
    let requests = channel.calls.lock().close();
    requests.into_iter().for_each(|request| end(request, Err(error.clone())));
}
