//! The command line of `nereid record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use client::fetch::ServerAddress;
use http::HeaderName;

use crate::forwarded_headers::{RESTRICTED_PROTOCOL, RecordedHeaders};

const ABOUT: &str = "\
Stands between clients and a server, and writes their calls and the answers to a file, with their times. 'nereid
replay' sends them again. Clients use the ports of this command instead of those of the server.

Traffic never waits for the file: a call that finds no room is passed on and not recorded. Headers that look like
secrets (Authorization, cookies, keys, tokens, passwords) are passed on and not recorded. Only the owner can read the
file.";

const AFTER: &str = "\
The command ends when it gets SIGINT or SIGTERM. docs/recording.md describes the file.

Exit status: 0 recorded, 1 the file cannot be written or a port is not free, 2 wrong usage.";

/// The server's options that name the headers of restricted APIs.
const HTTP_RESTRICTED: &str = "http-restricted-api";
const GRPC_RESTRICTED: &str = "grpc-restricted-protocol";

/// What `nereid record` does.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// The file that is made.
    pub(crate) file: PathBuf,
    /// Where it listens, and the server behind it.
    pub(crate) http: Option<(String, ServerAddress)>,
    /// As `http`, for gRPC.
    pub(crate) grpc: Option<(String, ServerAddress)>,
    pub(crate) limits: RecordingLimits,
    pub(crate) headers: RecordedHeaders,
    pub(crate) has_answers: bool,
    pub(crate) hides_tensors: bool,
    pub(crate) max_connections: usize,
}

/// What a recording takes at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordingLimits {
    /// The bytes of a body. A longer one is not recorded.
    pub(crate) body: usize,
    /// The bytes of calls that are not written yet.
    pub(crate) memory: usize,
    /// The bytes of the file. Nothing more is recorded then.
    pub(crate) file: u64,
    /// The number of calls.
    pub(crate) calls: u64,
    pub(crate) duration: Duration,
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
}

/// The table of options.
pub fn command_line() -> Command {
    Command::new("nereid record")
        .override_usage("nereid record [OPTIONS] <FILE>")
        .about(ABOUT)
        .args_override_self(true)
        .after_help(AFTER)
        .args([
            Arg::new("file").value_name("FILE").help("The file to make").required(true),
            option("url", "HOST[:PORT]", "The HTTP port of the server")
                .short('u')
                .default_value("localhost:8000"),
            option("grpc-url", "HOST[:PORT]", "The gRPC port of the server").default_value("localhost:8001"),
            option("listen", "[HOST:]PORT", "Where clients reach the HTTP port of the server, or 'none'")
                .default_value("127.0.0.1:9000"),
            option(
                "grpc-listen",
                "[HOST:]PORT",
                "Where clients reach the gRPC port of the server, or 'none'",
            )
            .default_value("127.0.0.1:9001"),
            option(
                "ca-certificates",
                "FILE",
                "The certificates that are trusted, for https:// and grpcs:// [default: those of the system]",
            ),
            flag("hide-tensors", "Replace the values of tensors: numbers by 0, texts by as many x"),
            option("omit-header", "NAME", "A header that is not recorded; may be given several times")
                .action(ArgAction::Append),
            option(
                HTTP_RESTRICTED,
                "APIS:KEY[=VALUE]",
                "As the server's option: the header KEY is not recorded; may be given several times",
            )
            .action(ArgAction::Append),
            option(
                GRPC_RESTRICTED,
                "PROTOCOLS:KEY[=VALUE]",
                "As the server's option: triton-grpc-protocol-KEY is not recorded; may be given several times",
            )
            .action(ArgAction::Append),
            flag("no-answers", "Record the calls only; a replay has nothing to compare then"),
            option("duration", "SECONDS", "Record nothing more after this time"),
            option("max-calls", "N", "Record nothing more after so many calls"),
            option("max-file-bytes", "N", "Record nothing more when the file has this size")
                .default_value("1073741824"),
            option("max-body-bytes", "N", "Do not record longer bodies").default_value("67108864"),
            option("max-memory-bytes", "N", "Do not record calls while so many bytes wait for the file")
                .default_value("268435456"),
            option("max-connections", "N", "Connections at the same time; further ones wait")
                .default_value("1024"),
        ])
}

/// Reads a command line; the first argument is the program's name.
///
/// # Errors
/// What clap reports. A request for `--help` is also an error here.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<RecordOptions, clap::Error> {
    let mut command = command_line();
    let matches = command.try_get_matches_from_mut(arguments)?;
    from_matches(&matches).map_err(|message| command.error(ErrorKind::ValueValidation, message))
}

fn given<'m>(matches: &'m ArgMatches, name: &str) -> Option<&'m str> {
    matches.get_one::<String>(name).map(String::as_str)
}

fn from_matches(matches: &ArgMatches) -> Result<RecordOptions, String> {
    let text = |name: &str| given(matches, name).expect("the option has a default value or is required");
    let side = |listen: &str, url: &str, read: fn(&str) -> anyhow::Result<ServerAddress>| {
        if text(listen) == "none" {
            return Ok(None);
        }
        let server = read(text(url)).map_err(|error| format!("--{url}: {error}"))?;
        let server = ServerAddress { trusted: given(matches, "ca-certificates").map(Into::into), ..server };
        Ok::<_, String>(Some((listened(listen, text(listen))?, server)))
    };
    let http = side("listen", "url", ServerAddress::parse)?;
    let grpc = side("grpc-listen", "grpc-url", ServerAddress::parse_grpc)?;
    if http.is_none() && grpc.is_none() {
        return Err("--listen and --grpc-listen cannot both be none".into());
    }
    let duration = given(matches, "duration").map(|text| seconds("duration", text)).transpose()?;
    let calls = given(matches, "max-calls").map(|text| whole("max-calls", text)).transpose()?;
    Ok(RecordOptions {
        file: text("file").into(),
        http,
        grpc,
        limits: RecordingLimits {
            body: size("max-body-bytes", text("max-body-bytes"))?,
            memory: size("max-memory-bytes", text("max-memory-bytes"))?,
            file: whole("max-file-bytes", text("max-file-bytes"))?,
            calls: calls.unwrap_or(u64::MAX),
            duration: duration.unwrap_or(Duration::MAX),
        },
        headers: RecordedHeaders::without(omitted_headers(matches)?),
        has_answers: !matches.get_flag("no-answers"),
        hides_tensors: matches.get_flag("hide-tensors"),
        max_connections: size("max-connections", text("max-connections"))?,
    })
}

