//! Collects the answers of all callers in windows.
//!
//! Everything runs on one thread, so the shared state of the tasks needs no locks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use super::measured::{Measured, RequestRecord};
use crate::caller::AnsweredCall;

/// How long a count of answers waits for the next one. A server that gives none for so long gives none any more.
const STALLED: Duration = Duration::from_secs(60);
/// A request of an open loop is late if it was sent so much later than it was due.
const LATE: Duration = Duration::from_millis(1);

/// The tally of a point. Counts only while a window is open.
pub(crate) struct Tally {
    window: RefCell<Option<Rc<Window>>>,
    /// Has a permit when callers may begin.
    gate: Semaphore,
    /// Has a permit when the point is measured.
    exit: Semaphore,
    /// Answers outside of windows.
    warm: Cell<u64>,
    warmed: Notify,
    /// Callers end after the request that they are at.
    is_ending: Cell<bool>,
    keep_requests: bool,
}

/// A window: what is counted in it, and what is still owed to it.
pub(crate) struct Window {
    measured: RefCell<Measured>,
    /// The number of counted answers, valid and invalid.
    seen: Cell<u64>,
    /// At this number of answers, `changed` is notified.
    wanted: Cell<u64>,
    /// No more than the wanted number of answers count.
    is_exact: bool,
    /// Requests of an open loop that were due in the window.
    due: Cell<u64>,
    changed: Notify,
}

/// The answers to one request, as they come.
pub(crate) struct CallTrace<'t> {
    tally: &'t Tally,
    since: Instant,
    sent: Instant,
    last: Option<Instant>,
    responses: Vec<Instant>,
}

impl Tally {
    pub(crate) fn new(keep_requests: bool) -> Tally {
        Tally {
            window: RefCell::new(None),
            gate: Semaphore::new(0),
            exit: Semaphore::new(0),
            warm: Cell::new(0),
            warmed: Notify::new(),
            is_ending: Cell::new(false),
            keep_requests,
        }
    }

    /// Waits until callers may begin.
    pub(crate) async fn begun(&self) {
        let permit = self.gate.acquire().await;
        // The next caller gets the permit.
        drop(permit);
    }

    /// Lets the callers begin.
    pub(crate) fn begin(&self) {
        self.gate.add_permits(1);
    }

    /// Whether a caller of a closed loop may send another request.
    pub(crate) fn may_send(&self) -> bool {
        match self.window() {
            Some(window) if window.is_exact => {
                let is_owed = window.due.get() < window.wanted.get();
                if is_owed {
                    window.owe();
                }
                is_owed && !self.is_ending.get()
            }
            Some(_) | None => !self.is_ending.get(),
        }
    }

    /// Opens a window in place of the one before. `wanted` is the number of answers after which it is complete.
    pub(crate) fn open(&self, wanted: u64, is_exact: bool) -> Rc<Window> {
        let window = Rc::new(Window {
            measured: RefCell::new(Measured::new()),
            seen: Cell::new(0),
            wanted: Cell::new(wanted),
            is_exact,
            due: Cell::new(0),
            changed: Notify::new(),
        });
        self.window.replace(Some(window.clone()));
        window
    }

    /// Stops counting, and ends the callers after the requests that they are at.
    pub(crate) fn end(&self) {
        self.window.replace(None);
        self.is_ending.set(true);
        self.exit.add_permits(1);
    }

    /// Waits until the point is measured. Requests that end sequences must not be part of it.
    pub(crate) async fn ended(&self) {
        let permit = self.exit.acquire().await;
        drop(permit);
    }

    /// Ends the schedule of an open loop. What is owed to the window still counts.
    pub(crate) fn end_schedule(&self) {
        self.is_ending.set(true);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.get()
    }

    /// The window that is open now.
    pub(crate) fn window(&self) -> Option<Rc<Window>> {
        self.window.borrow().clone()
    }

