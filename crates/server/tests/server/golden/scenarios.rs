//! Exchanges of more than one request and one response, and exchanges that were recorded in words.
use std::{net::TcpListener, sync::Arc};

use inference::backend::Backend;
use serde_json::Value;
use server::{Extensions, options::ProcessEnvironment};
use testing::{
    Repository, eventually,
    fixtures::Python,
    golden::{Exchange, Record},
    http::{Connection, request},
    schema,
};

use crate::{
    golden::{
        replay::{Stage, begin_stream, error_during, port_of, still_usable},
        traces,
    },
    support::{self, Served},
};

type Scenario = fn(&Record, &Stage<'_>) -> Result<(), String>;

/// The scenario with this name. `None` if the exchange needs no scenario.
pub(crate) fn of(name: &str) -> Option<Scenario> {
    Some(match name {
        "expect_100_continue" => expect_continue,
        "pipelined_3_gets" => pipelined_gets,
        "pipelined_2_infers" => pipelined_infers,
        "raw_bighdr" => big_header,
        "crash_json_shape_overflow" => shape_overflow,
        "crash_stream_cancel_decoupled" => cancel_decoupled,
        "s_cancel" => cancel,
        "metrics_full_text" => metrics,
        "cli_grpc_port_already_bound" => taken_port,
        "cli_grpc_ssl_with_missing_cert_files" => missing_certificates,
        "cli_a_model_fails_to_load_exit_on_error_default" => failing_model,
        "vx_redir_index" | "mc_index_after_unload" | "mc_index_ready2" => index,
        "cli_allow_vertex_ai_true_no_env" => no_vertex_ai_routes,
        "trace_model_get2" => traces::settings_of_a_model,
        name if name.starts_with("trace_file_sample_") => traces::file,
        name if name.starts_with("otel_export_") => traces::spans,
        name if name.starts_with("cli_") => command_line,
        _ => return None,
    })
}

const LIVE: &str = "/v2/health/live";
const INFER: &str = "/v2/models/id_int32/infer";
const BODY: &[u8] = br#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[7]}]}"#;

fn connect(stage: &Stage<'_>) -> Result<Connection, String> {
    Connection::open(stage.served.http).map_err(error_during("connect"))
}

fn expect_status(connection: &mut Connection, method: &str, status: u16) -> Result<String, String> {
    let response = connection.receive(method).map_err(error_during("receive"))?;
    if response.status == status { Ok(response.text()) } else { Err(response.status_line) }
}

fn expect_continue(_: &Record, stage: &Stage<'_>) -> Result<(), String> {
    let mut connection = connect(stage)?;
    let whole = request("POST", INFER, &[("Expect", "100-continue")], BODY);
    let (head, body) = whole.split_at(whole.len() - BODY.len());
    connection.send(head).map_err(error_during("head"))?;
    expect_status(&mut connection, "POST", 100)?;
    connection.send(body).map_err(error_during("body"))?;
    expect_status(&mut connection, "POST", 200).map(drop)
}

fn pipelined(stage: &Stage<'_>, one: &[u8], method: &str, count: usize) -> Result<(), String> {
    let mut connection = connect(stage)?;
    connection.send(&one.repeat(count)).map_err(error_during("send"))?;
    for _ in 0..count {
        expect_status(&mut connection, method, 200)?;
    }
    still_usable(&mut connection)
}

fn pipelined_gets(_: &Record, stage: &Stage<'_>) -> Result<(), String> {
    pipelined(stage, &request("GET", LIVE, &[], b""), "GET", 3)
}

fn pipelined_infers(_: &Record, stage: &Stage<'_>) -> Result<(), String> {
    pipelined(stage, &request("POST", INFER, &[], BODY), "POST", 2)
}

/// The recorded request is not complete: its header had 100 kB. This server refuses it with a status. The reference
/// closes the connection without a status.
fn big_header(_: &Record, stage: &Stage<'_>) -> Result<(), String> {
    let mut connection = connect(stage)?;
    let long = "a".repeat(100_000);
    // The server may close the connection before the whole request is sent.
    let _ = connection.send(&request("GET", LIVE, &[("X", &long)], b""));
    match connection.receive("GET") {
        Ok(response) if response.status != 431 => Err(response.status_line),
        _ => still_usable(&mut connect(stage)?),
    }
}

fn shape_overflow(record: &Record, stage: &Stage<'_>) -> Result<(), String> {
    let Exchange::Told { request, .. } = &record.exchange else { return Err("recorded, not told".into()) };
    let path = request["path"].as_str().ok_or("no path")?;
    let body = request["body"]["text"].as_str().ok_or("no body")?;
    let mut connection = connect(stage)?;
    let ours = connection.ask("POST", path, &[], body.as_bytes()).map_err(error_during("exchange"))?;
    let expected = "{\"error\":\"invalid shape for input 'IN': shape [9223372036854775807,2] causes total element count to \
                    exceed maximum size of 9223372036854775807\"}";
    if (ours.status, ours.text().as_str()) != (400, expected) {
        return Err(format!("{} {}", ours.status_line, ours.text()));
    }
    still_usable(&mut connection)
}

/// The recorded client cancelled after one response. Chance decides which of the two requests the response belongs to.
fn cancel(record: &Record, stage: &Stage<'_>) -> Result<(), String> {
    let Exchange::Stream { requests, .. } = &record.exchange else { return Err("no stream".into()) };
    one_message_then_cancel(requests, stage)?;
    still_usable(&mut connect(stage)?)
}

fn cancel_decoupled(_: &Record, stage: &Stage<'_>) -> Result<(), String> {
    let request: Value = serde_json::json!({
        "model_name": "repeat",
        "inputs": [{"name": "IN", "datatype": "INT32", "shape": ["1"], "contents": {"int_contents": [1000]}}]
    });
    for _ in 0..20 {
        one_message_then_cancel(std::slice::from_ref(&request), stage)?;
    }
    still_usable(&mut connect(stage)?)
}

fn one_message_then_cancel(requests: &[Value], stage: &Stage<'_>) -> Result<(), String> {
    stage.runtime.block_on(async {
        let (_connection, mut call) = begin_stream(requests, stage).await?;
        let message = call.next().await?.ok_or("the stream ended without a message")?;
        let message = schema::decode("inference.ModelStreamInferResponse", &message)?;
        match message["infer_response"]["model_name"].as_str() {
            Some("repeat" | "id_int32") => Ok(()),
            _ => Err(format!("unexpected message {message}")),
        }
    })
}

/// Values differ between runs. Families, their descriptions and their series do not. The recorded server has a cache. The
/// families of its Python models are absent, because the models here are native: tests of the C interface and of Python
/// models show such families. A model that failed to load has no series (P-W40).
fn metrics(record: &Record, _: &Stage<'_>) -> Result<(), String> {
    let Exchange::Told { response, .. } = &record.exchange else { return Err("recorded, not told".into()) };
    let expected = response["text"].as_str().ok_or("no text")?;
    let repository = Repository::golden().map_err(error_during("repository"))?;
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Python)];
    let extensions = Extensions {
        plugins: backends.into(),
        cache_finder: Some(Arc::new(assembly::AssembledCaches)),
        ..Extensions::default()
    };
    let arguments = ["--exit-on-error=false", "--cache-config=local,size=1048576"];
    let served = Served::with(&Arc::new(repository), &arguments, extensions)?;
    let ours = scrape(&served)?;
    served.stop()?;
    let of_python = ["my_counter", "my_hist", "nv_trt_llm_"];
    let is_shown = |line: &&str| {
        let family = line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ");
        !of_python.iter().any(|prefix| family.starts_with(prefix)) && !line.contains(r#"model="bad""#)
    };
    let missing: Vec<_> =
        series(expected).filter(is_shown).filter(|line| !series(&ours).any(|ours| ours == *line)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("missing: {}", missing.join("; "))) }
}

