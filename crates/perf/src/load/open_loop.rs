//! The open loop: a schedule determines when requests are due. Latency starts at that time.
//!
//! A request counts in the window in which it was due, however late its response comes. So a slow server cannot hide the
//! requests that it delays.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result};
use client::timer::Timer;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::point::{MeasuredPoint, MeasurementPlan, PointWindows, say_farewell};
use super::tally::{Tally, Window};
use crate::arrivals::Arrivals;
use crate::caller::Caller;
use crate::options::{Until, Windows};
use crate::statistics::StatisticsReader;

/// The most due requests that wait for a caller. More than this is no load that a server could follow.
const MOST_WAITING: usize = 1_000_000;
const TOO_MANY: &str = "not sent: a million requests were due and waited for a caller";

/// Runs an open loop with these arrivals.
pub(crate) async fn open(
    callers: Vec<Caller>,
    arrivals: Arrivals,
    plan: &MeasurementPlan,
    statistics: &mut StatisticsReader,
) -> Result<MeasuredPoint> {
    let tally = Rc::new(Tally::new(plan.keep_requests));
    let due = Rc::new(DueRequests { queue: RefCell::default(), waiting: Semaphore::new(0) });
    let mut tasks = JoinSet::new();
    for mut caller in callers {
        let (tally, due) = (tally.clone(), due.clone());
        tasks.spawn_local(async move {
            while let Some(DueRequest { time, window }) = due.next().await {
                let mut trace = tally.request(time);
                let answer = caller.call(|| trace.response()).await;
                trace.end_in(window.as_deref(), &answer);
            }
            caller.end_sequence().await;
        });
    }
    let most = match plan.windows {
        Windows::Single(Until::Requests(count)) => Some(count),
        Windows::Single(Until::Elapsed(_)) | Windows::UntilStable { .. } => None,
    };
    let mut scheduler = JoinSet::new();
    {
        let (tally, due) = (tally.clone(), due.clone());
        scheduler.spawn_local(async move { schedule(arrivals, &tally, &due, most).await });
    }
    let mut windows = PointWindows { tally: &tally, plan, statistics, is_open_loop: true };
    let point = tokio::select! {
        point = windows.measure() => point,
        Some(Ok(Err(error))) = scheduler.join_next() => Err(error),
    };
    tally.end();
    scheduler.abort_all();
    due.waiting.close();
    say_farewell(tasks).await;
    point
}

/// Passes requests to the callers when they are due, until the point ends or `most` requests were due in its window.
async fn schedule(arrivals: Arrivals, tally: &Tally, due: &DueRequests, most: Option<u64>) -> Result<()> {
    let mut timer = Timer::new().context("cannot create a timer")?;
    tally.begun().await;
    let start = Instant::now();
    for offset in arrivals {
        let time = start + offset;
        timer.sleep(time.saturating_duration_since(Instant::now())).await.context("the timer failed")?;
        if tally.is_ending() {
            break;
        }
        let window = tally.window();
        let owed = window.as_ref().map(|window| window.owe());
        due.push(DueRequest { time, window });
        if most.is_some() && owed == most {
            break;
        }
        // If the loop is behind schedule, the timer does not wait. The callers must run all the same.
        tokio::task::consume_budget().await;
    }
    Ok(())
}

struct DueRequest {
    time: Instant,
    /// The window in which it counts.
    window: Option<Rc<Window>>,
}

/// The due requests that no caller has taken yet. An open loop does not slow down with the server.
struct DueRequests {
    queue: RefCell<VecDeque<DueRequest>>,
    /// One permit for each entry.
    waiting: Semaphore,
}

impl DueRequests {
    /// The next due request. `None` after the end of the point.
    async fn next(&self) -> Option<DueRequest> {
        self.waiting.acquire().await.ok()?.forget();
        self.queue.borrow_mut().pop_front()
    }

    fn push(&self, request: DueRequest) {
        if self.queue.borrow().len() >= MOST_WAITING {
            if let Some(window) = &request.window {
                window.give_up(TOO_MANY);
            }
            return;
        }
        self.queue.borrow_mut().push_back(request);
        self.waiting.add_permits(1);
    }
}
