//! Traces of requests that the server sends while it works on a traced request, such as those of an ensemble's steps.
use std::{ptr::NonNull, sync::Arc};

use inference::{Name, Timestamp, TraceActivity, TraceSink};
use parking_lot::Mutex;

use super::{Activity, OwnedTrace};

/// The trace of one such request. Its listener is told everything when the request has ended, in order and where it may
/// block.
struct ChildTrace {
    trace: Option<OwnedTrace>,
    reached: Mutex<Vec<(Activity, u64)>>,
}

impl OwnedTrace {
    /// A child of this trace, for a request to that version of a model.
    pub(super) fn child_sink(&self, model: &Name, version: i64, request_id: &Name) -> Arc<dyn TraceSink> {
        let trace = NonNull::from(Box::leak(Box::new(self.trace().child())));
        let trace = Self { trace, releaser: self.releaser.clone(), teller: None };
        trace.describe(model, version, request_id);
        Arc::new(ChildTrace { trace: Some(trace), reached: Mutex::default() })
    }
}

impl TraceSink for ChildTrace {
    fn reached(&self, activity: TraceActivity, at: Timestamp) {
        self.reached.lock().push((super::number_of(activity), at.as_nanos()));
    }

    fn child(&self, model: &Name, version: i64, request_id: &Name) -> Option<Arc<dyn TraceSink>> {
        Some(self.trace.as_ref()?.child_sink(model, version, request_id))
    }
}

impl Drop for ChildTrace {
    fn drop(&mut self) {
        let Some(trace) = self.trace.take() else { return };
        let reached = std::mem::take(self.reached.get_mut());
        let releaser = trace.releaser.clone();
        let tell = move || {
            reached.iter().for_each(|&(activity, nanos)| trace.report(activity, nanos));
            trace.release_here();
        };
        match releaser {
            Some(releaser) => releaser(Box::new(tell)),
            None => tell(),
        }
    }
}