/// The headers that the operator names, also by the server's options for restricted APIs.
fn omitted_headers(matches: &ArgMatches) -> Result<Vec<HeaderName>, String> {
    let given = |option: &str| matches.get_many::<String>(option).into_iter().flatten();
    // Errors do not repeat the text, which may contain the value of the key.
    let key = |option: &str, text: &str| {
        let (_, key) = text.split_once(':').ok_or_else(|| format!("--{option} is <apis>:<key>[=<value>]"))?;
        let key = key.split('=').next().unwrap_or(key);
        Ok::<_, String>(match option {
            GRPC_RESTRICTED => format!("{RESTRICTED_PROTOCOL}{key}"),
            _ => key.to_owned(),
        })
    };
    let mut names: Vec<(&str, String)> =
        given("omit-header").map(|name| ("omit-header", name.clone())).collect();
    for option in [HTTP_RESTRICTED, GRPC_RESTRICTED] {
        for text in given(option) {
            names.push((option, key(option, text)?));
        }
    }
    let parse = |(option, name): &(&str, String)| {
        HeaderName::try_from(name.as_str()).map_err(|_| match *option {
            "omit-header" => format!("--omit-header '{name}' is no name of a header"),
            option => format!("--{option}: the key is no name of a header"),
        })
    };
    names.iter().map(parse).collect()
}

/// `HOST:PORT` of a port to listen at. Without a host it is reachable from this machine only.
fn listened(option: &str, text: &str) -> Result<String, String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port),
        None => ("127.0.0.1", text),
    };
    match port.parse::<u16>() {
        Ok(port) if !host.is_empty() => Ok(format!("{host}:{port}")),
        _ => Err(format!("--{option} is [HOST:]PORT or none, got '{text}'")),
    }
}

fn whole(option: &str, text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("--{option} is a whole number above zero, got '{text}'")),
    }
}

/// A number that may be at most 4 GiB.
fn size(option: &str, text: &str) -> Result<usize, String> {
    match whole(option, text)? {
        number if number <= u64::from(u32::MAX) => Ok(number as usize),
        _ => Err(format!("--{option} is at most {}, got '{text}'", u32::MAX)),
    }
}

fn seconds(option: &str, text: &str) -> Result<Duration, String> {
    let wrong = || format!("--{option} is a number of seconds above zero, got '{text}'");
    let duration = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.filter(|duration| !duration.is_zero()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<RecordOptions, String> {
        let words = ["record"].into_iter().chain(line.split_whitespace()).map(OsString::from);
        parse(words).map_err(|error| error.to_string())
    }

    #[test]
    fn both_protocols_are_recorded_unless_one_is_none() {
        let options = parsed("calls.jsonl --grpc-url grpcs://triton --listen 0.0.0.0:80").unwrap();
        assert_eq!(options.http.unwrap().0, "0.0.0.0:80");
        let (listen, server) = options.grpc.unwrap();
        assert_eq!(
            (listen.as_str(), server.host.as_str(), server.is_encrypted),
            ("127.0.0.1:9001", "triton:8001", true)
        );
        assert!(parsed("calls.jsonl --grpc-listen none --listen 7000").unwrap().grpc.is_none());
    }

    #[test]
    fn the_keys_of_restricted_apis_are_left_out_by_the_options_of_the_server() {
        let line = "f --http-restricted-api model-repository,health:who=abc --http-restricted-api trace:Two \
                    --grpc-restricted-protocol health:three=a=b --omit-header four";
        let headers = parsed(line).unwrap().headers;
        let sent = ["who", "two", "three", "triton-grpc-protocol-three", "four", "five"];
        let sent = sent.map(|name| (HeaderName::from_static(name), "v".parse().unwrap()));
        let kept: Vec<_> =
            headers.of(&sent.into_iter().collect()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(kept, ["three", "five"]);
    }

    #[test]
    fn a_refusal_does_not_repeat_the_value_of_a_key() {
        for line in ["f --http-restricted-api who=s3cret", "f --grpc-restricted-protocol health:a/b=s3cret"] {
            assert!(!parsed(line).unwrap_err().contains("s3cret"), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, word) in [
            ("", "<FILE>"),
            ("f --listen none --grpc-listen none", "cannot both be none"),
            ("f --listen x", "--listen is [HOST:]PORT"),
            ("f --url ftp://a", "--url: 'ftp://a' must begin"),
            ("f --max-body-bytes 0", "--max-body-bytes is a whole number above zero"),
            ("f --max-memory-bytes 9999999999", "is at most 4294967295"),
            ("f --duration=-1", "--duration is a number of seconds"),
            ("f --omit-header a:b", "'a:b' is no name of a header"),
            ("f --http-restricted-api x", "--http-restricted-api is <apis>:<key>[=<value>]"),
            ("f --grpc-restricted-protocol health:a/b=c", "--grpc-restricted-protocol: the key is no name"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
