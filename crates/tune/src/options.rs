//! The command line of `nereid tune` as one value without contradictions.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::search::{SearchPlan, TuningGoal, powers};

/// All settings of a run.
#[derive(Debug, PartialEq, Clone)]
pub struct TuneOptions {
    /// The model.
    pub model: String,
    /// The directories in which it is searched, in this order. At least one.
    pub repositories: Vec<PathBuf>,
    /// What is best.
    pub goal: TuningGoal,
    /// The percentile of the latency.
    pub percentile: Percentile,
    /// The numbers of callers. At least one.
    pub callers: Vec<u32>,
    /// The largest batch to try. `None`: the model's.
    pub batch_max: Option<u32>,
    /// How long the measurements may take, from the start of the program.
    pub time: Duration,
    /// Where the configuration and the report go.
    pub output: PathBuf,
    /// Whether the configuration also replaces the model's.
    pub writes: bool,
    /// How points are chosen.
    pub plan: SearchPlan,
    /// Options of the load generator for the requests.
    pub request_options: Vec<String>,
    /// Options of the server.
    pub server_options: Vec<String>,
}

/// The percentiles that the load generator reports.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Percentile {
    /// As users write it: `99.9`.
    pub name: &'static str,
    /// The column of the load generator's CSV.
    pub column: &'static str,
}

const PERCENTILES: [Percentile; 4] = [
    Percentile { name: "50", column: "p50_us" },
    Percentile { name: "90", column: "p90_us" },
    Percentile { name: "99", column: "p99_us" },
    Percentile { name: "99.9", column: "p999_us" },
];

/// Options of the server that the command sets itself.
const OWN_OPTIONS: &[&str] = &[
    "model-repository",
    "model-store",
    "model-control-mode",
    "model-config-name",
    "http-address",
    "http-port",
    "allow-http",
    "allow-grpc",
    "allow-metrics",
    "cache-config",
    "response-cache-byte-size",
    "config",
    "strict-readiness",
    "exit-on-error",
];

/// The shortest time in which something can be found.
const LEAST_SECS: f64 = 5.0;

const ABOUT: &str = "\
Finds instances, batch size, queue delay and threads of a model for a target, by measurements on this machine. Writes the
configuration and a report that says why. The model is served by a process of its own from a directory of links. Its
repository does not change, unless --write is given.";

const AFTER: &str = "\
Target: with --latency-ms, the highest throughput whose latency is not above it. With --throughput, the lowest latency
whose throughput is not below it. Without both, the knee: the largest throughput / latency^0.25, so that twice the latency
must bring 19 % more throughput.

Load: each caller sends one row, and sends its next request when it has its answer. The load generator uses the processors of
this machine, too. The report says how much.

Options of the server follow after '--': nereid tune models/m -- --backend-directory=/backends

Exit codes: 0 written (after Ctrl-C, too, with what was measured), 1 failed, 2 wrong usage.";

/// Reads a command line; the first argument is the program's name.
///
/// # Errors
/// What clap reports. A request for `--help` is also an error here.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<TuneOptions, clap::Error> {
    let mut command = command_line();
    let matches = command.try_get_matches_from_mut(arguments)?;
    from_matches(&matches).map_err(|message| command.error(ErrorKind::ValueValidation, message))
}

