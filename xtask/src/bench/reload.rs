//! What clients notice of reloads: requests per second and the 99th percentile of a steady load before a model is
//! reloaded, while it is, and after.
//!
//! Requests are due at times that do not depend on the server, and latency counts from those times. Otherwise a server
//! that stands still would get fewer requests, and its pause would count once.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::results;
use super::row::{BenchProtocol, BenchRow};
use super::server_contender::{ServerContender, explicit};
use super::setup::BenchSetup;
use super::table::{Figures, cells, median, table_head};
use super::turns::turns;
use crate::console::heading;
use crate::loopback;

/// The models that are reloaded: one that is loaded at once, and one whose load takes long.
const MODELS: [&str; 2] = ["tiny", "table"];

/// Requests per second.
const RATE: u32 = 500;

/// The parts of a round: the name, and the time from the begin of a reload to that of the next.
const WINDOWS: [(&str, Option<Duration>); 4] = [
    ("before", None),
    ("once a second", Some(Duration::from_secs(1))),
    ("back to back", Some(Duration::ZERO)),
    ("after", None),
];

/// What was measured in one part of a round.
#[derive(Clone, Copy, Default)]
struct WindowFigures {
    requests_per_second: f64,
    p99_us: f64,
    /// The mean duration of a reload.
    reload_ms: f64,
    failed: f64,
}

type ReloadRound = [WindowFigures; WINDOWS.len()];

/// Measures, prints and writes the table. Returns true if every request to ours was answered.
pub(super) fn run(setup: &BenchSetup) -> Result<bool> {
    let mut text = head();
    let mut failed = 0.0;
    for model in MODELS {
        for protocol in [BenchProtocol::HttpBinary, BenchProtocol::Grpc] {
            let name = format!("reload {model} {} {RATE}/s", protocol.name());
            if !setup.options.wants(&name) {
                continue;
            }
            heading(&name);
            let row = BenchRow { name, model, protocol, callers: 0, rate: Some(RATE) };
            // Started for each row.
            let mut contenders = vec![ServerContender::ours(setup, "ours", &explicit(&MODELS))?];
            contenders.extend(ServerContender::reference(setup, "reference", &explicit(&MODELS))?);
            let mut rounds: Vec<Vec<ReloadRound>> = vec![Vec::new(); contenders.len()];
            for round in 0..setup.options.rounds {
                for index in turns(round, contenders.len()) {
                    match measure(setup, &contenders[index], &row) {
                        Ok(figures) => rounds[index].push(figures),
                        // The reference may not survive this. Its rounds until then count.
                        Err(error) if index > 0 => println!("{}: {error:#}", contenders[index].name),
                        Err(error) => return Err(error),
                    }
                }
            }
            for (contender, rounds) in contenders.iter().zip(&rounds) {
                text.push_str(&line(&row.name, contender.name, rounds));
            }
            failed += rounds[0].iter().flatten().map(|window| window.failed).sum::<f64>();
        }
    }
    results::show("reload.md", &text)?;
    Ok(failed == 0.0)
}

/// One round of one contender.
fn measure(setup: &BenchSetup, contender: &ServerContender, row: &BenchRow) -> Result<ReloadRound> {
    let http_port = contender.http_port;
    // A server reloads nothing unless files have changed.
    let changed = setup.folder.join(contender.name).join(row.model).join("1/build");
    let mut round = ReloadRound::default();
    for ((name, interval), taken) in WINDOWS.into_iter().zip(&mut round) {
        let stop = AtomicBool::new(false);
        let (figures, reload_ms) = thread::scope(|scope| {
            let (changed, stopped) = (&changed, &stop);
            let reloads = interval.map(|interval| {
                scope.spawn(move || reload(http_port, row.model, changed, interval, stopped))
            });
            let figures = contender.measure(row, setup.options.seconds);
            stop.store(true, Ordering::Relaxed);
            let reload_ms = reloads.map_or(Ok(0.0), |reloads| {
                reloads.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            anyhow::Ok((figures?, reload_ms?))
        })?;
        println!("{:<12} {name:<14} reload {reload_ms:.1} ms, {}", contender.name, figures.line());
        *taken = WindowFigures::of(&figures, reload_ms)?;
    }
    Ok(round)
}

/// Reloads the model until told to stop. Returns the mean duration in milliseconds.
fn reload(http_port: u16, model: &str, changed: &Path, interval: Duration, stop: &AtomicBool) -> Result<f64> {
    let begin = Instant::now();
    let (mut reloads, mut taken) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        fs::write(changed, format!("{begin:?} {reloads}"))
            .with_context(|| format!("cannot write {}", changed.display()))?;
        let start = Instant::now();
        let path = format!("/v2/repository/models/{model}/load");
        let (status, body) = loopback::http_post(http_port, &path)?;
        ensure!(status == 200, "a reload of {model} was answered with {status}: {body}");
        taken += start.elapsed();
        reloads += 1;
        thread::sleep(interval.saturating_sub(start.elapsed()));
    }
    Ok(taken.as_secs_f64() * 1e3 / f64::from(reloads))
}

impl WindowFigures {
    fn of(figures: &Figures, reload_ms: f64) -> Result<WindowFigures> {
        let requests_per_second = figures.requests_per_second()?;
        Ok(WindowFigures {
            requests_per_second,
            p99_us: figures.p99_us()?,
            reload_ms,
            failed: figures.errors(),
        })
    }
}

fn head() -> String {
    let names = WINDOWS.map(|(name, _)| name);
    let rates = names.map(|name| format!("req/s {name}"));
    let p99 = names.map(|name| format!("p99 us {name}"));
    let mut numbers = vec!["rounds"];
    numbers.extend(rates.iter().chain(&p99).map(String::as_str));
    numbers.extend(["once a second : before", "back to back : before", "ms of a reload", "failed"]);
    table_head(&["row", "contender"], &numbers)
}

/// The medians; the ratios are medians of the rounds' ratios, the failed requests those of all rounds.
fn line(row: &str, contender: &str, rounds: &[ReloadRound]) -> String {
    let of = |value: &dyn Fn(&ReloadRound) -> f64| median(rounds.iter().map(value));
    let windows = 0..WINDOWS.len();
    let mut numbers = Vec::new();
    numbers.extend(windows.clone().map(|window| (of(&|round| round[window].requests_per_second), 0)));
    numbers.extend(windows.map(|window| (of(&|round| round[window].p99_us), 0)));
    numbers.extend((1..3).map(|window| (of(&|round| round[window].p99_us / round[0].p99_us), 2)));
    numbers.push((of(&|round| round[1].reload_ms), 1));
    numbers.push((rounds.iter().flatten().map(|window| window.failed).sum(), 0));
    format!("| {row} | {contender} | {} |{}", rounds.len(), cells(&numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_rounds_and_failures_are_summed() {
        let window =
            |p99_us, failed| WindowFigures { requests_per_second: 500.0, p99_us, reload_ms: 2.0, failed };
        // The machine was slow in the second round.
        let round =
            |p99: f64| [window(p99, 0.0), window(2.0 * p99, 1.0), window(3.0 * p99, 0.0), window(p99, 0.0)];
        let line = line("x", "ours", &[round(100.0), round(900.0), round(110.0)]);
        assert!(line.ends_with("| 110 | 220 | 330 | 110 | 2.00 | 3.00 | 2.0 | 3 |\n"), "{line}");
        let columns = |text: &str| text.lines().map(|line| line.matches('|').count()).collect::<Vec<_>>();
        assert_eq!(columns(&head()), [columns(&line)[0]; 2]);
    }
}
