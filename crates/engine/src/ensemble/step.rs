//! A request to a member, and its responses.
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{Stream, StreamExt, stream::SelectAll};
use host::now;
use inference::{ResponseItem, ResponseStream, SequencePosition};
use scheduling::{StepRun, nanos};
use smallvec::SmallVec;
use tokio::sync::OwnedSemaphorePermit;

/// The responses of a request to a member. Dropping it cancels the request.
pub(super) struct StepStream {
    pub(super) step: StartedStep,
    responses: ResponseStream,
    has_ended: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

/// A request to a member.
#[derive(Clone)]
pub(super) struct StartedStep {
    pub(super) run: StepRun,
    /// The step of a sequence, if it is not that of the ensemble's request.
    pub(super) sequence: Option<Arc<SequencePosition>>,
}

/// What a member has sent.
pub(super) struct StepEvent {
    pub(super) step: StartedStep,
    /// `None`: the request has ended without another response.
    pub(super) item: Option<ResponseItem>,
    /// What the request took, if this is its end.
    pub(super) end: Option<StepEnd>,
}

/// What a request to a member took.
pub(super) struct StepEnd {
    pub(super) took: Duration,
    pub(super) times: StepTimes,
}

/// How long the execution of a request to a member took, in nanoseconds; zeros if nothing was executed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StepTimes {
    pub(super) input_ns: u64,
    pub(super) infer_ns: u64,
    pub(super) output_ns: u64,
}

impl StepTimes {
    pub(super) fn add(&mut self, other: Self) {
        self.input_ns += other.input_ns;
        self.infer_ns += other.infer_ns;
        self.output_ns += other.output_ns;
    }
}

impl StepStream {
    pub(super) fn new(
        step: StartedStep,
        responses: ResponseStream,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { step, responses, has_ended: false, _permit: permit }
    }

    fn end(&self) -> StepEnd {
        let timeline = self.responses.timeline();
        let times = timeline.counted_times().map_or_else(StepTimes::default, |times| StepTimes {
            input_ns: nanos(times.input()),
            infer_ns: nanos(times.infer()),
            output_ns: nanos(times.output()),
        });
        StepEnd { took: now() - timeline.request_start, times }
    }
}

impl Stream for StepStream {
    type Item = StepEvent;

    /// Ends after the event that ends the request.
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<StepEvent>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let Poll::Ready(item) = self.responses.poll_item(context) else { return Poll::Pending };
        self.has_ended = item.as_ref().is_none_or(|item| item.last);
        let end = self.has_ended.then(|| self.end());
        Poll::Ready(Some(StepEvent { step: self.step.clone(), item, end }))
    }
}

/// Requests to members that have not ended.
#[derive(Default)]
pub(super) struct StepStreams {
    /// Each event polls all of these, which is cheap as long as they are few.
    few: SmallVec<[StepStream; 2]>,
    /// Only those that have news are polled.
    many: Option<SelectAll<StepStream>>,
}

/// How many streams are few.
const FEW: usize = 8;

impl StepStreams {
    pub(super) fn push(&mut self, stream: StepStream) {
        if self.few.len() < FEW {
            self.few.push(stream);
        } else {
            self.many.get_or_insert_default().push(stream);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.as_ref().is_none_or(SelectAll::is_empty)
    }

    /// The next event of any of them. Pending without any.
    pub(super) fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<StepEvent> {
        let mut index = 0;
        while index < self.few.len() {
            match self.few[index].poll_next_unpin(context) {
                Poll::Ready(Some(event)) => {
                    if self.few[index].has_ended {
                        self.few.swap_remove(index);
                    } else {
                        // The others come first at the next time.
                        self.few[index..].rotate_left(1);
                    }
                    return Poll::Ready(event);
                }
                Poll::Ready(None) => drop(self.few.swap_remove(index)),
                Poll::Pending => index += 1,
            }
        }
        match self.many.as_mut().map(|many| many.poll_next_unpin(context)) {
            Some(Poll::Ready(Some(event))) => Poll::Ready(event),
            Some(Poll::Ready(None) | Poll::Pending) | None => Poll::Pending,
        }
    }
}
