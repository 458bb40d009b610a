//! What a worker sends: the frames that are read, and what waits for an answer that is not there yet.
use std::{sync::Arc, time::Instant};

use inference::Responder;
use rustix::fd::AsFd;

use crate::{
    model_context::ModelContext,
    services::{model_services::ModelServices, nested_inferences::NestedInferences},
    wakeup_fd::WakeupFd,
    wire::{
        frames::{FrameBuffer, ReadOutcome},
        marshal::DamagedMessage,
    },
};

/// See the module documentation. It reads, and decides nothing: who holds it answers.
pub(crate) struct Inbox {
    frames: FrameBuffer,
    /// What another thread than the supervisor's has found.
    pub(crate) damage: Option<DamagedMessage>,
    pub(crate) held: Option<HeldFrame>,
    pub(crate) open: OpenQuestions,
}

/// What the model has asked and gets an answer to later.
pub(crate) struct OpenQuestions {
    pub(crate) services: ModelServices,
    pub(crate) inferences: NestedInferences,
}

/// A frame whose rest is answered when a client has read enough. Until then nothing is read: so the worker waits, too.
pub(crate) struct HeldFrame {
    pub(crate) frame: Vec<u8>,
    /// The item to begin with.
    pub(crate) next: usize,
    /// The way to the client.
    pub(crate) responder: Responder,
    pub(crate) since: Instant,
}

impl Inbox {
    /// An inbox that has read nothing. `alarm` rings when an answer comes after its question.
    pub(crate) fn new(model: &Arc<ModelContext>, alarm: &Arc<WakeupFd>) -> Self {
        Self {
            frames: FrameBuffer::default(),
            damage: None,
            held: None,
            open: OpenQuestions {
                services: ModelServices::new(model.clone(), alarm.clone()),
                inferences: NestedInferences::new(model.clone(), alarm.clone()),
            },
        }
    }

    /// Reads what the socket has, without waiting.
    pub(crate) fn read(&mut self, socket: impl AsFd) -> ReadOutcome {
        self.frames.read(socket)
    }

    /// The next whole frame that was read, beside the questions that it may add to or end.
    ///
    /// # Errors
    /// The frame has no possible length.
    pub(crate) fn next_frame(&mut self) -> Result<Option<(&[u8], &mut OpenQuestions)>, DamagedMessage> {
        let range = self.frames.next_frame().map_err(|()| DamagedMessage("its length is out of range"))?;
        Ok(range.map(|range| (self.frames.frame(range), &mut self.open)))
    }
}
