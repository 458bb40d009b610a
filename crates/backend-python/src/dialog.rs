//! The server's side of the conversation with a worker: it reads what the worker sends, and answers.
//!
//! One thread at a time holds the dialog: that of the supervisor, or one that has just sent a brief execution and reads
//! the answer itself, which saves the way through the supervisor's thread.
use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Instant,
};

use inference::Responder;

use crate::{
    answers::RequestAnswerer,
    area::SharedArea,
    channel::{Alarm, WorkerChannel},
    frames::{FrameBuffer, ReadOutcome},
    inferences::Inferences,
    link::InstanceLink,
    marshal::{DamagedMessage, MarshalValue},
    messages::WorkerItem,
    model_context::ModelContext,
    model_services::ModelServices,
    services::log_line,
    worker::CommandFailure,
};

/// See the module documentation.
pub(crate) struct Dialog {
    pub(crate) model: Arc<ModelContext>,
    /// The area that the worker writes.
    pub(crate) outputs: SharedArea,
    pub(crate) reader: FrameBuffer,
    pub(crate) services: ModelServices,
    inferences: Inferences,
    /// What another thread than the supervisor's has found.
    damage: Option<DamagedMessage>,
    held: Option<HeldFrame>,
    alarm: Arc<Alarm>,
}

/// A frame whose rest is answered when a client has read enough. Until then nothing is read: so the worker waits, too.
struct HeldFrame {
    frame: Vec<u8>,
    /// The item to begin with.
    next: usize,
    /// The way to the client.
    responder: Responder,
    since: Instant,
}

/// Whether a worker will say more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialogState {
    Open,
    /// The alarm rings when the client of a request has read enough.
    WaitsForClient,
    /// The worker has closed its socket.
    Closed,
}

impl Dialog {
    pub(crate) fn new(model: &Arc<ModelContext>, outputs: SharedArea, alarm: Arc<Alarm>) -> Self {
        Self {
            model: model.clone(),
            outputs,
            reader: FrameBuffer::default(),
            services: ModelServices::new(model.clone()),
            inferences: Inferences::new(model.clone(), alarm.clone()),
            damage: None,
            held: None,
            alarm,
        }
    }

    /// Reads and answers what the socket has, up to a response whose client must read first.
    ///
    /// # Errors
    /// A message is damaged, now or before.
    pub(crate) fn read_all(
        &mut self,
        channel: &WorkerChannel,
        link: &InstanceLink,
    ) -> Result<DialogState, DamagedMessage> {
        if let Some(damage) = &self.damage {
            return Err(damage.clone());
        }
        let state = self.read_frames(channel, link);
        if let Err(damage) = &state {
            self.damage = Some(damage.clone());
            // The supervisor sees the end, and asks why.
            channel.close();
        }
        state
    }

    fn read_frames(
        &mut self,
        channel: &WorkerChannel,
        link: &InstanceLink,
    ) -> Result<DialogState, DamagedMessage> {
        if let Some(held) = self.held.take()
            && !self.answer_rest(channel, link, held)?
        {
            return Ok(DialogState::WaitsForClient);
        }
        loop {
            let outcome = self.reader.read(channel.socket());
            while let Some(range) =
                self.reader.next_frame().map_err(|()| DamagedMessage("its length is out of range"))?
            {
                // The reader is not used while a frame of it is answered.
                let reader = std::mem::take(&mut self.reader);
                let answered = self.answer(channel, link, reader.frame(range));
                self.reader = reader;
                if !answered? {
                    return Ok(DialogState::WaitsForClient);
                }
            }
            match outcome {
                ReadOutcome::Full => {}
                ReadOutcome::Some | ReadOutcome::Nothing => return Ok(DialogState::Open),
                ReadOutcome::Closed => return Ok(DialogState::Closed),
            }
        }
    }

    /// Sends the answers that have come from elsewhere.
    pub(crate) fn proceed(&mut self, channel: &WorkerChannel) {
        self.inferences.proceed(channel);
        self.services.answer_finished(channel);
    }

    /// The worker has ended: nobody waits for the requests to other models.
    pub(crate) fn end(&mut self) {
        self.inferences.end_all();
    }

    /// Answers the items of a frame. The worker gets its next batches first, so that it works meanwhile. False if the rest
    /// is held.
    fn answer(
        &mut self,
        channel: &WorkerChannel,
        link: &InstanceLink,
        frame: &[u8],
    ) -> Result<bool, DamagedMessage> {
        let value = MarshalValue::read(frame)?;
        let items = value.as_list()?;
        let ended = items.iter().filter(|item| WorkerItem::ends_execution(item)).count();
        if ended > 0
            && let Some((channel, calls)) = link.ended(ended)
        {
            link.send(&channel, calls);
        }
        self.answer_items(channel, link, (frame, items, 0))
    }

    /// Goes on with a frame whose client may have read enough.
    fn answer_rest(
        &mut self,
        channel: &WorkerChannel,
        link: &InstanceLink,
        held: HeldFrame,
    ) -> Result<bool, DamagedMessage> {
        if self.waits_for(&held.responder) {
            self.held = Some(held);
            return Ok(false);
        }
        link.waited_for_client(held.since.elapsed());
        let value = MarshalValue::read(&held.frame)?;
        self.answer_items(channel, link, (&held.frame, value.as_list()?, held.next))
    }

