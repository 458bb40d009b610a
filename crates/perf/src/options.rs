//! The command line of `nereid perf` as one value without contradictions.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// All settings of a run. No list is empty.
#[derive(Debug, PartialEq, Clone)]
pub(crate) struct PerfOptions {
    pub(crate) model: String,
    /// Models that are called after it, each with the outputs of the one before.
    pub(crate) then: Vec<String>,
    /// `None`: the server chooses the version.
    pub(crate) version: Option<String>,
    /// `host:port`.
    pub(crate) address: String,
    /// `None`: connections are not encrypted.
    pub(crate) encryption: Option<TrustedCertificates>,
    pub(crate) protocol: Protocol,
    /// Each request has its own stream with any number of responses.
    pub(crate) streaming: bool,
    pub(crate) load: Load,
    /// The number of HTTP/2 connections. `None`: as many as callers, but at most eight.
    pub(crate) connections: Option<usize>,
    pub(crate) warm_up: Duration,
    pub(crate) until: Until,
    pub(crate) batch: u64,
    /// Every request is a separate sequence.
    pub(crate) sequences: bool,
    /// Shapes from the command line, without the batch dimension, by input name.
    pub(crate) shapes: BTreeMap<String, Vec<i64>>,
    pub(crate) content: InputContent,
    /// Tensors are in shared memory, with so many bytes for each output. `None`: they are in the messages.
    pub(crate) shared_memory: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) csv: Option<PathBuf>,
    pub(crate) server_pids: Vec<u32>,
}

/// Which certificates the server may have.
#[derive(Debug, PartialEq, Clone)]
pub(crate) enum TrustedCertificates {
    /// Those that the system trusts.
    OfSystem,
    /// Those that a certificate in this file has signed.
    File(PathBuf),
}

/// The network protocol.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) enum Protocol {
    /// HTTP/1.1. Tensors are JSON numbers.
    HttpJson,
    /// HTTP/1.1. Tensors are bytes after the JSON header, in both directions.
    HttpBinary,
    /// gRPC. Tensors are raw contents.
    Grpc,
}

/// What determines when the next request is sent.
#[derive(Debug, PartialEq, Clone)]
pub(crate) enum Load {
    /// A closed loop: each caller sends its next request as soon as it has its response. One row for each number of
    /// callers.
    Closed(Vec<usize>),
    /// An open loop: a Poisson schedule. One row for each rate, in requests per second.
    Open {
        rates: Vec<f64>,
        /// How many requests may be unanswered at the same time. Further requests wait, and their wait counts.
        callers: usize,
    },
}

/// The end of a row.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) enum Until {
    Elapsed(Duration),
    Requests(u64),
}

/// The content of the tensors.
#[derive(Debug, PartialEq, Clone)]
pub(crate) enum InputContent {
    Zero,
    Random,
    File(PathBuf),
}

const ABOUT: &str = "\
Sends inference requests to a server and reports throughput and latency. Inputs are made from the model's own
metadata, so any server of the KServe v2 protocol will do.

Closed loop (the default): each of --concurrency callers sends its next request when it has its answer.
Open loop (--request-rate): requests are due at the times of a Poisson process, whatever the server does, and
latency counts from the time a request was due, not from the time it could be sent.";

const AFTER: &str = "\
Connections: over HTTP each caller has one of its own. Over gRPC callers share --connections HTTP/2 connections.

Input file: a JSON object of flat arrays by input name, row-major, either for the whole batch or for one of its
rows: {\"INPUT0\": [1, 2, 3]}. Of a JSON array of such objects each is a request; callers take them in turn.

Chains: with --then, a request is the whole chain, and its latency that of all its calls.

Streaming: `resp/s` counts responses as they come, `first50` and `first99` are the times to the first one.

Columns: latencies in microseconds. `server` is the processor time of the processes named by --server-pid and
their descendants per request, `client` that of the generator itself.";

/// Reads a command line; the first argument is the program's name.
///
/// # Errors
/// What clap reports. A request for `--help` is also an error here.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<PerfOptions, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    from_matches(&matches).map_err(|message| command.error(ErrorKind::ValueValidation, message))
}

