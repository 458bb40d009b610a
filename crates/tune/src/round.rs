//! One measurement: `nereid perf` as a child process, and what the server counted meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::options::Percentile;
use crate::processors::BusyReading;
use crate::search::BatchTime;
use crate::served::{Interruption, OwnedChild, ServedModel};

/// What all rounds have in common.
pub struct LoadLine {
    /// The program that has the load generator.
    pub program: PathBuf,
    /// The model.
    pub model: String,
    /// The latency that counts.
    pub percentile: Percentile,
    /// Options for the requests.
    pub options: Vec<String>,
    /// Where the figures and the output go.
    pub csv: PathBuf,
    /// The output of the load generator.
    pub printed: PathBuf,
}

/// The times of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTimes {
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub measured: Duration,
}

/// The figures of a round.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundFigures {
    /// Requests per second.
    pub rate: f64,
    /// The latency of the percentile, in milliseconds.
    pub latency_ms: f64,
    /// How many processors the load generator used.
    pub client_processors: f64,
    /// How many processors the server used.
    pub server_processors: f64,
    /// How many processors all other programs used. `None`: the system does not tell.
    pub other_processors: Option<f64>,
    /// Mean times of the batches.
    pub batches: Vec<BatchTime>,
}

/// The load generator has sent no request, because its options do not fit the model, or the server does not answer.
#[derive(Debug)]
pub struct LoadRefused(String);

impl fmt::Display for LoadRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadRefused {}

/// How long the load generator may take beyond its times.
const GRACE: Duration = Duration::from_secs(30);

/// Measures one round.
///
/// # Errors
/// The load generator's error, or those of the requests; or the user wants the end.
pub fn measure(
    line: &LoadLine,
    server: &ServedModel,
    callers: u32,
    times: RoundTimes,
    interruption: &Interruption,
) -> Result<RoundFigures> {
    let before = batch_sums(&server.statistics()?);
    let mut command = Command::new(&line.program);
    command.args(["perf", "--model", &line.model]).arg(format!("--url=127.0.0.1:{}", server.port));
    command.arg(format!("--concurrency={callers}")).arg(format!("--server-pid={}", server.id()));
    command.arg(format!("--warm-up={:.3}", times.warm_up.as_secs_f64()));
    command.arg(format!("--duration={:.3}", times.measured.as_secs_f64()));
    command.args(&line.options).arg("--csv").arg(&line.csv);
    let output = fs::File::create(&line.printed)?;
    command.stdout(output.try_clone()?).stderr(output);
    // A round that failed leaves no figures of the one before.
    if line.csv.exists() {
        fs::remove_file(&line.csv)?;
    }
    let reading = BusyReading::now();
    let mut child = OwnedChild::start(command.stdin(Stdio::null()))?;
    let status = child.wait(times.warm_up + times.measured + GRACE, interruption)?;
    let busy = reading.busy_since();
    let csv = fs::read_to_string(&line.csv).unwrap_or_default();
    let row = row(&csv);
    let number = |name: &str| row.get(name).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    if !status.success() || row.is_empty() || number("errors") > 0.0 {
        let complaint = complaint(&fs::read_to_string(&line.printed).unwrap_or_default());
        if row.is_empty() {
            bail!(LoadRefused(complaint));
        }
        bail!(complaint);
    }
    let rate = number("requests_per_second");
    let client_processors = number("client_us_per_request") * rate / 1e6;
    let server_processors = number("server_us_per_request") * rate / 1e6;
    Ok(RoundFigures {
        rate,
        latency_ms: number(line.percentile.column) / 1e3,
        client_processors,
        server_processors,
        other_processors: busy.map(|busy| (busy - client_processors - server_processors).max(0.0)),
        batches: batch_times(&before, &batch_sums(&server.statistics()?)),
    })
}

/// A reason has so many characters.
const MOST_CHARACTERS: usize = 1000;

