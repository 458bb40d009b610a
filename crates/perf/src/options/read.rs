//! Makes the settings of a run from the arguments, and refuses contradictions.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use clap::error::ErrorKind;
use client::endpoint::{ClientEncryption, TrustedCertificates};
use client::framing::MessageCompression;

use super::settings::{
    GivenParameter, InputContent, PerfOptions, PointWarmUp, Protocol, ReportOptions, TextContent, Until,
    Windows,
};
use super::text::{count, given, many, milliseconds, number, or_default, seconds};
use super::{arguments, load, refused};

/// Reads a command line; the first argument is the program's name.
///
/// # Errors
/// What clap reports. A request for `--help` is also an error here.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<PerfOptions, clap::Error> {
    let mut command = arguments::command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    from_matches(&matches).map_err(|message| command.error(ErrorKind::ValueValidation, message))
}

fn from_matches(matches: &ArgMatches) -> Result<PerfOptions, String> {
    refused::check(matches)?;
    let (protocol, binary_outputs) = protocol(matches)?;
    let (address, encryption) = server(matches, protocol)?;
    let service = or_default(matches, "service-kind");
    if service != "triton" {
        return Err(format!("--service-kind can be triton only, got '{service}'"));
    }
    let options = PerfOptions {
        model: given(matches, "model")
            .or(given(matches, "name"))
            .expect("one of them is required")
            .to_owned(),
        then: many(matches, "then").map(str::to_owned).collect(),
        version: given(matches, "model-version").map(str::to_owned),
        address,
        encryption,
        protocol,
        binary_outputs,
        streaming: matches.get_flag("streaming"),
        headers: many(matches, "header").map(header).collect::<Result<_, _>>()?,
        parameters: many(matches, "request-parameter").map(parameter).collect::<Result<_, _>>()?,
        compression: match or_default(matches, "grpc-compression-algorithm") {
            "gzip" => Some(MessageCompression::Gzip),
            "deflate" => Some(MessageCompression::Deflate),
            _ => None,
        },
        load: load::read(matches)?,
        connections: given(matches, "connections").map(|text| count("--connections", text)).transpose()?,
        warm_up: warm_up(matches)?,
        windows: windows(matches)?,
        percentile: percentile(matches)?,
        latency_limit: given(matches, "latency-threshold")
            .map(|text| milliseconds("--latency-threshold", text))
            .transpose()?
            .filter(|limit| !limit.is_zero()),
        batch: count("--batch", or_default(matches, "batch"))? as u64,
        sequences: load::sequences(matches)?,
        shapes: many(matches, "shape").map(shape).collect::<Result<_, _>>()?,
        content: content(matches)?,
        texts: match given(matches, "string-data") {
            Some(text) => TextContent::Given(text.to_owned()),
            None => TextContent::OfLength(number("--string-length", or_default(matches, "string-length"))?),
        },
        shared_memory: shared_memory(matches)?,
        seed: number("--seed", or_default(matches, "seed"))?,
        server_pids: many(matches, "server-pid")
            .map(|text| number("--server-pid", text))
            .collect::<Result<_, _>>()?,
        reports: reports(matches)?,
    };
    consistent(options)
}

/// Refuses what cannot go together.
fn consistent(options: PerfOptions) -> Result<PerfOptions, String> {
    let is_grpc = options.protocol == Protocol::Grpc;
    let PerfOptions { streaming, then, .. } = &options;
    if options.connections.is_some() && !is_grpc {
        return Err("--connections is for grpc: over HTTP each caller has a connection of its own".into());
    }
    if options.compression.is_some() && !is_grpc {
        return Err("--grpc-compression-algorithm is for grpc: add --protocol grpc".into());
    }
    let is_binary = is_grpc || (options.protocol == Protocol::HttpBinary && options.binary_outputs);
    if !then.is_empty() && (*streaming || !is_binary) {
        return Err("--then takes single responses with binary tensors".into());
    }
    if options.shared_memory.is_some() && (*streaming || !then.is_empty() || !is_binary) {
        return Err("--shared-memory is for single responses: without --streaming, --then and JSON".into());
    }
    Ok(options)
}