fn command() -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("nereid perf")
        .override_usage("nereid perf --model <NAME> [OPTIONS]")
        .about(ABOUT)
        .after_help(AFTER)
        .arg(text("model", "NAME", "The model to call").short('m').required(true))
        .arg(text("model-version", "N", "Its version [default: the server's choice]").short('x'))
        .arg(
            text(
                "then",
                "NAME",
                "Send each response's outputs to this model, as its inputs of the same names",
            )
            .action(ArgAction::Append),
        )
        .arg(text("url", "HOST:PORT", "The server [default: 127.0.0.1:8000, or :8001 for grpc]").short('u'))
        .arg(text(
            "ca-certificates",
            "FILE",
            "For https and grpcs: trust these (PEM) [default: the system's]",
        ))
        .arg(
            text("protocol", "NAME", "What to speak")
                .short('i')
                .value_parser(["http", "grpc"])
                .default_value("http"),
        )
        .arg(
            text("payload", "FORM", "How tensors travel over HTTP")
                .value_parser(["json", "binary"])
                .default_value("binary"),
        )
        .arg(
            Arg::new("streaming")
                .long("streaming")
                .help("Over gRPC: a stream for each request, for models with many responses or none")
                .action(ArgAction::SetTrue),
        )
        .arg(text("concurrency", "LIST", "Callers: 1,16,64 or START:END[:STEP]; one row each [default: 1]"))
        .arg(text("request-rate", "LIST", "Open loop: requests per second, 100,200; one row each"))
        .arg(text("connections", "N", "HTTP/2 connections [default: concurrency, at most 8]"))
        .arg(text("warm-up", "SECONDS", "Time before counting starts").default_value("1"))
        .arg(text("duration", "SECONDS", "Time counted per row").default_value("5"))
        .arg(text("request-count", "N", "End a row after N requests instead").conflicts_with("duration"))
        .arg(text("batch", "N", "Size of the batch dimension").short('b').default_value("1"))
        .arg(
            text(
                "shape",
                "NAME:N,N",
                "Shape of an input with variable dimensions, without the batch dimension",
            )
            .action(ArgAction::Append),
        )
        .arg(text("input-data", "zero|random|FILE", "What the tensors hold").default_value("zero"))
        .arg(
            Arg::new("sequences")
                .long("sequences")
                .help("Make every request a sequence of its own, for models with a sequence batcher")
                .action(ArgAction::SetTrue),
        )
        .arg(text("seed", "N", "For random inputs and the Poisson schedule").default_value("1"))
        .arg(text("csv", "FILE", "Write the rows there too").short('f'))
        .arg(
            text("server-pid", "PID", "Report processor time of this process and its descendants")
                .action(ArgAction::Append),
        )
        .args(shared_memory_arguments())
}

fn shared_memory_arguments() -> [Arg; 2] {
    let place = Arg::new("shared-memory").long("shared-memory").value_name("none|system");
    let room = Arg::new("output-shared-memory-size").long("output-shared-memory-size").value_name("BYTES");
    [
        place
            .help("Where tensors are: in the messages, or in shared memory")
            .value_parser(["none", "system"])
            .default_value("none"),
        room.help("Room for each output in shared memory").default_value("102400"),
    ]
}

