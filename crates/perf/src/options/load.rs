//! Reads the points of a run: numbers of callers or rates, as lists or ranges.

use clap::ArgMatches;
use http::HeaderName;

use super::settings::{Distribution, Load, SequenceOptions};
use super::text::{count, given, number};
use crate::search::Points;

/// The most unanswered requests of an open loop, unless `--concurrency` gives another number.
const OPEN_LOOP_CALLERS: usize = 256;

/// The load that the options give.
pub(super) fn read(matches: &ArgMatches) -> Result<Load, String> {
    let callers = match (given(matches, "concurrency"), given(matches, "concurrency-range")) {
        (Some(_), Some(_)) => {
            return Err("--concurrency and --concurrency-range contradict each other".into());
        }
        (Some(text), None) => Some(callers("--concurrency", text, list)?),
        (None, Some(text)) => Some(callers("--concurrency-range", text, range)?),
        (None, None) => None,
    };
    let rates = match (given(matches, "request-rate"), given(matches, "request-rate-range")) {
        (Some(_), Some(_)) => {
            return Err("--request-rate and --request-rate-range contradict each other".into());
        }
        (Some(text), None) => Some((list("--request-rate", text)?, Distribution::Poisson)),
        (None, Some(text)) => Some((range("--request-rate-range", text)?, Distribution::Constant)),
        (None, None) => None,
    };
    let distribution = given(matches, "request-distribution").map(|name| match name {
        "poisson" => Distribution::Poisson,
        _ => Distribution::Constant,
    });
    let intervals = given(matches, "request-intervals");
    if distribution.is_some() && rates.is_none() {
        return Err("--request-distribution is for an open loop: give --request-rate-range".into());
    }
    if intervals.is_some() && rates.is_some() {
        return Err("--request-intervals and a request rate contradict each other".into());
    }
    let load = match (rates, intervals) {
        (None, None) => Load::Closed(callers.unwrap_or_else(|| Points::List(vec![1.0]))),
        (None, Some(file)) => Load::Intervals { file: file.into(), callers: open_callers(callers)? },
        (Some((rates, usual)), _) => {
            let distribution = distribution.unwrap_or(usual);
            Load::Open { rates, distribution, callers: open_callers(callers)? }
        }
    };
    searched(load, matches)
}

/// The most unanswered requests of an open loop.
fn open_callers(callers: Option<Points>) -> Result<usize, String> {
    match callers {
        None => Ok(OPEN_LOOP_CALLERS),
        Some(Points::List(counts)) if counts.len() == 1 => Ok(counts[0] as usize),
        Some(_) => Err("--concurrency takes one number when there is a request rate".into()),
    }
}

/// Applies `--binary-search` and checks that a range without an end has a limit.
fn searched(mut load: Load, matches: &ArgMatches) -> Result<Load, String> {
    let limited = given(matches, "latency-threshold").is_some_and(|text| text != "0");
    let points = match &mut load {
        Load::Closed(points) | Load::Open { rates: points, .. } => Some(points),
        Load::Intervals { .. } => None,
    };
    if matches.get_flag("binary-search") {
        match points {
            Some(Points::Range { end: Some(_), is_binary, .. }) if limited => *is_binary = true,
            _ => {
                return Err("--binary-search needs a range with an end, and --latency-threshold".into());
            }
        }
    } else if let Some(Points::Range { end: None, .. }) = points
        && !limited
    {
        return Err("a range that ends at 0 has no end: give --latency-threshold".into());
    }
    Ok(load)
}

/// Numbers of callers: whole numbers above zero.
fn callers(
    option: &str,
    text: &str,
    read: fn(&str, &str) -> Result<Points, String>,
) -> Result<Points, String> {
    let points = read(option, text)?;
    let numbers: Vec<f64> = match &points {
        Points::List(numbers) => numbers.clone(),
        Points::Range { start, end, step, .. } => vec![*start, end.unwrap_or(1.0), *step],
    };
    match numbers.iter().all(|number| number.fract() == 0.0) {
        true => Ok(points),
        false => Err(format!("{option} takes whole numbers, got '{text}'")),
    }
}

/// Reads `1,16,64` or a range.
fn list(option: &str, text: &str) -> Result<Points, String> {
    if text.contains(':') {
        return range(option, text);
    }
    let numbers = text.split(',').map(|text| positive(option, text)).collect::<Result<_, _>>()?;
    Ok(Points::List(numbers))
}

/// Reads `START[:END[:STEP]]`. An end of 0 stands for no end.
fn range(option: &str, text: &str) -> Result<Points, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (start, end, step) = match parts[..] {
        [start] => return Ok(Points::List(vec![positive(option, start)?])),
        [start, end] => (start, end, "1"),
        [start, end, step] => (start, end, step),
        _ => return Err(format!("{option} is START[:END[:STEP]], got '{text}'")),
    };
    let start = positive(option, start)?;
    let end = match number::<f64>(option, end)? {
        0.0 => None,
        _ => Some(positive(option, end)?),
    };
    if end.is_some_and(|end| end < start) {
        return Err(format!("{option} must not end before it starts, got '{text}'"));
    }
    Ok(Points::Range { start, end, step: positive(option, step)?, is_binary: false })
}

fn positive(option: &str, text: &str) -> Result<f64, String> {
    match number::<f64>(option, text)? {
        number if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err(format!("{option} must be above zero, got '{text}'")),
    }
}

fn header_name(text: &str) -> Result<HeaderName, String> {
    text.parse().map_err(|_| format!("--sequence-header is the name of a header, got '{text}'"))
}

/// How requests form sequences.
pub(super) fn sequences(matches: &ArgMatches) -> Result<SequenceOptions, String> {
    let text = |name: &str| given(matches, name).expect("the option has a default value");
    let length =
        given(matches, "sequence-length").map(|text| number("--sequence-length", text)).transpose()?;
    let variation: f64 = number("--sequence-length-variation", text("sequence-length-variation"))?;
    if !(0.0..=100.0).contains(&variation) {
        return Err("--sequence-length-variation is a percentage from 0 to 100".into());
    }
    let ids = text("sequence-id-range");
    let (first, end) = match ids.split_once(':') {
        None => (ids, None),
        Some((first, end)) => (first, Some(number("--sequence-id-range", end)?)),
    };
    let first_id: u64 = number("--sequence-id-range", first)?;
    if first_id == 0 || end.is_some_and(|end: u64| end <= first_id) {
        return Err(format!("--sequence-id-range is START[:END] with 0 < START < END, got '{ids}'"));
    }
    Ok(SequenceOptions {
        of_one_request: matches.get_flag("sequences"),
        // As perf_analyzer: a length of 0 stands for the default.
        length: length.filter(|&length: &u32| length > 0),
        variation,
        first_id,
        end_id: end,
        count: count("--num-of-sequences", text("num-of-sequences"))?,
        header: given(matches, "sequence-header").map(header_name).transpose()?,
    })
}
