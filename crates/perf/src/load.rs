//! Runs the callers for one row: in a closed loop or an open loop, after a warm-up that does not count.
//!
//! Everything runs on one thread, so the shared state of the tasks needs no locks. A row owns its tasks and aborts them
//! when it ends, also after an error.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::arrivals::Arrivals;
use crate::caller::Caller;
use crate::histogram::Histogram;
use crate::options::Until;
use crate::processor_time;
use crate::timer::Timer;

/// The result of the counted part of a row.
pub(crate) struct Measured {
    /// The latencies of valid responses.
    pub(crate) latencies: Histogram,
    /// Responses of streams, counted when they arrive.
    pub(crate) responses: u64,
    /// Times from a request to its first response, for streams.
    pub(crate) first_responses: Histogram,
    /// How many times each error text occurred.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) elapsed: Duration,
    /// Processor time of the server. `None` if no process was named.
    pub(crate) server_time: Option<Duration>,
    pub(crate) client_time: Duration,
}

/// The times of a row, and the processes to observe. All rows have the same plan.
pub(crate) struct MeasurementPlan {
    pub(crate) warm_up: Duration,
    pub(crate) until: Until,
    pub(crate) server_pids: Vec<u32>,
}

/// How long an open loop waits for responses after its last request was due.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
const NO_ANSWER: &str = "no answer within 30 s of the end";

/// Runs a closed loop: every caller sends its next request as soon as it has its response. Responses within the
/// measured time count.
pub(crate) async fn closed(callers: Vec<Caller>, plan: &MeasurementPlan) -> Result<Measured> {
    let wanted = match plan.until {
        Until::Requests(count) => count,
        Until::Elapsed(_) => u64::MAX,
    };
    let tally = Rc::new(Tally::new(wanted));
    let mut tasks = JoinSet::new();
    for mut caller in callers {
        let tally = tally.clone();
        tasks.spawn_local(async move {
            loop {
                let sent = Instant::now();
                let answer = caller.call(tally.listener(sent)).await;
                tally.record(sent.elapsed(), answer);
                if tally.is_complete() {
                    break;
                }
                // Lets the other callers run if responses are ready at once.
                tokio::task::consume_budget().await;
            }
        });
    }
    if !plan.warm_up.is_zero() {
        sleep(plan.warm_up).await;
    }
    let usage = Usage::now(&plan.server_pids)?;
    tally.open();
    match plan.until {
        Until::Elapsed(duration) => sleep(duration).await,
        Until::Requests(_) => tally.done.notified().await,
    }
    tally.close();
    measured(&tally, &usage, plan)
}

/// Runs an open loop: a Poisson schedule determines when requests are due. Latency starts at that time. Requests that
/// are due within the measured time count, however late their responses come.
pub(crate) async fn open(
    callers: Vec<Caller>,
    rate: f64,
    seed: u64,
    plan: &MeasurementPlan,
) -> Result<Measured> {
    let tally = Rc::new(Tally::new(u64::MAX));
    let due = Rc::new(DueRequests { times: RefCell::default(), waiting: Semaphore::new(0) });
    let mut tasks = JoinSet::new();
    for mut caller in callers {
        let (tally, due) = (tally.clone(), due.clone());
        tasks.spawn_local(async move {
            loop {
                let Arrival { time, counted } = due.next().await;
                // For scheduled requests with streams, too, every response counts.
                let answer = caller.call(tally.listener(time)).await;
                if counted {
                    tally.record(time.elapsed(), answer);
                }
            }
        });
    }
    let mut timer = Timer::new().context("cannot create a timer")?;
    let start = Instant::now();
    let mut arrivals = Arrivals::poisson(rate, seed).map(|offset| (offset, start + offset)).peekable();
    while let Some((_, time)) = arrivals.next_if(|(offset, _)| *offset < plan.warm_up) {
        due.at(&mut timer, Arrival { time, counted: false }).await?;
    }
    timer.sleep((start + plan.warm_up).saturating_duration_since(Instant::now())).await?;

    let usage = Usage::now(&plan.server_pids)?;
    tally.open();
    let mut sent = 0;
    for (offset, time) in arrivals {
        let over = match plan.until {
            Until::Elapsed(duration) => offset >= plan.warm_up + duration,
            Until::Requests(count) => sent == count,
        };
        if over {
            break;
        }
        due.at(&mut timer, Arrival { time, counted: true }).await?;
        sent += 1;
    }
    tally.want(sent);
    let complete = async {
        while !tally.is_complete() {
            tally.done.notified().await;
        }
    };
    // A slow server gets time to respond. After that time, missing responses are errors.
    if timeout(DRAIN_TIMEOUT, complete).await.is_err() {
        let owed = sent - tally.seen.get();
        tally.errors.borrow_mut().insert(NO_ANSWER.into(), owed);
    }
    tally.close();
    measured(&tally, &usage, plan)
}

