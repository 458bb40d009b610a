//! Sends the calls of a recording when they are due.
//!
//! One thread has the schedule and the connections, so that a call that is due is sent at once. Large answers are compared on
//! other threads. The schedule never depends on the server: a call that waits for another one, or for room, is late, and its
//! latency says so.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use client::timer::Timer;
use http::{HeaderMap, HeaderValue, Request, header, request};
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use vocabulary::with_causes;

use super::comparison::{AnswerVerdict, compare};
use super::options::ReplayOptions;
use super::recorded_call::{CallAnswer, CallBody, RecordedCall};
use crate::event::CallProtocol;
use crate::upstream::Upstream;

/// The bytes of an answer beyond twice those of the recorded one. What is longer differs anyhow.
const LONGER_ANSWER: usize = 1 << 20;
/// Answers of more bytes are compared on another thread.
const COMPARED_AT_ONCE: usize = 64 << 10;
/// The messages of a stream that wait for the connection.
const WAITING_MESSAGES: usize = 16;

/// The body of a call: whole, or messages as they are due.
type ReplayedBody = Either<Full<Bytes>, Channel<Bytes, Infallible>>;

/// What became of a call.
#[derive(Debug)]
pub(crate) struct PlayedCall {
    /// Its place in the recording.
    pub(crate) place: usize,
    /// When it was sent, since the begin of the replay.
    pub(crate) sent: Duration,
    /// When it was due; for a call of a sequence, when the answer before it came, if that was later.
    pub(crate) due: Duration,
    /// From `due` to the last byte of the answer.
    pub(crate) latency: Duration,
    /// `Err`: why there is no answer.
    pub(crate) verdict: Result<AnswerVerdict, String>,
    /// It waited for the call before it in its sequence longer than until it was due.
    pub(crate) waited: bool,
}

/// Sends calls. Shared by their tasks.
pub(crate) struct CallPlayer {
    calls: Arc<[RecordedCall]>,
    options: ReplayOptions,
    http: Upstream<ReplayedBody>,
    grpc: Upstream<ReplayedBody>,
}

impl CallPlayer {
    /// # Errors
    /// The trusted certificates cannot be read.
    pub(crate) fn new(calls: Arc<[RecordedCall]>, options: ReplayOptions) -> Result<CallPlayer> {
        let http = Upstream::new(&options.http, CallProtocol::Http)?;
        let grpc = Upstream::new(&options.grpc, CallProtocol::Grpc)?;
        Ok(CallPlayer { calls, options, http, grpc })
    }

    /// Sends the calls at these places, which ascend. Returns when all have ended, in any order.
    ///
    /// # Errors
    /// The system has no timer.
    pub(crate) async fn play(self, places: &[usize]) -> Result<Vec<PlayedCall>> {
        let player = Arc::new(self);
        let room = Arc::new(Semaphore::new(player.options.concurrency));
        let mut timer = Timer::new().context("cannot create a timer")?;
        let mut followers: HashMap<usize, oneshot::Receiver<()>> = HashMap::new();
        let mut tasks = JoinSet::new();
        let begin = Instant::now();
        let first = places.first().map(|&place| player.calls[place].at).unwrap_or_default();
        for &place in places {
            let call = &player.calls[place];
            let due = begin + player.scaled(call.at.saturating_sub(first));
            timer.sleep(due.saturating_duration_since(Instant::now())).await.context("the timer failed")?;
            let before = call.after.and_then(|before| followers.remove(&before));
            let (ended, end) = oneshot::channel();
            followers.insert(place, end);
            let permit = room.clone().acquire_owned().await?;
            let playing = PlayingCall { player: player.clone(), place, begin, due, permit };
            tasks.spawn(playing.run(before, ended));
        }
        Ok(tasks.join_all().await)
    }

    /// A time of the recording in the replay.
    fn scaled(&self, time: Duration) -> Duration {
        Duration::try_from_secs_f64(time.as_secs_f64() / self.options.speed).unwrap_or(Duration::MAX)
    }

    fn upstream(&self, protocol: CallProtocol) -> &Upstream<ReplayedBody> {
        match protocol {
            CallProtocol::Http => &self.http,
            CallProtocol::Grpc => &self.grpc,
        }
    }
}

/// A call that is sent.
struct PlayingCall {
    player: Arc<CallPlayer>,
    place: usize,
    begin: Instant,
    due: Instant,
    permit: OwnedSemaphorePermit,
}

