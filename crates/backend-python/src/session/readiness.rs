//! Asks a model whether it is ready (`is_ready`), over a socket of its own, so that an execution that takes long does not
//! delay the answer. `python/nereid_readiness.py` is the other side.
//!
//! A question is a number of four bytes. The answer repeats it, and has the reason why the model is not ready. Each message
//! is a packet. A worker whose model has the function sends the number 0 before the model is initialized.
use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use inference::lock::Mutex;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair},
};

/// How long a model may take to answer.
// As Triton: 5 seconds.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The longest answer, with its number.
const MOST_BYTES: usize = 8 << 10;

/// The server's end.
#[derive(Debug)]
pub(crate) struct ReadinessSocket {
    socket: OwnedFd,
    /// Held while a question waits for its answer, so that there is one at a time.
    state: Mutex<QuestionState>,
}

#[derive(Debug, Default)]
struct QuestionState {
    /// Whether the model has the function; `None` before the first look.
    has_function: Option<bool>,
    /// That of the last question.
    number: u32,
    /// Nobody has read the answer to the last question.
    is_open: bool,
}

impl ReadinessSocket {
    /// The server's end and that of the worker.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn pair() -> Result<(Self, OwnedFd), Errno> {
        let flags = SocketFlags::CLOEXEC;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self { socket, state: Mutex::default() }, theirs))
    }

    /// Asks the model, which has been initialized. Waits at most `limit` for its answer, and for questions of other
    /// threads before. While the model still works on a question that nobody waits for any more, the answer to that one
    /// counts, as in Triton.
    ///
    /// # Errors
    /// The reason why the model is not ready.
    pub(crate) fn ask(&self, limit: Duration) -> Result<(), String> {
        let mut state = self.state.lock();
        let has_function = *state
            .has_function
            .get_or_insert_with(|| self.receive(Instant::now()).is_some_and(|(number, _)| number == 0));
        if !has_function {
            return Ok(());
        }
        let deadline = Instant::now() + limit;
        self.begin(&mut state);
        self.end(&mut state, deadline)
    }

    /// Sends a question, if none is open.
    fn begin(&self, state: &mut QuestionState) {
        // What has been answered meanwhile is old.
        if state.is_open && self.answer(state.number, Instant::now()).is_some() {
            state.is_open = false;
        }
        if !state.is_open {
            // 0 is no question.
            state.number = state.number.wrapping_add(1).max(1);
            let question = state.number.to_le_bytes();
            let sent = send(&self.socket, &question, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            // Otherwise the worker has ended.
            state.is_open = sent.is_ok();
        }
    }

    /// Waits for the answer to the open question.
    fn end(&self, state: &mut QuestionState, deadline: Instant) -> Result<(), String> {
        let answer = if state.is_open { self.answer(state.number, deadline) } else { None };
        let reason = answer.ok_or_else(|| LATE.to_owned())?;
        state.is_open = false;
        if reason.is_empty() { Ok(()) } else { Err(reason) }
    }

    /// The answer to a question; `None` if there is none before the deadline, or the worker has ended.
    fn answer(&self, question: u32, deadline: Instant) -> Option<String> {
        loop {
            let (number, reason) = self.receive(deadline)?;
            if number == question {
                return Some(reason);
            }
        }
    }

    /// The next packet; `None` if there is none before the deadline, or the worker has ended.
    fn receive(&self, deadline: Instant) -> Option<(u32, String)> {
        let mut packet = [0; MOST_BYTES];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut polled, Some(&Timespec::try_from(left).unwrap_or_default())) {
                Ok(0) => return None,
                Err(Errno::INTR) => {}
                Err(_) => return None,
                Ok(_) => {
                    let (count, _) = recv(&self.socket, &mut packet[..], RecvFlags::DONTWAIT).ok()?;
                    let (number, reason) = packet[..count].split_first_chunk()?;
                    return Some((u32::from_le_bytes(*number), String::from_utf8_lossy(reason).into_owned()));
                }
            }
        }
    }
}

// As Triton.
const LATE: &str = "Timed out waiting for user-defined is_ready() response";

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn answer(worker: &OwnedFd, number: u32, reason: &str) {
        let packet = [&number.to_le_bytes(), reason.as_bytes()].concat();
        send(worker, &packet, SendFlags::empty()).unwrap();
    }

    fn next_question(worker: &OwnedFd) -> u32 {
        let mut question = [0; 4];
        recv(worker, &mut question[..], RecvFlags::empty()).unwrap();
        u32::from_le_bytes(question)
    }

    #[test]
    fn a_model_without_the_function_is_ready_and_is_not_asked() {
        let (server, worker) = ReadinessSocket::pair().unwrap();
        assert_eq!(server.ask(Duration::ZERO), Ok(()));
        drop(worker);
        assert_eq!(server.ask(ANSWER_LIMIT), Ok(()));
    }

    #[test]
    fn answers_belong_to_their_questions() {
        let (server, worker) = ReadinessSocket::pair().unwrap();
        answer(&worker, 0, "");
        assert_eq!(server.ask(Duration::ZERO), Err(LATE.to_owned()));
        let open = next_question(&worker);
        let mut state = server.state.lock();
        server.begin(&mut state);
        assert_eq!(state.number, open, "one question at a time");
        answer(&worker, open, "not today");
        assert_eq!(server.end(&mut state, Instant::now()), Err("not today".to_owned()));
        drop(state);
        assert_eq!(server.ask(Duration::ZERO), Err(LATE.to_owned()));
        let late = next_question(&worker);
        answer(&worker, late, "an old reason");
        thread::scope(|scope| {
            scope.spawn(|| {
                let question = next_question(&worker);
                answer(&worker, question, "");
            });
            assert_eq!(server.ask(ANSWER_LIMIT), Ok(()));
        });
        drop(worker);
        assert_eq!(server.ask(ANSWER_LIMIT), Err(LATE.to_owned()));
    }
}