/// The protocol, and whether outputs are binary.
fn protocol(matches: &ArgMatches) -> Result<(Protocol, bool), String> {
    let is_grpc = or_default(matches, "protocol").eq_ignore_ascii_case("grpc");
    let payload = given(matches, "payload");
    let format = |option: &str| {
        let format = given(matches, option);
        match payload.is_some() && format.is_some() {
            true => Err(format!("--payload and --{option} contradict each other")),
            false => Ok(format.or(payload)),
        }
    };
    let (inputs, outputs) = (format("input-tensor-format")?, format("output-tensor-format")?);
    if matches.get_flag("streaming") && !is_grpc {
        // The generate extension has no other form.
        return match [inputs, outputs].contains(&Some("binary")) {
            true => {
                Err("--streaming over HTTP sends and gets JSON: for binary tensors add --protocol grpc"
                    .into())
            }
            false => Ok((Protocol::HttpJson, false)),
        };
    }
    let protocol = match inputs {
        _ if is_grpc => Protocol::Grpc,
        Some("json") => Protocol::HttpJson,
        _ => Protocol::HttpBinary,
    };
    Ok((protocol, outputs != Some("json")))
}

/// The address, and how connections are encrypted.
fn server(matches: &ArgMatches, protocol: Protocol) -> Result<(String, Option<ClientEncryption>), String> {
    let is_grpc = protocol == Protocol::Grpc;
    let (address, by_scheme) = match given(matches, "url") {
        None => ((if is_grpc { "127.0.0.1:8001" } else { "127.0.0.1:8000" }).to_owned(), false),
        Some(url) => address(url, protocol)?,
    };
    // As perf_analyzer: options of the other protocol have no effect.
    let [trusted, chain, key] = match is_grpc {
        true => [
            "ssl-grpc-root-certifications-file",
            "ssl-grpc-certificate-chain-file",
            "ssl-grpc-private-key-file",
        ],
        false => [
            "ssl-https-ca-certificates-file",
            "ssl-https-client-certificate-file",
            "ssl-https-private-key-file",
        ],
    };
    let file = |name: &str| given(matches, name).map(PathBuf::from);
    let is_encrypted = by_scheme || (is_grpc && matches.get_flag("ssl-grpc-use-ssl"));
    let trusted = file("ca-certificates").or_else(|| file(trusted));
    let identity = match (file(chain), file(key)) {
        (Some(chain), Some(key)) => Some((chain, key)),
        (None, None) => None,
        _ => return Err(format!("--{chain} and --{key} belong together")),
    };
    if !is_encrypted {
        return match trusted.is_some() || identity.is_some() {
            true => {
                Err("certificates are for encrypted connections: write --url https:// or grpcs://".into())
            }
            false => Ok((address, None)),
        };
    }
    let trusted = trusted.map_or(TrustedCertificates::OfSystem, TrustedCertificates::File);
    Ok((address, Some(ClientEncryption { trusted, identity })))
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

fn header(text: &str) -> Result<(String, String), String> {
    let wrong = || format!("-H is NAME:VALUE without control characters, got '{text}'");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let (name, value) = (name.trim(), value.trim());
    let valid = http::HeaderName::try_from(name).is_ok() && http::HeaderValue::try_from(value).is_ok();
    if valid { Ok((name.to_owned(), value.to_owned())) } else { Err(wrong()) }
}

fn parameter(text: &str) -> Result<(String, GivenParameter), String> {
    let wrong = || format!("--request-parameter is NAME:VALUE:TYPE with bool, int or string, got '{text}'");
    let (rest, kind) = text.rsplit_once(':').ok_or_else(wrong)?;
    let (name, value) = rest.split_once(':').ok_or_else(wrong)?;
    let value = match kind.to_ascii_lowercase().as_str() {
        "bool" => GivenParameter::Bool(value.to_ascii_lowercase().parse().map_err(|_| wrong())?),
        "int" => GivenParameter::Int(value.parse().map_err(|_| wrong())?),
        "string" => GivenParameter::Text(value.to_owned()),
        _ => return Err(wrong()),
    };
    Ok((name.to_owned(), value))
}

fn warm_up(matches: &ArgMatches) -> Result<PointWarmUp, String> {
    let requests = given(matches, "warmup-request-count");
    let requests = requests.map(|text| number("--warmup-request-count", text)).transpose()?;
    match requests {
        Some(count) if count > 0 => Ok(PointWarmUp::Requests(count)),
        _ => Ok(PointWarmUp::Time(seconds("--warm-up", or_default(matches, "warm-up"))?)),
    }
}

/// How a point is measured.
fn windows(matches: &ArgMatches) -> Result<Windows, String> {
    let requests: u64 =
        given(matches, "request-count").map_or(Ok(0), |text| number("--request-count", text))?;
    if requests > 0 {
        return Ok(Windows::Single(Until::Requests(requests)));
    }
    if let Some(text) = given(matches, "duration") {
        return match seconds("--duration", text)? {
            Duration::ZERO => Err("--duration must be above zero".into()),
            duration => Ok(Windows::Single(Until::Elapsed(duration))),
        };
    }
    let window = match or_default(matches, "measurement-mode") {
        "count_windows" => {
            let text = given(matches, "measurement-request-count").unwrap_or("50");
            Until::Requests(count("--measurement-request-count", text)? as u64)
        }
        _ => {
            let text = given(matches, "measurement-interval").unwrap_or("5000");
            match milliseconds("--measurement-interval", text)? {
                Duration::ZERO => return Err("--measurement-interval must be above zero".into()),
                window => Until::Elapsed(window),
            }
        }
    };
    let percent: f64 =
        number("--stability-percentage", given(matches, "stability-percentage").unwrap_or("10"))?;
    if !(percent.is_finite() && percent >= 0.0) {
        return Err("--stability-percentage must not be below zero".into());
    }
    let most = number("--max-trials", given(matches, "max-trials").unwrap_or("10"))?;
    match most {
        0 => Err("--max-trials must be above zero".into()),
        most => Ok(Windows::UntilStable { window, percent, most }),
    }
}

fn percentile(matches: &ArgMatches) -> Result<Option<u8>, String> {
    let percentile =
        given(matches, "percentile").map(|text| number::<i32>("--percentile", text)).transpose()?;
    match percentile {
        None | Some(-1) => Ok(None),
        Some(percentile @ 1..=99) => Ok(Some(percentile as u8)),
        Some(_) => Err("--percentile is from 1 to 99, or -1 for the mean".into()),
    }
}

fn content(matches: &ArgMatches) -> Result<InputContent, String> {
    let given: Vec<&str> = many(matches, "input-data").chain(many(matches, "data-directory")).collect();
    match given[..] {
        [] if matches.get_flag("z") => Ok(InputContent::Zero),
        [] | ["random"] => Ok(InputContent::Random),
        ["zero"] => Ok(InputContent::Zero),
        _ if given.iter().any(|text| ["zero", "random"].contains(text)) => {
            Err("--input-data is zero, random, or any number of files".into())
        }
        _ => Ok(InputContent::Files(given.into_iter().map(PathBuf::from).collect())),
    }
}

fn shared_memory(matches: &ArgMatches) -> Result<Option<u64>, String> {
    let room = or_default(matches, "output-shared-memory-size");
    let room = count("--output-shared-memory-size", room)? as u64;
    match or_default(matches, "shared-memory") {
        "none" => Ok(None),
        "system" => Ok(Some(room)),
        "cuda" => Err("--shared-memory cuda needs a GPU, which Nereid does not use: system or none".into()),
        other => Err(format!("--shared-memory is none or system, got '{other}'")),
    }
}

fn reports(matches: &ArgMatches) -> Result<ReportOptions, String> {
    let file = |name: &str| given(matches, name).map(PathBuf::from);
    let options = ReportOptions {
        table: or_default(matches, "report") == "table",
        verbose: matches.get_count("verbose") > 0,
        csv: file("csv"),
        latency_report: file("latency-report"),
        verbose_csv: matches.get_flag("verbose-csv"),
        plot: file("plot"),
        profile: file("profile-export-file"),
    };
    match options.verbose_csv && options.latency_report.is_none() {
        true => Err("--verbose-csv is for the file of -f, which is missing".into()),
        false => Ok(options),
    }
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
