//! The executions and the requests that a worker has.
use std::{collections::HashMap, sync::Arc};

use inference::{ExecutionTimes, OutputSelection, Responder, Response, backend::Execution};
use vocabulary::Error;

/// The executions and requests that a worker has.
#[derive(Debug, Default)]
pub(crate) struct CallTable {
    calls: HashMap<u64, OpenCall>,
    requests: HashMap<u64, OpenRequest>,
    last_number: u64,
    /// The worker has ended, and accepts no more requests.
    is_closed: bool,
}

/// An execution that a worker has.
#[derive(Debug)]
pub(crate) struct OpenCall {
    pub(crate) times: Arc<ExecutionTimes>,
    /// The requests, in the order of the model's list.
    pub(crate) handles: Vec<u64>,
}

/// A request that a worker has.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    /// `None` after the execution of a decoupled model has ended: then only responses can follow.
    pub(crate) execution: Option<Execution>,
    pub(crate) responder: Responder,
    pub(crate) outputs: OutputSelection,
}

impl OpenRequest {
    /// Ends a request, and then releases it.
    pub(crate) fn end(self, response: Result<Response, Error>) {
        let Self { execution, responder, .. } = self;
        match (execution, response) {
            (Some(execution), Ok(response)) => execution.complete(response),
            (Some(execution), Err(error)) => execution.fail(error),
            (None, Ok(response)) => responder.complete(response),
            (None, Err(error)) => responder.fail(error),
        }
    }
}

impl CallTable {
    /// A new number, for an execution or a request.
    pub(crate) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Whether the worker has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the worker has nothing that must end.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.requests.is_empty()
    }

    /// Removes an execution that has ended.
    pub(crate) fn end_call(&mut self, number: u64) -> Option<OpenCall> {
        self.calls.remove(&number)
    }

    /// A request.
    pub(crate) fn request(&mut self, handle: u64) -> Option<&mut OpenRequest> {
        self.requests.get_mut(&handle)
    }

    /// Removes a request that gets no more responses.
    pub(crate) fn end_request(&mut self, handle: u64) -> Option<OpenRequest> {
        self.requests.remove(&handle)
    }

    /// Adds an execution.
    pub(crate) fn insert(&mut self, number: u64, call: OpenCall) {
        self.calls.insert(number, call);
    }

    /// Adds a request of an execution.
    pub(crate) fn insert_request(&mut self, handle: u64, request: OpenRequest) {
        self.requests.insert(handle, request);
    }

    /// The worker has ended. Returns its requests.
    pub(crate) fn close(&mut self) -> Vec<OpenRequest> {
        self.is_closed = true;
        self.calls.clear();
        self.requests.drain().map(|(_, request)| request).collect()
    }
}