/// The table of options.
pub fn command_line() -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
    };
    Command::new("nereid tune")
        .override_usage("nereid tune <MODEL DIRECTORY> [OPTIONS] [-- <SERVER OPTION>...]")
        .about(ABOUT)
        .after_help(AFTER)
        .arg(
            Arg::new("directory")
                .value_name("MODEL DIRECTORY")
                .help("The model to tune: its directory, or its name if --model-repository is given")
                .required_unless_present("model"),
        )
        .arg(text("model", "MODEL", "The model, as the argument").short('m').conflicts_with("directory"))
        .arg(
            text("model-repository", "DIR", "The directory that has the model; may be repeated")
                .action(ArgAction::Append),
        )
        .arg(text("latency-ms", "MS", "The latency that is allowed").conflicts_with("throughput"))
        .arg(text("throughput", "REQ/S", "The throughput that is needed"))
        .arg(
            text("percentile", "P", "Which latency counts")
                .value_parser(PERCENTILES.map(|percentile| percentile.name))
                .default_value("99"),
        )
        .arg(text("concurrency-max", "N", "Up to so many callers, in powers of two").default_value("64"))
        .arg(
            text("concurrency", "N[,N...]", "Exactly these numbers of callers")
                .conflicts_with("concurrency-max"),
        )
        .arg(text("batch-max", "N", "The largest batch to try [default: the model's max_batch_size]"))
        .arg(text("time", "SECONDS", "How long it may take").default_value("180"))
        .arg(text("output", "DIR", "Where configuration and report go [default: tune-MODEL]"))
        .arg(flag("write", "Replace the model's config.pbtxt, too"))
        .arg(flag("exhaustive", "Measure every point, however long it takes"))
        .arg(
            text("shape", "NAME:N,N", "Shape of an input with variable dimensions; as for nereid perf")
                .action(ArgAction::Append),
        )
        .arg(text("input-data", "zero|random|FILE", "What the tensors hold; as for nereid perf"))
        .arg(
            Arg::new("server-option")
                .value_name("SERVER OPTION")
                .help("Options of the server that serves the model")
                .num_args(0..)
                .last(true),
        )
}

fn from_matches(matches: &ArgMatches) -> Result<TuneOptions, String> {
    let given = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let many = |name: &str| -> Vec<String> {
        matches.get_many::<String>(name).into_iter().flatten().cloned().collect()
    };
    let model = given("model").or(given("directory")).expect("one of them is required");
    let (model, repositories) = place(model, many("model-repository"))?;
    if let Some(url) = repositories.iter().find(|path| path.contains("://")) {
        return Err(format!("--model-repository is '{url}': only models in directories can be tuned"));
    }
    let goal = match (given("latency-ms"), given("throughput")) {
        (Some(text), _) => TuningGoal::Latency(positive("--latency-ms", text)?),
        (None, Some(text)) => TuningGoal::Throughput(positive("--throughput", text)?),
        (None, None) => TuningGoal::Knee,
    };
    let percentile = given("percentile").expect("the option has a default value");
    let percentile = PERCENTILES.into_iter().find(|known| known.name == percentile);
    let callers = match given("concurrency") {
        Some(list) => list.split(',').map(|text| count("--concurrency", text)).collect::<Result<_, _>>()?,
        None => {
            let most = given("concurrency-max").expect("the option has a default value");
            powers(count("--concurrency-max", most)?)
        }
    };
    let seconds = positive("--time", given("time").expect("the option has a default value"))?;
    if !(LEAST_SECS..=86_400.0).contains(&seconds) {
        return Err(format!("--time must be from {LEAST_SECS} to 86400 seconds, got '{seconds}'"));
    }
    let mut request_options: Vec<String> =
        many("shape").iter().map(|shape| format!("--shape={shape}")).collect();
    request_options.extend(given("input-data").map(|data| format!("--input-data={data}")));
    let output = given("output").map_or_else(|| format!("tune-{model}").into(), PathBuf::from);
    Ok(TuneOptions {
        repositories: repositories.into_iter().map(PathBuf::from).collect(),
        goal,
        percentile: percentile.expect("clap admits only these"),
        callers,
        batch_max: given("batch-max").map(|text| count("--batch-max", text)).transpose()?,
        time: Duration::from_secs_f64(seconds),
        output,
        writes: matches.get_flag("write"),
        plan: if matches.get_flag("exhaustive") { SearchPlan::Exhaustive } else { SearchPlan::Model },
        request_options,
        server_options: server_options(many("server-option"))?,
        model,
    })
}

/// The name of the model, and the repositories that may have it.
fn place(model: &str, mut repositories: Vec<String>) -> Result<(String, Vec<String>), String> {
    let mut name = model;
    if repositories.is_empty() {
        let directory = model.trim_end_matches('/');
        let Some((repository, last)) = directory.rsplit_once('/') else {
            return Err(format!(
                "name the directory of the model, or the repository: nereid tune models/{model}, or \
                 nereid tune {model} --model-repository models"
            ));
        };
        name = last;
        repositories.push(if repository.is_empty() { "/" } else { repository }.to_owned());
    }
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(format!(
            "'{name}' is not the name of a model: name the directory inside of the repository"
        ));
    }
    Ok((name.to_owned(), repositories))
}

