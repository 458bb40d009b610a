//! Reads what a worker sends, and answers it.
//!
//! One thread at a time does so, which holds the [`Inbox`]: that of the supervisor, or one that has just sent a brief
//! execution and reads the answer itself, which saves the way through the supervisor's thread.
use std::{
    task::{Context, Waker},
    time::{Duration, Instant},
};

use inference::Responder;

use crate::{
    answering::{answers::RequestAnswerer, inference_requests, questions},
    instance_queue::{InstanceQueue, WaitingCall},
    session::{
        inbox::{HeldFrame, Inbox, OpenQuestions},
        worker_session::WorkerSession,
    },
    wire::{
        frames::ReadOutcome,
        marshal::{DamagedMessage, MarshalValue},
        messages::WorkerItem,
    },
};

/// So long a thread that has sent an execution waits for the answer, before it leaves the answer to the supervisor.
const MOST_READING: Duration = Duration::from_micros(500);

/// Reads from the worker of an instance.
#[derive(Clone, Copy)]
pub(crate) struct SessionReader<'a> {
    pub(crate) session: &'a WorkerSession,
    pub(crate) queue: &'a InstanceQueue,
}

/// Whether a worker will say more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadState {
    Open,
    /// The alarm rings when the client of a request has read enough.
    WaitsForClient,
    /// The worker has closed its socket.
    Closed,
}

/// The items of a frame, from the one with a number on.
struct FrameItems<'f> {
    frame: &'f [u8],
    items: &'f [MarshalValue<'f>],
    first: usize,
}