impl PlayingCall {
    /// Waits for the call `before`, and tells `_ended` at the end.
    async fn run(self, before: Option<oneshot::Receiver<()>>, _ended: oneshot::Sender<()>) -> PlayedCall {
        let mut due = self.due;
        let mut waited = false;
        if let Some(mut before) = before
            && before.try_recv() == Err(oneshot::error::TryRecvError::Empty)
        {
            // The channel ends with the call.
            let _ = before.await;
            due = Instant::now();
            waited = true;
        }
        let call = &self.player.calls[self.place];
        let sent = Instant::now();
        let answer = tokio::time::timeout(self.player.options.patience, self.exchange(call)).await;
        let latency = due.elapsed();
        let options = &self.player.options;
        let verdict = match answer {
            Err(_) => Err(format!("no answer within {:?}", options.patience)),
            Ok(Err(error)) => Err(error),
            Ok(Ok(answer)) if options.compares => self.compare(answer).await,
            Ok(Ok(_)) => Ok(AnswerVerdict::NotRecorded),
        };
        drop(self.permit);
        let (sent, due) = (sent - self.begin, due - self.begin);
        PlayedCall { place: self.place, sent, due, latency, verdict, waited }
    }

    async fn compare(&self, answer: CallAnswer) -> Result<AnswerVerdict, String> {
        let (player, place) = (self.player.clone(), self.place);
        let size = answer.body.as_ref().map_or(0, Bytes::len);
        let compare = move || {
            let call = &player.calls[place];
            call.answer.as_ref().map_or(AnswerVerdict::NotRecorded, |recorded| {
                compare(call.target.kind, recorded, &answer, player.options.tolerance)
            })
        };
        match size > COMPARED_AT_ONCE {
            true => tokio::task::spawn_blocking(compare).await.map_err(|error| error.to_string()),
            false => Ok(compare()),
        }
    }

    /// Sends the call and reads its whole answer.
    async fn exchange(&self, call: &RecordedCall) -> Result<CallAnswer, String> {
        let (body, messages) = match &call.body {
            CallBody::Whole(body) => (Either::Left(Full::new(body.clone())), None),
            CallBody::Messages(messages) => {
                let (sender, body) = Channel::new(WAITING_MESSAGES);
                (Either::Right(body), Some((sender, messages)))
            }
            CallBody::Omitted => return Err("the recording does not have its body".to_owned()),
        };
        let upstream = self.player.upstream(call.protocol);
        let parts = self.parts(call)?;
        let answer = async {
            let answer = upstream.send(parts, body).await.map_err(|error| with_causes(&error))?;
            self.read(call, answer).await
        };
        let Some((sender, messages)) = messages else { return answer.await };
        let sending = self.send_messages(call, sender, messages);
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            answer = &mut answer => answer,
            sent = sending => match sent {
                Ok(()) => answer.await,
                Err(error) => Err(format!("the timer failed: {error}")),
            },
        }
    }

    /// Sends the messages of a stream when they are due, and ends it.
    async fn send_messages(
        &self,
        call: &RecordedCall,
        mut sender: Sender<Bytes, Infallible>,
        messages: &[(Duration, Bytes)],
    ) -> std::io::Result<()> {
        let mut timer = Timer::new()?;
        for (at, message) in messages {
            let due = self.due + self.player.scaled(at.saturating_sub(call.at));
            timer.sleep(due.saturating_duration_since(Instant::now())).await?;
            if sender.send_data(message.clone()).await.is_err() {
                // The server has ended the stream. Its answer says why.
                return Ok(());
            }
        }
        Ok(())
    }

    fn parts(&self, call: &RecordedCall) -> Result<request::Parts, String> {
        let request = Request::builder().method(call.method.clone()).uri(call.path.as_str()).body(());
        let (mut parts, ()) = request.map_err(|error| format!("'{}': {error}", call.path))?.into_parts();
        parts.headers = call.headers.clone();
        for (name, value) in &self.player.options.headers {
            parts.headers.insert(name, value.clone());
        }
        if call.protocol == CallProtocol::Grpc {
            parts.headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        Ok(parts)
    }

    async fn read(
        &self,
        call: &RecordedCall,
        answer: http::Response<Incoming>,
    ) -> Result<CallAnswer, String> {
        let (parts, mut body) = answer.into_parts();
        let recorded = call.answer.as_ref().and_then(|answer| answer.body.as_ref());
        let is_kept = self.player.options.compares && recorded.is_some();
        let most = recorded.map_or(0, |body| 2 * body.len() + LONGER_ANSWER);
        let mut kept = BytesMut::new();
        let mut trailers = HeaderMap::new();
        while let Some(frame) = body.frame().await {
            match frame.map_err(|error| with_causes(&error))?.into_data() {
                Ok(piece) if is_kept => {
                    kept.extend_from_slice(&piece);
                    if kept.len() > most {
                        return Err(format!("the answer is longer than {most} bytes"));
                    }
                }
                Ok(_) => {}
                Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
            }
        }
        let body = is_kept.then(|| kept.freeze());
        Ok(CallAnswer {
            at: self.due.elapsed(),
            status: parts.status.as_u16(),
            headers: parts.headers,
            trailers,
            body,
        })
    }
}
