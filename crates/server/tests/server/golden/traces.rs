//! Exchanges about tracing: settings that follow from unrecorded changes, files, and spans for a collector.
//!
//! Numbers and times of a recording differ from run to run. Within a trace, this server has the order in which things
//! happen. The reference reports some times late.
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::Arc,
    thread,
};

use serde_json::{Value, json};
use testing::{
    Repository,
    fixtures::Python,
    golden::{Exchange, Record},
    http::Connection,
};

use crate::{
    golden::replay::{self, Stage, begin_stream, error_during},
    support::Served,
};

const GLOBAL: &str = "/v2/trace/setting";
const SIMPLE: &str = "/v2/models/simple/trace/setting";

/// The settings of a model that was changed before, in a way that was not recorded.
pub(crate) fn settings_of_a_model(record: &Record, stage: &Stage<'_>) -> Result<(), String> {
    let mut connection = Connection::open(stage.served.http).map_err(error_during("connect"))?;
    for (path, body) in
        [(GLOBAL, r#"{"trace_rate":null,"trace_count":null}"#), (SIMPLE, r#"{"trace_rate":"9"}"#)]
    {
        let ours = connection.ask("POST", path, &[], body.as_bytes()).map_err(error_during("change"))?;
        if ours.status != 200 {
            return Err(format!("{} {}", ours.status_line, ours.text()));
        }
    }
    let Exchange::Http { request, response } = &record.exchange else {
        return Err("told, not recorded".into());
    };
    replay::http_exchange(request, response, &replay::port_of(record, stage)?, stage)
}

/// Runs the recorded scenario on a server of its own.
fn traced(record: &Record, arguments: &[&str], stage: &Stage<'_>) -> Result<(), String> {
    let repository = Arc::new(Repository::golden().map_err(error_during("repository"))?);
    let arguments = [&["--exit-on-error=false"], arguments].concat();
    let served = Served::start(&repository, &arguments, vec![Arc::new(Python)])?;
    let Exchange::Told { request, .. } = &record.exchange else { return Err("recorded, not told".into()) };
    let scenario = request["scenario"].as_str().unwrap_or_default();
    if scenario.starts_with("gRPC") {
        let stage = Stage { served: &served, ..*stage };
        let message = json!({
            "model_name": "repeat",
            "id": "s1",
            "inputs": [{"name": "IN", "datatype": "INT32", "shape": ["1"], "contents": {"int_contents": [2]}}]
        });
        stage.runtime.block_on(async {
            let (_connection, mut call) = begin_stream(&[message], &stage).await?;
            call.finish();
            call.rest().await
        })?;
    } else {
        let (path, body) = match scenario {
            "HTTP ensemble" => (
                "/v2/models/ens/infer",
                r#"{"id":"E1","inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[3]}]}"#,
            ),
            _ => ("/v2/models/gens/generate_stream", r#"{"text_input":"tr","n":2}"#),
        };
        let mut connection = Connection::open(served.http).map_err(error_during("connect"))?;
        let ours = connection.ask("POST", path, &[], body.as_bytes()).map_err(error_during("request"))?;
        if ours.status != 200 {
            return Err(format!("{} {}", ours.status_line, ours.text()));
        }
    }
    served.stop()
}

/// The file of a traced request has the recorded elements.
pub(crate) fn file(record: &Record, stage: &Stage<'_>) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(error_during("folder"))?;
    let path = folder.path().join("t.json");
    let file = format!("--trace-config=triton,file={}", path.display());
    let levels = ["--trace-config=level=TIMESTAMPS", "--trace-config=level=TENSORS"];
    let arguments = [&levels[..], &["--trace-config=rate=1", "--trace-config=triton,log-frequency=1", &file]];
    traced(record, &arguments.concat(), stage)?;
    let Exchange::Told { response, .. } = &record.exchange else { return Err("recorded, not told".into()) };
    let expected: Vec<Value> =
        serde_json::from_str(response["text"].as_str().ok_or("no text")?).map_err(text)?;
    let ours = std::fs::read_to_string(path.with_extension("json.0")).map_err(error_during("file"))?;
    let ours: Vec<Value> = serde_json::from_str(&ours).map_err(text)?;
    if ours.last().map(|element| parent_of(element, &ours)) != Some(None) {
        return Err("the client's request does not come last".into());
    }
    same(requests(&ours).concat(), requests(&expected).concat())
}

/// Compares lines, and names those of which there are too many or too few.
fn same(ours: Vec<String>, mut expected: Vec<String>) -> Result<(), String> {
    let mut more = ours;
    more.retain(|line| match expected.iter().position(|other| other == line) {
        Some(index) => {
            expected.remove(index);
            false
        }
        None => true,
    });
    if more.is_empty() && expected.is_empty() {
        return Ok(());
    }
    Err(format!("too many:\n{}\ntoo few:\n{}", more.join("\n"), expected.join("\n")))
}

/// The elements of each request, without numbers and times, in an order of their own.
fn requests(elements: &[Value]) -> Vec<Vec<String>> {
    let mut by_request = BTreeMap::<_, Vec<String>>::new();
    for element in elements {
        let mut known = element.clone();
        let members = known.as_object_mut().expect("elements are objects");
        let id = members.remove("id").expect("each element has the number of its trace");
        if members.remove("parent_id").is_some() {
            members.insert("parent".into(), parent_of(element, elements).unwrap_or_default().into());
        }
        if let Some(times) = members.get_mut("timestamps") {
            times.as_array_mut().expect("an array").iter_mut().for_each(|time| time["ns"] = 0.into());
        }
        by_request.entry(id.to_string()).or_default().push(known.to_string());
    }
    let mut requests: Vec<_> = by_request.into_values().collect();
    requests.iter_mut().for_each(|elements| elements.sort());
    requests.sort();
    requests
}

/// The model of the request from which the request of an element follows.
fn parent_of(element: &Value, elements: &[Value]) -> Option<String> {
    let model =
        |id: &Value| elements.iter().find(|other| other["id"] == *id && other["model_name"].is_string());
    let parent = model(&element["id"])?.get("parent_id")?;
    Some(model(parent)?["model_name"].as_str().unwrap_or_default().to_owned())
}

/// A collector gets the recorded spans.
pub(crate) fn spans(record: &Record, stage: &Stage<'_>) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(error_during("bind"))?;
    let address = listener.local_addr().map_err(error_during("address"))?;
    let collector = thread::spawn(move || receive(&listener));
    let url = format!("--trace-config=opentelemetry,url={address}/v1/traces");
    let arguments = [
        "--trace-config=mode=opentelemetry",
        "--trace-config=rate=1",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=opentelemetry,resource=foo=bar",
        &url,
    ];
    traced(record, &arguments, stage)?;
    let (path, ours) = collector.join().map_err(|_| "the collector has failed")??;
    let Exchange::Told { response, .. } = &record.exchange else { return Err("recorded, not told".into()) };
    if path != response["path"] {
        return Err(format!("sent to {path}"));
    }
    let lines = |body| described(body).into_iter().map(|(name, about)| format!("{name}: {about}")).collect();
    same(lines(&ours), lines(&response["body"]))
}

/// Takes one request. Returns its path and its body.
fn receive(listener: &TcpListener) -> Result<(String, Value), String> {
    let (mut connection, _) = listener.accept().map_err(error_during("accept"))?;
    let mut reader = BufReader::new(connection.try_clone().map_err(error_during("socket"))?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).map_err(error_during("head"))?;
    }
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).ok_or("no length")?;
    let mut body = vec![0; length.parse().map_err(text)?];
    reader.read_exact(&mut body).map_err(error_during("body"))?;
    let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    Ok((path, serde_json::from_slice(&body).map_err(text)?))
}

/// The spans by their names, without ids and times, and the keys of the resource.
fn described(body: &Value) -> BTreeMap<String, Value> {
    let resource = &body["resourceSpans"][0];
    let keys = |list: &Value| -> BTreeSet<String> {
        list.as_array()
            .into_iter()
            .flatten()
            .map(|pair| pair["key"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let scope = &resource["scopeSpans"][0];
    let spans = scope["spans"].as_array().cloned().unwrap_or_default();
    let mut described: BTreeMap<_, _> = spans
        .iter()
        .map(|span| {
            let parent = spans.iter().find(|other| other["spanId"] == span["parentSpanId"]);
            let mut events: Vec<_> =
                span["events"].as_array().into_iter().flatten().map(|event| event["name"].clone()).collect();
            events.sort_by_key(Value::to_string);
            let mut attributes = span["attributes"].as_array().cloned().unwrap_or_default();
            let is_stable = |pair: &Value| pair["key"] != "triton.trace_id";
            attributes.retain(is_stable);
            let about = json!({
                "kind": span["kind"],
                "parent": parent.map(|parent| parent["name"].clone()),
                "same trace": span["traceId"] == spans[0]["traceId"],
                "has an end": span["endTimeUnixNano"].as_str() >= span["startTimeUnixNano"].as_str(),
                "attributes": attributes,
                "keys": keys(&span["attributes"]),
                "events": events,
            });
            (span["name"].as_str().unwrap_or_default().to_owned(), about)
        })
        .collect();
    described.insert("scope".into(), scope["scope"].clone());
    described.insert("resource".into(), json!(keys(&resource["resource"]["attributes"])));
    described
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
