//! The command itself: reads the command line, measures point by point, and writes the reports.
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::arrivals::Arrivals;
use crate::caller;
use crate::load::{self, MeasuredPoint, MeasurementPlan};
use crate::model::ModelTraits;
use crate::options::{self, Load, PerfOptions};
use crate::preparation::{self, PreparedRun};
use crate::report::{self, ReportRow};
use crate::search::{LoadSearch, Points};

/// Runs the load generator to its end; blocks. The first argument is the program's name.
///
/// Writes the report or the help to `out`, point by point, and errors to `errors`. Returns the exit status: 0 for success,
/// 1 if the server is not reachable or no request of a point succeeded, 2 if the command line is wrong, 3 if a point is not
/// stable.
pub fn run(arguments: impl IntoIterator<Item = OsString>, out: &mut dyn Write, errors: &mut dyn Write) -> u8 {
    let (written, status) = match options::parse(arguments) {
        // Clap does not say whose help it means.
        Err(error) if error.use_stderr() => {
            let text = error.to_string().replace("try '--help'", "try 'nereid perf --help'");
            (write!(errors, "{text}"), 2)
        }
        Err(help) => (write!(out, "{help}"), 0),
        Ok(options) => match run_with(&options, out) {
            Ok(true) => (Ok(()), 0),
            Ok(false) => (Ok(()), 3),
            Err(error) => (writeln!(errors, "error: {error:#}"), 1),
        },
    };
    // Writing fails only if the reader has closed the output. Then no message can reach the user.
    written.map_or(1, |()| status)
}

/// Returns whether all points are stable.
fn run_with(options: &PerfOptions, out: &mut dyn Write) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (rows, traits) = tokio::task::LocalSet::new().block_on(&runtime, measure(options, out))?;
    let reports = &options.reports;
    write_file(reports.csv.as_deref(), |file| report::table::write_csv(file, options, &rows))?;
    write_file(reports.latency_report.as_deref(), |file| {
        report::latency_csv::write(file, options, &traits, &rows)
    })?;
    write_file(reports.plot.as_deref(), |file| report::plot::write(file, options, &rows))?;
    write_file(reports.profile.as_deref(), |file| report::profile::write(file, &rows))?;
    ensure!(rows.iter().all(|row| row.good() > 0), "no request succeeded");
    Ok(rows.iter().all(|row| row.point.is_stable))
}

fn write_file(path: Option<&Path>, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let cannot = || format!("cannot write {}", path.display());
    let file = std::fs::File::create(path).with_context(cannot)?;
    write(&mut BufWriter::new(file)).with_context(cannot)
}

async fn measure(options: &PerfOptions, out: &mut dyn Write) -> Result<(Vec<ReportRow>, ModelTraits)> {
    let mut run = preparation::prepare(options).await?;
    let rows = measure_points(options, &mut run, out).await;
    run.release(options).await?;
    Ok((rows?, run.traits))
}

async fn measure_points(
    options: &PerfOptions,
    run: &mut PreparedRun,
    out: &mut dyn Write,
) -> Result<Vec<ReportRow>> {
    let plan = MeasurementPlan {
        warm_up: options.warm_up,
        windows: options.windows,
        percentile: options.percentile,
        latency_limit: options.latency_limit,
        server_pids: options.server_pids.clone(),
        keep_requests: options.reports.profile.is_some(),
    };
    let table = options.reports.table;
    match table {
        true => report::table::write_headings(out, options)?,
        false => report::text::write_settings(out, options, &run.traits)?,
    }
    let points = match &options.load {
        Load::Closed(points) | Load::Open { rates: points, .. } => points.clone(),
        Load::Intervals { .. } => Points::List(vec![run.interval_rate()?]),
    };
    let mut search = LoadSearch::new(points);
    let mut rows: Vec<ReportRow> = Vec::new();
    let mut is_good = true;
    while let Some(point) = search.next(is_good) {
        let (callers, rate) = callers_and_rate(options, run, point);
        if !table {
            report::text::write_heading(out, callers, rate)?;
        }
        let connections = caller::connection_count(options, callers);
        let point = measure_point(callers, rate, run, options, &plan).await?;
        is_good = is_within_limit(&point, options);
        let row = ReportRow { callers, connections, rate, point };
        match table {
            true => report::table::write_row(out, &row, options)?,
            false => report::text::write_point(out, &row, options, &run.traits)?,
        }
        rows.push(row);
    }
    if !table {
        report::text::write_summary(out, options, &rows)?;
    }
    Ok(rows)
}

/// Whether a range goes on after the point.
fn is_within_limit(point: &MeasuredPoint, options: &PerfOptions) -> bool {
    let measured = &point.measured;
    let latency = measured.stabilizing_latency(options.percentile);
    // A point without a response has no latency.
    measured.latencies.count() > 0 && options.latency_limit.is_none_or(|limit| latency <= limit)
}

fn callers_and_rate(options: &PerfOptions, run: &PreparedRun, point: f64) -> (usize, Option<f64>) {
    let open = |callers: usize| match run.has_sequences {
        true => options.sequences.count,
        false => callers,
    };
    match &options.load {
        Load::Closed(_) => (point as usize, None),
        Load::Open { callers, .. } | Load::Intervals { callers, .. } => (open(*callers), Some(point)),
    }
}

async fn measure_point(
    callers: usize,
    rate: Option<f64>,
    run: &mut PreparedRun,
    options: &PerfOptions,
    plan: &MeasurementPlan,
) -> Result<MeasuredPoint> {
    let feed = run.feed(options, callers)?;
    let callers = caller::open(callers, &run.requests, &feed, options).await?;
    let arrivals = match (&options.load, rate) {
        (Load::Open { distribution, .. }, Some(rate)) => Arrivals::new(*distribution, rate, options.seed),
        (Load::Intervals { .. }, _) => Arrivals::listed(run.gaps.clone()),
        _ => return load::closed(callers, plan, &mut run.statistics).await,
    };
    load::open(callers, arrivals, plan, &mut run.statistics).await
}