/// The content of the metrics port.
pub(crate) fn scrape(served: &Served) -> Result<String, String> {
    let mut connection = Connection::open(served.metrics).map_err(error_during("connect"))?;
    let response = connection.ask("GET", "/metrics", &[], b"").map_err(error_during("scrape"))?;
    if response.status == 200 { Ok(response.text()) } else { Err(response.status_line) }
}

/// Whole comment lines, and samples without their values.
pub(crate) fn series(exposition: &str) -> impl Iterator<Item = &str> {
    exposition.lines().map(|line| match line.strip_prefix('#') {
        Some(_) => line,
        None => line.rsplit_once(' ').map_or(line, |(series, _)| series),
    })
}

/// Checks that the command line is refused with the recorded text.
fn command_line(record: &Record, _: &Stage<'_>) -> Result<(), String> {
    let Exchange::Told { request, response } = &record.exchange else {
        return Err("recorded, not told".into());
    };
    let line = request["argv"].as_str().ok_or("no command line")?;
    let line = line.split(" (").next().unwrap_or_default();
    let words = line.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect();
    refused_with(support::parse_in(words, &ProcessEnvironment::default()).map(drop), response)
}

fn refused_with(result: Result<(), String>, response: &Value) -> Result<(), String> {
    let expected = response["stderr_tail"].as_str().unwrap_or_default().trim();
    match result {
        Ok(()) => Err("accepted".into()),
        Err(text) if has_lines(&text, expected) => Ok(()),
        Err(text) => Err(format!("refused with '{text}'")),
    }
}