fn from_matches(matches: &ArgMatches) -> Result<PerfOptions, String> {
    let given = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let or_default = |name: &str| given(name).expect("the option has a default value");
    let protocol = match (or_default("protocol"), or_default("payload")) {
        ("grpc", _) => Protocol::Grpc,
        (_, "json") => Protocol::HttpJson,
        _ => Protocol::HttpBinary,
    };
    let connections = given("connections").map(|text| count("--connections", text)).transpose()?;
    if connections.is_some() && protocol != Protocol::Grpc {
        return Err("--connections is for grpc: over HTTP each caller has a connection of its own".into());
    }
    let streaming = matches.get_flag("streaming");
    if streaming && protocol != Protocol::Grpc {
        return Err("--streaming is for grpc: add --protocol grpc".into());
    }
    let then: Vec<String> = many(matches, "then").map(str::to_owned).collect();
    if !then.is_empty() && (streaming || protocol == Protocol::HttpJson) {
        return Err("--then takes single responses with binary tensors".into());
    }
    let output_byte_size =
        count("--output-shared-memory-size", or_default("output-shared-memory-size"))? as u64;
    let shared_memory = (or_default("shared-memory") == "system").then_some(output_byte_size);
    if shared_memory.is_some() && (streaming || !then.is_empty() || protocol == Protocol::HttpJson) {
        return Err("--shared-memory is for single responses: without --streaming, --then and JSON".into());
    }
    let default_address = if protocol == Protocol::Grpc { "127.0.0.1:8001" } else { "127.0.0.1:8000" };
    let (address, is_encrypted) = match given("url") {
        None => (default_address.to_owned(), false),
        Some(url) => address(url, protocol)?,
    };
    let trusted = given("ca-certificates");
    if trusted.is_some() && !is_encrypted {
        return Err("--ca-certificates is for encrypted connections: write --url https:// or grpcs://".into());
    }
    let trusted =
        trusted.map_or(TrustedCertificates::OfSystem, |file| TrustedCertificates::File(file.into()));
    Ok(PerfOptions {
        model: given("model").expect("the option is required").to_owned(),
        then,
        version: given("model-version").map(str::to_owned),
        address,
        encryption: is_encrypted.then_some(trusted),
        protocol,
        streaming,
        load: load(given("concurrency"), given("request-rate"))?,
        connections,
        warm_up: seconds("--warm-up", or_default("warm-up"))?,
        until: match given("request-count") {
            Some(text) => Until::Requests(count("--request-count", text)? as u64),
            None => match seconds("--duration", or_default("duration"))? {
                Duration::ZERO => return Err("--duration must be above zero".into()),
                duration => Until::Elapsed(duration),
            },
        },
        batch: count("--batch", or_default("batch"))? as u64,
        sequences: matches.get_flag("sequences"),
        shapes: many(matches, "shape").map(shape).collect::<Result<_, _>>()?,
        content: match or_default("input-data") {
            "zero" => InputContent::Zero,
            "random" => InputContent::Random,
            path => InputContent::File(path.into()),
        },
        shared_memory,
        seed: number("--seed", or_default("seed"))?,
        csv: given("csv").map(PathBuf::from),
        server_pids: many(matches, "server-pid")
            .map(|text| number("--server-pid", text))
            .collect::<Result<_, _>>()?,
    })
}

/// Reads `HOST:PORT` from an address or a URL, and whether connections are encrypted. A scheme must match the protocol, and
/// a path is refused.
fn address(url: &str, protocol: Protocol) -> Result<(String, bool), String> {
    let wrong = |why: &str| Err(format!("--url is HOST:PORT, got '{url}': {why}"));
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let is_encrypted = match (scheme.to_ascii_lowercase().as_str(), protocol) {
        ("" | "http", _) | ("grpc", Protocol::Grpc) => false,
        ("https", _) | ("grpcs", Protocol::Grpc) => true,
        ("grpc" | "grpcs", Protocol::HttpJson | Protocol::HttpBinary) => return wrong("add --protocol grpc"),
        _ => return wrong("the scheme is neither http, https, grpc nor grpcs"),
    };
    let address = rest.strip_suffix('/').unwrap_or(rest);
    if address.contains('/') {
        return wrong("it has a path");
    }
    match address.rsplit_once(':') {
        // The last colon of an IPv6 address is inside its brackets.
        Some((host, port)) if !host.is_empty() && !port.ends_with(']') => match port.parse::<u16>() {
            Ok(_) => Ok((address.to_owned(), is_encrypted)),
            Err(_) => wrong("the port is not a number from 0 to 65535"),
        },
        Some(("", _)) => wrong("the host is missing"),
        _ => wrong("the port is missing"),
    }
}

fn many<'a>(matches: &'a ArgMatches, name: &str) -> impl Iterator<Item = &'a str> {
    matches.get_many::<String>(name).into_iter().flatten().map(String::as_str)
}

/// The most unanswered requests of an open loop, unless `--concurrency` gives another number.
const OPEN_LOOP_CALLERS: usize = 256;

