//! Opens the response channel of a request.
use std::sync::Arc;

use super::{
    channel::{Channel, Flow},
    observer::ResponseObserver,
    responder::Responder,
    stream::ResponseStream,
};
use crate::Timeline;

/// Creates the responder and the stream of one request.
pub fn response_channel(
    timeline: Timeline,
    observer: Arc<dyn ResponseObserver>,
    flow: Flow,
) -> (Responder, ResponseStream) {
    let channel = Channel::new(timeline, observer, flow);
    (Responder::new(channel.clone()), ResponseStream::new(channel))
}
