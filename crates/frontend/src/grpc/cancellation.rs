//! The log line about calls that clients cancel. Scripts search for its words, which are Triton's.

/// A call that the server is answering. If it is dropped before [`end`](Self::end), the client has cancelled the call.
#[derive(Debug)]
pub(crate) struct CallWatch {
    handler: &'static str,
    has_ended: bool,
}

impl CallWatch {
    /// `handler` is Triton's name for the handler of such calls.
    pub(crate) fn begin(handler: &'static str) -> Self {
        Self { handler, has_ended: false }
    }

    /// The server has answered or refused the call.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        if !self.has_ended {
            log::debug!("Cancellation notification received for {}", self.handler);
        }
    }
}