    /// Answers the items of a frame from the one with this number on. False if the rest is held. Reads an item when its turn
    /// comes: so the items of a frame take no memory besides their values.
    fn answer_items(
        &mut self,
        channel: &WorkerChannel,
        link: &InstanceLink,
        (frame, items, first): (&[u8], &[MarshalValue<'_>], usize),
    ) -> Result<bool, DamagedMessage> {
        for (next, value) in items.iter().enumerate().skip(first) {
            let item = WorkerItem::of(value)?;
            if let WorkerItem::Send { handle, is_last: false, .. } = item
                && link.config.decoupled
                && let Some(responder) = self.responder_that_waits(channel, handle)
            {
                self.held = Some(HeldFrame { frame: frame.to_vec(), next, responder, since: Instant::now() });
                return Ok(false);
            }
            self.answer_item(channel, link, item)?;
        }
        if items.iter().any(WorkerItem::ends_execution) {
            link.notify();
        }
        Ok(true)
    }

    /// The way to the client of a request, if the client must read before it gets another response.
    fn responder_that_waits(&self, channel: &WorkerChannel, handle: u64) -> Option<Responder> {
        let responder = channel.calls.lock().request(handle).map(|request| request.responder.clone())?;
        self.waits_for(&responder).then_some(responder)
    }

    /// Whether a client must read first. Then the alarm rings when it has.
    fn waits_for(&self, responder: &Responder) -> bool {
        let waker = Waker::from(self.alarm.clone());
        !responder.has_capacity() && responder.poll_capacity(&mut Context::from_waker(&waker)).is_pending()
    }

    fn answer_item(
        &mut self,
        channel: &WorkerChannel,
        link: &InstanceLink,
        item: WorkerItem<'_>,
    ) -> Result<(), DamagedMessage> {
        let answerer = RequestAnswerer { channel, outputs: &self.outputs, link, model: &self.model };
        match item {
            WorkerItem::Done { call, error, answers } => answerer.done(call, error, &answers),
            WorkerItem::Send { handle, response, is_last } => {
                answerer.sent(handle, response.as_ref(), is_last);
            }
            WorkerItem::Abandoned { handle } => answerer.abandoned(handle),
            WorkerItem::Infer { id, request, decoupled } => {
                self.inferences.begin(id, &request, decoupled, (channel, &self.outputs));
            }
            WorkerItem::CancelInfer { id } => self.inferences.cancel(id),
            WorkerItem::Taken { id, count } => self.inferences.taken(id, count, channel),
            // No command waits for a result.
            WorkerItem::Result(_) => {}
            other => self.serve(channel, other)?,
        }
        Ok(())
    }

    /// Answers the worker's questions up to the result of a command, if it has come.
    ///
    /// # Errors
    /// A message is damaged.
    pub(crate) fn result(
        &mut self,
        channel: &WorkerChannel,
    ) -> Result<Option<Result<String, String>>, CommandFailure> {
        let name = self.model.name.clone();
        let damaged = |damage: DamagedMessage| {
            log::error!("a worker of model '{name}' has sent a message that cannot be read: {damage}");
            CommandFailure::Ended
        };
        while let Some(range) = self.reader.next_frame().map_err(|()| CommandFailure::Ended)? {
            let frame = self.reader.frame(range).to_vec();
            let value = MarshalValue::read(&frame).map_err(damaged)?;
            for item in value.as_list().map_err(damaged)? {
                match WorkerItem::of(item).map_err(damaged)? {
                    WorkerItem::Result(result) => {
                        return Ok(Some(result.map(str::to_owned).map_err(str::to_owned)));
                    }
                    item => self.serve(channel, item).map_err(damaged)?,
                }
            }
        }
        Ok(None)
    }

    /// Serves an item that concerns no request.
    ///
    /// # Errors
    /// The item is damaged.
    pub(crate) fn serve(
        &mut self,
        channel: &WorkerChannel,
        item: WorkerItem<'_>,
    ) -> Result<(), DamagedMessage> {
        match item {
            WorkerItem::Log { level, file, line, text } => log_line(level, file, line, text),
            WorkerItem::Ask { reply, name, arguments } => {
                self.services.ask(channel, reply, name, arguments)?;
            }
            WorkerItem::Tell { name, arguments } => self.services.tell(name, arguments)?,
            WorkerItem::Freed(offsets) => {
                let mut input = channel.input.lock();
                offsets.into_iter().for_each(|offset| input.give_back(offset));
            }
            WorkerItem::WantsSpace => channel.give_back(&[], true),
            // These concern a model that executes.
            WorkerItem::Result(_)
            | WorkerItem::Done { .. }
            | WorkerItem::Send { .. }
            | WorkerItem::Abandoned { .. }
            | WorkerItem::Infer { .. }
            | WorkerItem::CancelInfer { .. }
            | WorkerItem::Taken { .. } => {}
        }
        Ok(())
    }
}