fn measured(tally: &Tally, start: &Usage, plan: &MeasurementPlan) -> Result<Measured> {
    let end = Usage::now(&plan.server_pids)?;
    let server_time = start.server.zip(end.server).map(|(start, end)| end.saturating_sub(start));
    Ok(Measured {
        latencies: tally.latencies.replace(Histogram::new()),
        responses: tally.responses.get(),
        first_responses: tally.first_responses.replace(Histogram::new()),
        errors: tally.errors.take(),
        elapsed: end.at - start.at,
        server_time,
        client_time: end.client.saturating_sub(start.client),
    })
}

/// Processor time at one moment.
struct Usage {
    at: Instant,
    server: Option<Duration>,
    client: Duration,
}

impl Usage {
    fn now(server_pids: &[u32]) -> Result<Usage> {
        let server = match server_pids {
            [] => None,
            pids => Some(processor_time::of_trees(pids)?),
        };
        Ok(Usage { at: Instant::now(), server, client: processor_time::of_self() })
    }
}

/// Collects the reports of the callers. Counts only while it is open.
struct Tally {
    latencies: RefCell<Histogram>,
    responses: Cell<u64>,
    first_responses: RefCell<Histogram>,
    errors: RefCell<BTreeMap<String, u64>>,
    counting: Cell<bool>,
    /// The number of counted responses, valid and invalid.
    seen: Cell<u64>,
    /// At this number of responses, `done` is notified.
    wanted: Cell<u64>,
    done: Notify,
}

impl Tally {
    fn new(wanted: u64) -> Tally {
        Tally {
            latencies: RefCell::new(Histogram::new()),
            responses: Cell::new(0),
            first_responses: RefCell::new(Histogram::new()),
            errors: RefCell::default(),
            counting: Cell::new(false),
            seen: Cell::new(0),
            wanted: Cell::new(wanted),
            done: Notify::new(),
        }
    }

    fn open(&self) {
        self.counting.set(true);
    }

    fn close(&self) {
        self.counting.set(false);
    }

    fn want(&self, count: u64) {
        self.wanted.set(count);
    }

    fn record(&self, latency: Duration, answer: Result<(), String>) {
        if !self.counting.get() || self.is_complete() {
            return;
        }
        match answer {
            Ok(()) => self.latencies.borrow_mut().record(latency),
            Err(text) => *self.errors.borrow_mut().entry(text).or_default() += 1,
        }
        self.seen.set(self.seen.get() + 1);
        if self.is_complete() {
            self.done.notify_one();
        }
    }

    /// A listener for the responses of a request that was sent, or due, at `since`.
    fn listener(&self, since: Instant) -> impl FnMut() {
        let mut is_first = true;
        move || {
            if self.counting.get() {
                self.responses.set(self.responses.get() + 1);
                if is_first {
                    self.first_responses.borrow_mut().record(since.elapsed());
                }
            }
            is_first = false;
        }
    }

    fn is_complete(&self) -> bool {
        self.seen.get() >= self.wanted.get()
    }
}

#[derive(Clone, Copy)]
struct Arrival {
    time: Instant,
    counted: bool,
}

/// The due requests that no caller has taken yet. The queue is unbounded on purpose: an open loop does not slow down
/// with the server. The queue holds at most rate times duration entries.
struct DueRequests {
    times: RefCell<VecDeque<Arrival>>,
    /// One permit for each entry.
    waiting: Semaphore,
}

impl DueRequests {
    async fn next(&self) -> Arrival {
        self.waiting.acquire().await.expect("the semaphore is never closed").forget();
        self.times.borrow_mut().pop_front().expect("there is an entry for each permit")
    }

    /// Waits until the arrival is due, and passes it to the callers.
    async fn at(&self, timer: &mut Timer, arrival: Arrival) -> Result<()> {
        let wait = arrival.time.saturating_duration_since(Instant::now());
        timer.sleep(wait).await.context("the timer failed")?;
        self.times.borrow_mut().push_back(arrival);
        self.waiting.add_permits(1);
        // If the loop is behind schedule, the timer does not wait. The callers must run all the same.
        tokio::task::consume_budget().await;
        Ok(())
    }
}