fn load(concurrency: Option<&str>, rates: Option<&str>) -> Result<Load, String> {
    let concurrency = concurrency.map(counts).transpose()?;
    let Some(rates) = rates else {
        return Ok(Load::Closed(concurrency.unwrap_or_else(|| vec![1])));
    };
    let rates = rates
        .split(',')
        .map(|text| match number::<f64>("--request-rate", text)? {
            rate if rate.is_finite() && rate > 0.0 => Ok(rate),
            _ => Err(format!("--request-rate must be above zero, got '{text}'")),
        })
        .collect::<Result<_, _>>()?;
    let callers = match concurrency.as_deref() {
        None => OPEN_LOOP_CALLERS,
        Some([callers]) => *callers,
        Some(_) => return Err("--concurrency takes one number when --request-rate is given".into()),
    };
    Ok(Load::Open { rates, callers })
}

/// Reads `1,16,64` or `START:END[:STEP]`.
fn counts(text: &str) -> Result<Vec<usize>, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (start, end, step) = match parts[..] {
        [_] => return text.split(',').map(|part| count("--concurrency", part)).collect(),
        [start, end] => (start, end, "1"),
        [start, end, step] => (start, end, step),
        _ => return Err(format!("--concurrency is a list or START:END[:STEP], got '{text}'")),
    };
    let (start, end) = (count("--concurrency", start)?, count("--concurrency", end)?);
    let numbers: Vec<usize> = (start..=end).step_by(count("--concurrency", step)?).collect();
    if numbers.is_empty() {
        return Err(format!("--concurrency must not end before it starts, got '{text}'"));
    }
    Ok(numbers)
}

fn shape(text: &str) -> Result<(String, Vec<i64>), String> {
    let wrong = || format!("--shape is NAME:N,N with numbers of at least 0, got '{text}'");
    let (name, dimensions) = text.rsplit_once(':').ok_or_else(wrong)?;
    let dimensions = dimensions
        .split(',')
        .map(|part| part.parse().ok().filter(|&dimension: &i64| dimension >= 0).ok_or_else(wrong))
        .collect::<Result<_, _>>()?;
    Ok((name.to_owned(), dimensions))
}

fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option} needs a number, got '{text}'"))
}

fn count(option: &str, text: &str) -> Result<usize, String> {
    match number(option, text)? {
        0 => Err(format!("{option} must be above zero")),
        count => Ok(count),
    }
}

