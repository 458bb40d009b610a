//! The log line about calls that clients give up. Scripts look for the words, which are Triton's.

/// A call that is being answered. Dropped before its end it has been given up by its client.
#[derive(Debug)]
pub(crate) struct CallWatch {
    handler: &'static str,
    has_ended: bool,
}

impl CallWatch {
    /// `handler` is what Triton calls the handler of such calls.
    pub(crate) fn begin(handler: &'static str) -> Self {
        Self { handler, has_ended: false }
    }

    /// The call has been answered, or refused.
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