/// Whether `text` has these lines, one after the other. Nereid's errors begin with `error: `, which only some of
/// Triton's do.
fn has_lines(text: &str, expected: &str) -> bool {
    fn words(line: &str) -> &str {
        line.strip_prefix("error: ").unwrap_or(line).trim_end()
    }
    let (lines, expected): (Vec<_>, Vec<_>) =
        (text.lines().map(words).collect(), expected.lines().map(words).collect());
    !expected.is_empty() && lines.windows(expected.len()).any(|window| window == expected)
}

fn started(arguments: &[&str]) -> Result<Served, String> {
    let repository = Arc::new(Repository::golden().map_err(error_during("repository"))?);
    Served::start(&repository, arguments, vec![Arc::new(Python)])
}

fn failing_model(_: &Record, _: &Stage<'_>) -> Result<(), String> {
    let repository = Repository::golden().map_err(error_during("repository"))?;
    let result = Served::start(&Arc::new(repository), &[], vec![Arc::new(Python)]);
    expect_refusal(result, "failed to load all models")
}

fn taken_port(_: &Record, _: &Stage<'_>) -> Result<(), String> {
    let taken = TcpListener::bind("127.0.0.1:0").map_err(error_during("bind"))?;
    let port = taken.local_addr().map_err(error_during("address"))?.port();
    let result = started(&["--exit-on-error=false", &format!("--grpc-port={port}")]);
    expect_refusal(result, &format!("Socket '127.0.0.1:{port}' already in use"))
}

/// The reference reports that the port is in use.
fn missing_certificates(_: &Record, _: &Stage<'_>) -> Result<(), String> {
    let missing =
        ["--grpc-use-ssl=true", "--grpc-server-cert=/nowhere/cert.pem", "--grpc-server-key=/nowhere/key.pem"];
    expect_refusal(started(&[&["--exit-on-error=false"], &missing[..]].concat()), "/nowhere/cert.pem")
}

/// The recorded server had fewer models. All of them are in this server's index. An unload is answered when it begins, so
/// the index may show its end later.
fn index(record: &Record, stage: &Stage<'_>) -> Result<(), String> {
    let mut reason = String::new();
    eventually("the recorded index", || {
        let Err(error) = index_now(record, stage) else { return true };
        if error != reason {
            eprintln!("{error}");
            reason = error;
        }
        false
    });
    Ok(())
}

fn index_now(record: &Record, stage: &Stage<'_>) -> Result<(), String> {
    let Exchange::Http { request, response } = &record.exchange else { return Err("told".into()) };
    let mut connection =
        Connection::open(port_of(record, stage)?.address).map_err(error_during("connect"))?;
    let headers: Vec<_> =
        request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let ours =
        connection.ask("POST", &request.path, &headers, &request.body).map_err(error_during("exchange"))?;
    let entries = |json: &[u8]| -> Result<Vec<Value>, String> {
        let entries: Value = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        Ok(entries.as_array().ok_or("no list")?.clone())
    };
    let (expected, found) = (entries(&response.body)?, entries(&ours.body)?);
    match expected.iter().find(|entry| !found.contains(entry)) {
        None if ours.status == 200 => Ok(()),
        missing => Err(format!("{}: missing {missing:?}", ours.status_line)),
    }
}

fn no_vertex_ai_routes(record: &Record, _: &Stage<'_>) -> Result<(), String> {
    let Exchange::Told { response, .. } = &record.exchange else { return Err("recorded, not told".into()) };
    expect_refusal(
        started(&["--exit-on-error=false", "--allow-vertex-ai=true"]),
        response["stderr_tail"].as_str().ok_or("no text")?,
    )
}

fn expect_refusal(result: Result<Served, String>, expected: &str) -> Result<(), String> {
    match result {
        Ok(served) => {
            served.stop()?;
            Err("started".into())
        }
        Err(text) if text.contains(expected) => Ok(()),
        Err(text) => Err(format!("refused with '{text}'")),
    }
}