fn seconds(option: &str, text: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(number(option, text)?)
        .map_err(|_| format!("{option} needs a number of seconds, got '{text}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<PerfOptions, String> {
        parse(["perf"].into_iter().chain(line.split_whitespace()).map(OsString::from))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn only_the_model_is_needed() {
        let options = parsed("-m simple").unwrap();
        assert_eq!(options.model, "simple");
        assert_eq!(options.address, "127.0.0.1:8000");
        assert_eq!(options.protocol, Protocol::HttpBinary);
        assert_eq!(options.load, Load::Closed(vec![1]));
        assert_eq!(options.until, Until::Elapsed(Duration::from_secs(5)));
        assert!(parsed("").unwrap_err().contains("--model"));
    }

    #[test]
    fn every_option_has_its_place() {
        let options = parsed(
            "-m m -x 3 -u host:9 -i grpc --streaming --connections 2 --concurrency 4 --request-rate 10,2.5 --warm-up 0.5 \
             --request-count 100 -b 8 --shape IN:1,16 --shape a:b:0 --input-data random --seed 9 --csv out.csv \
             --server-pid 12 --server-pid 13 --sequences",
        )
        .unwrap();
        let expected = PerfOptions {
            model: "m".into(),
            then: Vec::new(),
            version: Some("3".into()),
            address: "host:9".into(),
            encryption: None,
            protocol: Protocol::Grpc,
            streaming: true,
            load: Load::Open { rates: vec![10.0, 2.5], callers: 4 },
            connections: Some(2),
            warm_up: Duration::from_millis(500),
            until: Until::Requests(100),
            batch: 8,
            sequences: true,
            shapes: [("IN".to_owned(), vec![1, 16]), ("a:b".to_owned(), vec![0])].into(),
            content: InputContent::Random,
            shared_memory: None,
            seed: 9,
            csv: Some("out.csv".into()),
            server_pids: vec![12, 13],
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn shared_memory_has_room_for_outputs() {
        assert_eq!(parsed("-m m --shared-memory none").unwrap().shared_memory, None);
        assert_eq!(parsed("-m m --shared-memory system").unwrap().shared_memory, Some(102_400));
        let line = "-m m --shared-memory=system --output-shared-memory-size=16";
        assert_eq!(parsed(line).unwrap().shared_memory, Some(16));
    }

    #[test]
    fn a_chain_has_its_models_in_order() {
        assert_eq!(parsed("-m a --then b --then c").unwrap().then, ["b", "c"]);
    }

    #[test]
    fn grpc_has_its_own_port_and_json_its_own_protocol() {
        assert_eq!(parsed("-m m -i grpc").unwrap().address, "127.0.0.1:8001");
        assert_eq!(parsed("-m m --payload json").unwrap().protocol, Protocol::HttpJson);
    }

    #[test]
    fn a_url_may_have_a_scheme_and_must_have_a_port() {
        for (line, address) in [
            ("-u http://host:8000", "host:8000"),
            ("-u http://host:8000/", "host:8000"),
            ("-u HTTP://[::1]:8000", "[::1]:8000"),
            ("-u grpc://host:8001 -i grpc", "host:8001"),
            ("-u http://host:8001 -i grpc", "host:8001"),
        ] {
            assert_eq!(parsed(&format!("-m m {line}")).unwrap().address, address);
        }
        for (url, why) in [
            ("grpc://host:1", "add --protocol grpc"),
            ("grpcs://host:1", "add --protocol grpc"),
            ("ftp://host:1", "the scheme is neither http, https, grpc nor grpcs"),
            ("http://host:1/v2", "it has a path"),
            ("host", "the port is missing"),
            ("[::1]", "the port is missing"),
            (":8000", "the host is missing"),
            ("host:http", "the port is not a number from 0 to 65535"),
            ("host:70000", "the port is not a number from 0 to 65535"),
        ] {
            let error = parsed(&format!("-m m -u {url}")).unwrap_err();
            assert!(error.contains(&format!("--url is HOST:PORT, got '{url}': {why}")), "{error}");
        }
    }

    #[test]
    fn a_scheme_that_ends_in_s_encrypts() {
        let encryption = |line: &str| parsed(&format!("-m m {line}")).unwrap().encryption;
        assert_eq!(encryption("-u http://host:1"), None);
        assert_eq!(encryption("-u https://host:1"), Some(TrustedCertificates::OfSystem));
        let file = Some(TrustedCertificates::File("ca.pem".into()));
        assert_eq!(encryption("-u grpcs://host:1 -i grpc --ca-certificates ca.pem"), file);
        let error = parsed("-m m --ca-certificates ca.pem").unwrap_err();
        assert!(error.contains("write --url https://"), "{error}");
    }

    #[test]
    fn concurrency_is_a_list_or_a_range() {
        assert_eq!(counts("1,16,64").unwrap(), [1, 16, 64]);
        assert_eq!(counts("1:3").unwrap(), [1, 2, 3]);
        assert_eq!(counts("8:24:8").unwrap(), [8, 16, 24]);
    }

    #[test]
    fn contradictions_and_nonsense_are_refused_by_name() {
        for (line, word) in [
            ("-m m --connections 2", "--connections"),
            ("-m m --streaming", "--streaming"),
            ("-m m --then n --payload json", "--then"),
            ("-m m --then n --streaming -i grpc", "--then"),
            ("-m m --concurrency 0", "--concurrency"),
            ("-m m --concurrency 4:1", "--concurrency"),
            ("-m m --concurrency 1:2:3:4", "--concurrency"),
            ("-m m --request-rate 0", "--request-rate"),
            ("-m m --request-rate inf", "--request-rate"),
            ("-m m --request-rate 5 --concurrency 1,2", "--concurrency"),
            ("-m m --duration 0", "--duration"),
            ("-m m --duration 1 --request-count 5", "--request-count"),
            ("-m m --warm-up -1", "-1"),
            ("-m m --shape IN", "--shape"),
            ("-m m --shape IN:-1", "--shape"),
            ("-m m --batch none", "--batch"),
            ("-m m --shared-memory cuda", "cuda"),
            ("-m m --shared-memory system --payload json", "--shared-memory"),
            ("-m m --shared-memory system --streaming -i grpc", "--shared-memory"),
            ("-m m --shared-memory system --output-shared-memory-size 0", "--output-shared-memory-size"),
            ("-m m -i thrift", "thrift"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