/// The reason in what the load generator has printed: the most frequent error of the requests, or its own error.
fn complaint(printed: &str) -> String {
    let lines: Vec<_> = printed.lines().collect();
    let told = lines.iter().enumerate().filter_map(|(place, line)| {
        let (count, text) = request_error(line)?;
        Some((count, place, text))
    });
    let own = || {
        lines
            .iter()
            .enumerate()
            .rev()
            .find_map(|(place, line)| Some((place, line.trim().strip_prefix("error: ")?)))
    };
    let most = told.max_by_key(|(count, place, _)| (*count, std::cmp::Reverse(*place)));
    let Some((place, first)) = most.map(|(_, place, text)| (place, text)).or_else(own) else {
        return "the load generator gave no figures".to_owned();
    };
    // Texts of servers may have several lines, as those of exceptions.
    let is_further = |line: &&&str| request_error(line).is_none() && !line.trim().starts_with("error: ");
    let further = lines[place + 1..].iter().take_while(is_further);
    let mut text = first.to_owned();
    let mut blank = 0;
    for line in further {
        match line.trim().is_empty() {
            true => blank += 1,
            // What follows an empty line belongs to the text only if it is the place of an exception.
            false if blank > 0 && line.trim() != "At:" => break,
            false => {
                blank = 0;
                text.push_str(&format!("\n{line}"));
            }
        }
    }
    match text.char_indices().nth(MOST_CHARACTERS) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// How often an error of requests occurred, and its first line.
fn request_error(line: &str) -> Option<(u64, &str)> {
    let line = line.trim();
    let (count, text) = line.strip_prefix("[ERROR] ").unwrap_or(line).split_once(" times: ")?;
    Some((count.parse().ok()?, text))
}

/// The first row of a CSV file, by its headings.
fn row(csv: &str) -> BTreeMap<String, String> {
    let mut lines = csv.lines().map(fields);
    let (Some(headings), Some(values)) = (lines.next(), lines.next()) else { return BTreeMap::new() };
    headings.into_iter().zip(values).collect()
}

fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut is_quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("there is always one").push(letter),
        }
    }
    fields
}

/// For each size of a batch: how many, and the nanoseconds of all.
type BatchSums = BTreeMap<u64, (u64, u64)>;

fn batch_sums(statistics: &Value) -> BatchSums {
    let mut sums = BatchSums::new();
    for model in statistics["model_stats"].as_array().into_iter().flatten() {
        for batch in model["batch_stats"].as_array().into_iter().flatten() {
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            let infer = &batch["compute_infer"];
            let sum = sums.entry(number(&batch["batch_size"])).or_default();
            *sum = (sum.0 + number(&infer["count"]), sum.1 + number(&infer["ns"]));
        }
    }
    sums
}

/// The batches between two readings. A load may have set the counters to zero.
fn batch_times(before: &BatchSums, after: &BatchSums) -> Vec<BatchTime> {
    let times = after.iter().filter_map(|(&size, &(count, ns))| {
        let (old_count, old_ns) = before.get(&size).copied().filter(|old| old.0 <= count).unwrap_or((0, 0));
        let (count, ns) = (count - old_count, ns.saturating_sub(old_ns));
        let rows = u32::try_from(size).ok().filter(|&rows| rows > 0 && count > 0)?;
        Some(BatchTime { rows, count, mean_ms: ns as f64 / count as f64 / 1e6 })
    });
    times.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_has_its_fields_by_their_headings() {
        let row = row("model,p99_us,requests\n\"a,b\",12.5,3\n");
        assert_eq!(
            (row["model"].as_str(), row["p99_us"].as_str(), row["requests"].as_str()),
            ("a,b", "12.5", "3")
        );
        assert!(super::row("model\n").is_empty());
    }

    #[test]
    fn batches_count_from_the_reading_before() {
        let of = |entries: &[(u64, u64, u64)]| {
            let batches: Vec<_> = entries
                .iter()
                .map(|(size, count, ns)| json!({"batch_size": size, "compute_infer": {"count": count, "ns": ns}}))
                .collect();
            batch_sums(&json!({"model_stats": [{"batch_stats": batches}]}))
        };
        let before = of(&[(1, 10, 10_000_000), (8, 50, 1)]);
        let after = of(&[(1, 14, 18_000_000), (4, 2, 6_000_000), (8, 10, 40_000_000)]);
        let expected = [(1, 4, 2.0), (4, 2, 3.0), (8, 10, 4.0)];
        let expected: Vec<_> =
            expected.iter().map(|&(rows, count, mean_ms)| BatchTime { rows, count, mean_ms }).collect();
        assert_eq!(batch_times(&before, &after), expected);
        assert!(batch_times(&after, &after).is_empty());
    }

    #[test]
    fn the_reason_of_a_failure_is_found_in_the_output() {
        assert_eq!(
            complaint("model 'm'\n error: input 'X' has variable dimensions"),
            "input 'X' has variable dimensions"
        );
        assert_eq!(complaint("callers\n 4\n    3 times: 503 full\n"), "503 full");
        // The server's words are worth more than the sum of all, and the more frequent ones more than others.
        let printed = "  Server: \n    Execution count: 205\n  [ERROR] 2 times: 503 full\n  [ERROR] 205 times: 500 Failed: \
                       ValueError: empty\n\nAt:\n  /m/model.py(4): execute\n\n\nInferences/Second vs. Latency\nerror: no \
                       request succeeded\n";
        assert_eq!(complaint(printed), "500 Failed: ValueError: empty\nAt:\n  /m/model.py(4): execute");
        let long = format!("error: {}", "é".repeat(5000));
        assert_eq!(complaint(&long).chars().count(), MOST_CHARACTERS + 1);
        assert!(complaint("").contains("no figures"));
    }
}
