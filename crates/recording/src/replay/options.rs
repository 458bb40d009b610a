//! The command line of `nereid replay`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use client::fetch::ServerAddress;
use http::{HeaderMap, HeaderName, HeaderValue};

const ABOUT: &str = "\
Sends the calls of a recording ('nereid record') to a server, with the times between them, and compares the answers with
those of the recording. Reports latencies beside those of the recording, and how the answers differ.

Latency counts from the time a call was due. A call of a sequence waits for the answer of the one before it.";

const AFTER: &str = "\
Calls that change the server (loads, shared memory, settings) are not sent without --all-calls. Secrets are not in a
recording: give them with --header.

Exit status: 0 all answers are as recorded, 1 the file cannot be read or no call was answered, 2 wrong usage, 3 an answer
differs or is missing. docs/recording.md describes everything.";

/// What `nereid replay` does.
#[derive(Debug, Clone)]
pub(crate) struct ReplayOptions {
    pub(crate) file: PathBuf,
    pub(crate) http: ServerAddress,
    pub(crate) grpc: ServerAddress,
    /// How much faster than recorded. Above zero.
    pub(crate) speed: f64,
    /// The most calls without an answer. Further calls wait, and their wait counts.
    pub(crate) concurrency: usize,
    /// A call without an answer for so long has failed.
    pub(crate) patience: Duration,
    /// Headers of each call, instead of recorded ones of these names.
    pub(crate) headers: HeaderMap,
    pub(crate) sends_all: bool,
    pub(crate) compares: bool,
    /// How much numbers may differ: absolutely, and relative to numbers above one.
    pub(crate) tolerance: f64,
    /// A JSON file with the report.
    pub(crate) json: Option<PathBuf>,
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
}

/// The table of the options of `nereid replay`, for completions and the manual page.
pub fn command_line() -> Command {
    let usage = "nereid replay [OPTIONS] <FILE>";
    Command::new("nereid replay")
        .override_usage(usage)
        .about(ABOUT)
        .after_help(AFTER)
        .args_override_self(true)
        .args([
            Arg::new("file").value_name("FILE").help("The recording").required(true),
            option("url", "HOST[:PORT]", "The HTTP port of the server")
                .short('u')
                .default_value("localhost:8000"),
            option("grpc-url", "HOST[:PORT]", "The gRPC port of the server").default_value("localhost:8001"),
            option(
                "ca-certificates",
                "FILE",
                "The certificates that are trusted [default: those of the system]",
            ),
            option(
                "header",
                "NAME:VALUE",
                "A header of each call, such as an API key; may be given several times",
            )
            .short('H')
            .action(ArgAction::Append),
            option("speed", "X", "Times between calls are divided by X").default_value("1"),
            option("concurrency", "N", "Calls without an answer at the same time; further ones wait")
                .default_value("256"),
            option("timeout", "SECONDS", "A call without an answer for so long has failed")
                .default_value("60"),
            option("tolerance", "T", "Numbers may differ by T, and by T of their size if they are above one")
                .default_value("0"),
            flag("no-compare", "Do not compare answers"),
            flag("all-calls", "Also send calls that change the server"),
            option("json", "FILE", "Write the report to a JSON file, too"),
        ])
}

/// Reads a command line; the first argument is the program's name.
///
/// # Errors
/// What clap reports. A request for `--help` is also an error here.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<ReplayOptions, clap::Error> {
    let mut command = command_line();
    let matches = command.try_get_matches_from_mut(arguments)?;
    from_matches(&matches).map_err(|message| command.error(ErrorKind::ValueValidation, message))
}

fn from_matches(matches: &ArgMatches) -> Result<ReplayOptions, String> {
    let given = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let text = |name: &str| given(name).expect("the option has a default value or is required");
    let server = |name: &str, read: fn(&str) -> anyhow::Result<ServerAddress>| {
        let server = read(text(name)).map_err(|error| format!("--{name}: {error}"))?;
        Ok::<_, String>(ServerAddress { trusted: given("ca-certificates").map(Into::into), ..server })
    };
    let mut headers = HeaderMap::new();
    for text in matches.get_many::<String>("header").into_iter().flatten() {
        let wrong = || format!("--header is NAME:VALUE without control characters, got '{text}'");
        let (name, value) = text.split_once(':').ok_or_else(wrong)?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
        headers.append(name, HeaderValue::try_from(value.trim()).map_err(|_| wrong())?);
    }
    let patience = number("timeout", text("timeout"))?;
    let concurrency = text("concurrency").parse().ok().filter(|count| (1..=100_000).contains(count));
    let concurrency = concurrency.ok_or("--concurrency is a whole number from 1 to 100000")?;
    let tolerance = text("tolerance").parse().ok().filter(|tolerance: &f64| *tolerance >= 0.0);
    Ok(ReplayOptions {
        file: text("file").into(),
        http: server("url", ServerAddress::parse)?,
        grpc: server("grpc-url", ServerAddress::parse_grpc)?,
        speed: number("speed", text("speed"))?,
        concurrency,
        patience: Duration::try_from_secs_f64(patience).map_err(|_| "--timeout is too long")?,
        headers,
        sends_all: matches.get_flag("all-calls"),
        compares: !matches.get_flag("no-compare"),
        tolerance: tolerance.ok_or("--tolerance is a number that is not negative")?,
        json: given("json").map(Into::into),
    })
}

fn number(option: &str, text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err(format!("--{option} is a number above zero, got '{text}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<ReplayOptions, String> {
        let words = ["replay"].into_iter().chain(line.split_whitespace()).map(OsString::from);
        parse(words).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_enough() {
        let options = parsed("calls.jsonl").unwrap();
        assert_eq!(
            (options.http.host.as_str(), options.grpc.host.as_str()),
            ("localhost:8000", "localhost:8001")
        );
        assert_eq!((options.speed, options.compares, options.sends_all), (1.0, true, false));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, word) in [
            ("", "<FILE>"),
            ("f --speed 0", "--speed is a number above zero"),
            ("f --speed inf", "--speed is a number above zero"),
            ("f --tolerance=-1", "--tolerance is a number"),
            ("f --tolerance NaN", "--tolerance is a number"),
            ("f --concurrency 0", "--concurrency is a whole number"),
            ("f --timeout 1e300", "--timeout is too long"),
            ("f -H nothing", "--header is NAME:VALUE"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
