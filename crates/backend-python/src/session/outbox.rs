//! What goes to a worker: frames, inputs in the area that both share, and the table of what the worker has.
use std::sync::Arc;

use crate::{
    session::{
        area::{InputArea, SharedArea},
        calls::CallTable,
    },
    wire::frames::{FrameWriter, OutgoingFrames, WorkerFrameKind},
};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) frames: OutgoingFrames,
    pub(crate) inputs: InputArea,
    pub(crate) calls: CallTable,
    /// Outputs that the server has read and the worker still keeps.
    returned: Vec<u64>,
}

/// So many outputs that the server has read wait for the next execution. More are told at once.
const MOST_RETURNED: usize = 64;

impl Outbox {
    /// The outbox of a worker that has nothing. `inputs` is the area that the server writes.
    pub(crate) fn new(inputs: Arc<SharedArea>) -> Self {
        Self {
            frames: OutgoingFrames::default(),
            inputs: InputArea::new(inputs),
            calls: CallTable::default(),
            returned: Vec::new(),
        }
    }

    /// Notes outputs that the server has read. Returns a frame if the worker must learn at once of all that are noted.
    pub(crate) fn give_back(&mut self, numbers: &[u64], at_once: bool) -> Option<FrameWriter> {
        self.returned.extend_from_slice(numbers);
        if !(at_once || self.returned.len() >= MOST_RETURNED) {
            return None;
        }
        let mut frame = FrameWriter::default();
        frame.header.tuple(2);
        frame.header.int(WorkerFrameKind::Returned as u8);
        self.write_returned(&mut frame);
        Some(frame)
    }

    /// Writes the outputs that the server has read since the last time.
    pub(crate) fn write_returned(&mut self, frame: &mut FrameWriter) {
        let numbers = std::mem::take(&mut self.returned);
        frame.header.tuple(numbers.len());
        numbers.iter().for_each(|number| frame.header.int(*number));
    }
}
