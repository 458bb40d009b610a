//! Measures the windows of a point while its callers run.
//!
//! Windows follow each other without a pause.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use super::measured::Measured;
use super::tally::{Tally, Window};
use crate::options::{PointWarmUp, Until, Windows};
use crate::processor_time;
use crate::stability::{AGREEING, ComparedWindow, StabilityRule, StabilityVerdict, judge};
use crate::statistics::{ServerStatistics, StatisticsReader};

/// How points are measured. All points of a run have the same plan.
pub(crate) struct MeasurementPlan {
    pub(crate) warm_up: PointWarmUp,
    pub(crate) windows: Windows,
    pub(crate) percentile: Option<u8>,
    pub(crate) latency_limit: Option<Duration>,
    pub(crate) server_pids: Vec<u32>,
    /// The times of each request are kept.
    pub(crate) keep_requests: bool,
}

/// The result of a point.
pub(crate) struct MeasuredPoint {
    /// The window, or the last three windows.
    pub(crate) measured: Measured,
    /// Three windows agree, or only one was wanted.
    pub(crate) is_stable: bool,
    /// The figures of all windows.
    pub(crate) windows: Vec<ComparedWindow>,
    /// When the reported windows began and ended.
    pub(crate) boundaries: Vec<Instant>,
}

/// How long callers may take to end their sequences after a point.
const FAREWELL: Duration = Duration::from_secs(5);
/// A window by count is at least so long. As perf_analyzer.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
/// How long an open loop waits for responses after its last request was due.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
const NO_ANSWER: &str = "no answer within 30 s of the end";

/// Lets the callers end, but not for long.
pub(super) async fn say_farewell(mut tasks: JoinSet<()>) {
    let _ = timeout(FAREWELL, async { while tasks.join_next().await.is_some() {} }).await;
}

/// Measures the windows of a point while its callers run.
pub(super) struct PointWindows<'p> {
    pub(super) tally: &'p Tally,
    pub(super) plan: &'p MeasurementPlan,
    pub(super) statistics: &'p mut StatisticsReader,
    pub(super) is_open_loop: bool,
}

impl PointWindows<'_> {
    pub(super) async fn measure(&mut self) -> Result<MeasuredPoint> {
        match self.plan.warm_up {
            // The first request belongs to the first window.
            PointWarmUp::Time(time) if time.is_zero() => {}
            PointWarmUp::Time(time) => {
                self.tally.begin();
                sleep(time).await;
            }
            PointWarmUp::Requests(count) => {
                self.tally.begin();
                self.tally.warm_up(count).await;
            }
        }
        match self.plan.windows {
            Windows::Single(until) => self.single(until).await,
            Windows::UntilStable { window, percent, most } => {
                let rule = StabilityRule { percent, most, latency_limit: self.plan.latency_limit };
                self.until_stable(window, &rule).await
            }
        }
    }

    /// One window. In an open loop it lasts until every due request has its response.
    async fn single(&mut self, until: Until) -> Result<MeasuredPoint> {
        let start = self.snapshot().await?;
        let wanted = if let Until::Requests(count) = until { count } else { u64::MAX };
        let window = self.tally.open(wanted, true);
        self.tally.begin();
        match until {
            Until::Elapsed(duration) => sleep(duration).await,
            Until::Requests(_) => window.complete().await,
        }
        if self.is_open_loop {
            self.tally.end_schedule();
            window.settle(DRAIN_TIMEOUT, NO_ANSWER).await;
        }
        let end = self.snapshot().await?;
        let mut measured = closed_window(&window, &start, &end);
        measured.completed = measured.latencies.count();
        Ok(MeasuredPoint {
            windows: vec![self.figures(&measured)],
            measured,
            is_stable: true,
            boundaries: vec![start.at, end.at],
        })
    }

    /// Window after window, until three agree.
    async fn until_stable(&mut self, until: Until, rule: &StabilityRule) -> Result<MeasuredPoint> {
        let mut figures = Vec::new();
        let mut last: VecDeque<(Measured, Instant)> = VecDeque::new();
        let wanted = if let Until::Requests(count) = until { count } else { u64::MAX };
        let mut start = self.snapshot().await?;
        let mut window = self.tally.open(wanted, false);
        self.tally.begin();
        let mut begun = Instant::now();
        start.at = begun;
        loop {
            match until {
                Until::Elapsed(duration) => sleep_until((begun + duration).into()).await,
                Until::Requests(_) => {
                    window.complete().await;
                    sleep_until((begun + SHORTEST_WINDOW).into()).await;
                }
            }
            let next = self.tally.open(wanted, false);
            begun = Instant::now();
            let mut end = self.snapshot().await?;
            end.at = begun;
            if self.is_open_loop {
                window.settle(DRAIN_TIMEOUT, NO_ANSWER).await;
            }
            let mut measured = closed_window(&window, &start, &end);
            if !self.is_open_loop {
                measured.completed = measured.latencies.count();
            }
            figures.push(self.figures(&measured));
            last.push_back((measured, start.at));
            if last.len() > AGREEING {
                last.pop_front();
            }
            let verdict = judge(&figures, rule);
            if verdict != StabilityVerdict::Open {
                let boundaries = last.iter().map(|(_, at)| *at).chain([end.at]).collect();
                let mut windows = last.into_iter().map(|(measured, _)| measured);
                let mut measured = windows.next().unwrap_or_else(Measured::new);
                windows.for_each(|window| measured.merge(window));
                let is_stable = verdict == StabilityVerdict::Stable;
                return Ok(MeasuredPoint { measured, is_stable, windows: figures, boundaries });
            }
            (window, start) = (next, end);
        }
    }

    fn figures(&self, measured: &Measured) -> ComparedWindow {
        ComparedWindow {
            throughput: measured.requests_per_second(),
            latency: measured.stabilizing_latency(self.plan.percentile),
        }
    }

    async fn snapshot(&mut self) -> Result<Snapshot> {
        let statistics = self.statistics.read().await;
        let server = match &self.plan.server_pids[..] {
            [] => None,
            pids => Some(processor_time::of_trees(pids)?),
        };
        Ok(Snapshot { at: Instant::now(), server, client: processor_time::of_self(), statistics })
    }
}

/// What is compared between the start and the end of a window.
struct Snapshot {
    at: Instant,
    /// Processor time.
    server: Option<Duration>,
    client: Duration,
    statistics: Option<ServerStatistics>,
}

fn closed_window(window: &Window, start: &Snapshot, end: &Snapshot) -> Measured {
    let mut measured = window.take();
    measured.elapsed = end.at - start.at;
    measured.server_time = start.server.zip(end.server).map(|(start, end)| end.saturating_sub(start));
    measured.client_time = end.client.saturating_sub(start.client);
    let statistics = end.statistics.clone().zip(start.statistics.as_ref());
    measured.statistics = statistics.map(|(end, start)| end.since(start));
    measured
}