    /// Waits until so many answers came outside of windows.
    pub(crate) async fn warm_up(&self, count: u64) {
        loop {
            let before = self.warm.get();
            if before >= count {
                return;
            }
            if timeout(STALLED, self.warmed.notified()).await.is_err() && self.warm.get() == before {
                return;
            }
        }
    }

    /// Begins a request that was due at `since` and is sent now.
    pub(crate) fn request(&self, since: Instant) -> CallTrace<'_> {
        CallTrace { tally: self, since, sent: Instant::now(), last: None, responses: Vec::new() }
    }
}

impl CallTrace<'_> {
    /// Counts a response of a stream, which has just arrived.
    pub(crate) fn response(&mut self) {
        let now = Instant::now();
        if let Some(window) = self.tally.window() {
            let mut measured = window.measured.borrow_mut();
            measured.responses += 1;
            match self.last {
                None => measured.first_responses.record(now - self.since),
                Some(last) => measured.response_gaps.record(now - last),
            }
        }
        if self.tally.keep_requests {
            self.responses.push(now);
        }
        self.last = Some(now);
    }

    /// Counts the end of a request of a closed loop in the window that is open now.
    pub(crate) fn end(self, answer: &Result<AnsweredCall, String>) {
        match self.tally.window() {
            Some(window) => self.count(&window, answer),
            None => self.tally.count_warm(),
        }
    }

    /// Counts the end of a request of an open loop in the window in which it was due.
    pub(crate) fn end_in(self, due: Option<&Window>, answer: &Result<AnsweredCall, String>) {
        // Throughput is what arrives in a window, wherever it was due.
        if let (Some(window), Ok(_)) = (self.tally.window(), answer) {
            window.measured.borrow_mut().completed += 1;
        }
        match due {
            Some(window) => {
                let late = u64::from(self.sent - self.since > LATE);
                window.measured.borrow_mut().late += late;
                self.count(window, answer);
            }
            None => self.tally.count_warm(),
        }
    }

    fn count(mut self, window: &Window, answer: &Result<AnsweredCall, String>) {
        if window.is_exact && window.seen.get() >= window.wanted.get() {
            return;
        }
        let now = Instant::now();
        let mut measured = window.measured.borrow_mut();
        measured.count(now - self.since, answer);
        if let (true, Ok(call)) = (self.tally.keep_requests, answer) {
            if self.responses.is_empty() {
                self.responses.push(now);
            }
            let (responses, sequence_id) = (self.responses, call.sequence_id);
            measured.keep(RequestRecord { start: self.since, responses, sequence_id });
        }
        window.seen.set(window.seen.get() + 1);
        window.changed.notify_one();
    }
}

impl Tally {
    fn count_warm(&self) {
        self.warm.set(self.warm.get() + 1);
        self.warmed.notify_one();
    }
}

impl Window {
    /// Waits until the window has the wanted number of answers, or until no more come.
    pub(crate) async fn complete(&self) {
        while self.seen.get() < self.wanted.get() {
            let before = self.seen.get();
            if timeout(STALLED, self.changed.notified()).await.is_err() && self.seen.get() == before {
                return;
            }
        }
    }

    /// Counts a request that is due in the window. Returns their number.
    pub(crate) fn owe(&self) -> u64 {
        self.due.set(self.due.get() + 1);
        self.due.get()
    }

    /// Counts a due request that is never sent.
    pub(crate) fn give_up(&self, text: &str) {
        self.measured.borrow_mut().count_error(text, 1);
        self.seen.set(self.seen.get() + 1);
        self.changed.notify_one();
    }

    /// Waits until all due requests have their answers. After the time, missing answers are errors.
    pub(crate) async fn settle(&self, patience: Duration, missing: &str) {
        let settled = async {
            while self.seen.get() < self.due.get() {
                self.changed.notified().await;
            }
        };
        if timeout(patience, settled).await.is_err() {
            let owed = self.due.get() - self.seen.get();
            self.measured.borrow_mut().count_error(missing, owed);
        }
    }

    /// Takes what was counted.
    pub(crate) fn take(&self) -> Measured {
        self.measured.replace(Measured::new())
    }
}