impl SessionReader<'_> {
    /// Sends batches to the worker, and reads their answers on this thread if they come at once.
    pub(crate) fn send_and_read(self, calls: Vec<WaitingCall>) {
        let Self { session, queue } = self;
        let Some(mut inbox) = session.inbox.try_lock() else { return queue.send(session, calls) };
        session.watch.watch_reads(session.socket(), false);
        queue.send(session, calls);
        let deadline = Instant::now() + MOST_READING;
        while queue.has_in_flight()
            && session.wait_readable(deadline)
            // The supervisor finds what is wrong.
            && matches!(self.read_all(&mut inbox), Ok(ReadState::Open))
        {}
        drop(inbox);
        session.watch.watch_reads(session.socket(), true);
        queue.reading_ended();
    }

    /// Reads and answers what the socket has, up to a response whose client must read first.
    ///
    /// # Errors
    /// A message is damaged, now or before.
    pub(crate) fn read_all(self, inbox: &mut Inbox) -> Result<ReadState, DamagedMessage> {
        if let Some(damage) = &inbox.damage {
            return Err(damage.clone());
        }
        let state = self.read_frames(inbox);
        if let Err(damage) = &state {
            inbox.damage = Some(damage.clone());
            // The supervisor sees the end, and asks why.
            self.session.close();
        }
        state
    }

    fn read_frames(self, inbox: &mut Inbox) -> Result<ReadState, DamagedMessage> {
        if let Some(held) = inbox.held.take() {
            inbox.held = self.answer_rest(held, &mut inbox.open)?;
            if inbox.held.is_some() {
                return Ok(ReadState::WaitsForClient);
            }
        }
        loop {
            let outcome = inbox.read(self.session.socket());
            while let Some((frame, open)) = inbox.next_frame()? {
                inbox.held = self.answer(frame, open)?;
                if inbox.held.is_some() {
                    return Ok(ReadState::WaitsForClient);
                }
            }
            match outcome {
                ReadOutcome::Full => {}
                ReadOutcome::Some | ReadOutcome::Nothing => return Ok(ReadState::Open),
                ReadOutcome::Closed => return Ok(ReadState::Closed),
            }
        }
    }

    /// Sends the answers that have come from elsewhere.
    pub(crate) fn proceed(self, inbox: &mut Inbox) {
        let OpenQuestions { services, inferences } = &mut inbox.open;
        inference_requests::proceed(self.session, inferences);
        questions::answer_finished(self.session, services);
    }

    /// Answers the items of a frame. The worker gets its next batches first, so that it works meanwhile. Returns the rest if
    /// it is held.
    fn answer(self, frame: &[u8], open: &mut OpenQuestions) -> Result<Option<HeldFrame>, DamagedMessage> {
        let value = MarshalValue::read(frame)?;
        let items = value.as_list()?;
        let ended = items.iter().filter(|item| WorkerItem::ends_execution(item)).count();
        if ended > 0
            && let Some((session, calls)) = self.queue.ended(ended)
        {
            self.queue.send(&session, calls);
        }
        self.answer_items(FrameItems { frame, items, first: 0 }, open)
    }

    /// Goes on with a frame whose client may have read enough.
    fn answer_rest(
        self,
        held: HeldFrame,
        open: &mut OpenQuestions,
    ) -> Result<Option<HeldFrame>, DamagedMessage> {
        if self.waits_for(&held.responder) {
            return Ok(Some(held));
        }
        self.queue.waited_for_client(held.since.elapsed());
        let value = MarshalValue::read(&held.frame)?;
        let rest = FrameItems { frame: &held.frame, items: value.as_list()?, first: held.next };
        self.answer_items(rest, open)
    }

    /// Answers the items of a frame. Returns the rest if it is held. Reads an item when its turn comes: so the items of a
    /// frame take no memory besides their values.
    fn answer_items(
        self,
        FrameItems { frame, items, first }: FrameItems<'_>,
        open: &mut OpenQuestions,
    ) -> Result<Option<HeldFrame>, DamagedMessage> {
        for (next, value) in items.iter().enumerate().skip(first) {
            let item = WorkerItem::of(value)?;
            if let WorkerItem::Send { handle, is_last: false, .. } = item
                && self.queue.config.decoupled
                && let Some(responder) = self.responder_that_waits(handle)
            {
                return Ok(Some(HeldFrame { frame: frame.to_vec(), next, responder, since: Instant::now() }));
            }
            self.answer_item(item, open)?;
        }
        if items.iter().any(WorkerItem::ends_execution) {
            self.queue.notify();
        }
        Ok(None)
    }

    /// The way to the client of a request, if the client must read before it gets another response.
    fn responder_that_waits(self, handle: u64) -> Option<Responder> {
        let responder =
            self.session.outbox().calls.request(handle).map(|request| request.responder.clone())?;
        self.waits_for(&responder).then_some(responder)
    }

    /// Whether a client must read first. Then the alarm rings when it has.
    fn waits_for(self, responder: &Responder) -> bool {
        let waker = Waker::from(self.session.alarm().clone());
        !responder.has_capacity() && responder.poll_capacity(&mut Context::from_waker(&waker)).is_pending()
    }

    fn answer_item(self, item: WorkerItem<'_>, open: &mut OpenQuestions) -> Result<(), DamagedMessage> {
        let Self { session, queue } = self;
        let OpenQuestions { services, inferences } = open;
        let answerer = RequestAnswerer { session, queue };
        match item {
            WorkerItem::Done { call, error, answers } => answerer.done(call, error, &answers),
            WorkerItem::Send { handle, response, is_last } => {
                answerer.sent(handle, response.as_ref(), is_last);
            }
            WorkerItem::Abandoned { handle } => answerer.abandoned(handle),
            WorkerItem::Infer { id, request, decoupled } => {
                inference_requests::begin(session, inferences, id, (&request, decoupled));
            }
            WorkerItem::CancelInfer { id } => inferences.cancel(id),
            WorkerItem::Taken { id, count } => {
                inferences.taken(id, count);
                inference_requests::give_all(session, inferences, id);
            }
            // No command waits for a result.
            WorkerItem::Result(_) => {}
            other => questions::serve(session, services, other)?,
        }
        Ok(())
    }
}