fn server_options(options: Vec<String>) -> Result<Vec<String>, String> {
    for option in &options {
        let name = option.trim_start_matches('-').split('=').next().unwrap_or_default();
        if OWN_OPTIONS.contains(&name) {
            return Err(format!("the server option '--{name}' is set by 'nereid tune' itself"));
        }
    }
    Ok(options)
}

fn positive(option: &str, text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err(format!("{option} must be a number above zero, got '{text}'")),
    }
}

/// The largest count that any option takes.
const MOST: u32 = 65_536;

fn count(option: &str, text: &str) -> Result<u32, String> {
    match text.trim().parse::<u32>() {
        Ok(count) if (1..=MOST).contains(&count) => Ok(count),
        _ => Err(format!("{option} must be a whole number from 1 to {MOST}, got '{text}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<TuneOptions, String> {
        parse(["tune"].into_iter().chain(line.split_whitespace()).map(OsString::from))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_model_and_its_repository_are_enough() {
        let options = parsed("m --model-repository r").unwrap();
        assert_eq!((options.goal, options.percentile.column), (TuningGoal::Knee, "p99_us"));
        assert_eq!(options.callers, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(options.output, PathBuf::from("tune-m"));
        assert_eq!((options.time, options.writes), (Duration::from_secs(180), false));
        assert!(parsed("m").unwrap_err().contains("nereid tune models/m"));
        for line in ["r/m", "r/m/", "-m r/m", "-m m --model-repository r"] {
            assert_eq!(parsed(line).unwrap(), options, "{line}");
        }
        assert_eq!(parsed("/m").unwrap().repositories, [PathBuf::from("/")]);
    }

    #[test]
    fn every_option_has_its_place() {
        let line = "m --model-repository r --model-repository s --latency-ms 2.5 --percentile 99.9 --concurrency 8,4 \
                    --batch-max 16 --time 30 --output o --write --exhaustive --shape A:3 --input-data random \
                    -- --backend-directory=b --load-model x";
        let expected = TuneOptions {
            model: "m".into(),
            repositories: vec!["r".into(), "s".into()],
            goal: TuningGoal::Latency(2.5),
            percentile: Percentile { name: "99.9", column: "p999_us" },
            callers: vec![8, 4],
            batch_max: Some(16),
            time: Duration::from_secs(30),
            output: "o".into(),
            writes: true,
            plan: SearchPlan::Exhaustive,
            request_options: vec!["--shape=A:3".into(), "--input-data=random".into()],
            server_options: vec!["--backend-directory=b".into(), "--load-model".into(), "x".into()],
        };
        assert_eq!(parsed(line).unwrap(), expected);
    }

    #[test]
    fn contradictions_and_nonsense_are_refused_by_name() {
        for (line, word) in [
            ("a/b --model-repository r", "not the name of a model"),
            ("m --model-repository s3://b/r", "s3://b/r"),
            ("s3://b/r/m", "s3://b/r"),
            ("models/..", "not the name of a model"),
            ("m --model-repository r --latency-ms 0", "--latency-ms"),
            ("m --model-repository r --latency-ms inf", "--latency-ms"),
            ("m --model-repository r --throughput x", "--throughput"),
            ("m --model-repository r --throughput 1 --latency-ms 1", "--latency-ms"),
            ("m --model-repository r --percentile 95", "99.9"),
            ("m --model-repository r --concurrency 4,0", "--concurrency"),
            ("m --model-repository r --concurrency 4 --concurrency-max 4", "--concurrency-max"),
            ("m --model-repository r --batch-max 0", "--batch-max"),
            ("m --model-repository r --time 1", "--time"),
            ("m --model-repository r --backend-directory=b", "--backend-directory"),
            ("m --model-repository r -- --http-port=1", "set by 'nereid tune' itself"),
            ("m n --model-repository r", "n"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
