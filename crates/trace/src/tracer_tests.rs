//! From a sampled request to a file, and to a collector.
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::mpsc,
    thread,
};

use inference::{TensorActivity, TraceActivity, TraceSink};
use serde_json::Value;
use vocabulary::{DataType, Tensor};

use super::*;
use crate::{
    config::{OtlpProtocol, TraceFileConfig},
    request_trace::FrontendActivity,
    settings::{FieldChange, TraceLevels},
};

const BOTH: TraceLevels = TraceLevels { timestamps: true, tensors: true };
const LONG: Duration = Duration::from_secs(60);

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn settings(levels: TraceLevels) -> EffectiveSettings {
    EffectiveSettings { levels, rate: 1, ..EffectiveSettings::default() }
}

fn to_file(path: &Path, settings: EffectiveSettings, max_buffered_bytes: usize) -> Tracer {
    let destination = TraceDestination::File(TraceFileConfig { path: Some(path.into()) });
    Tracer::start(&TraceConfig { settings, destination, max_buffered_bytes }).unwrap()
}

fn sample(tracer: &Tracer) -> Option<RequestTrace> {
    tracer.sample("m", at(5), || None)
}

/// What the engine tells a trace.
fn run(trace: &RequestTrace) {
    let context = trace.context();
    context.accepted(&"m".into(), 1, &"r".into());
    let sink = context.sink::<crate::request_trace::TraceRecord>().unwrap();
    sink.reached(TraceActivity::RequestStart, at(10));
    if sink.wants_tensors() {
        let tensor = Tensor::new("IN".into(), DataType::Int8, [2][..].into(), vec![65, 255]);
        sink.tensor(TensorActivity::QueueInput, &tensor);
    }
    sink.reached(TraceActivity::RequestEnd, at(20));
}

fn read(path: &Path) -> Vec<Value> {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_trace_reaches_its_file_with_those_of_the_requests_that_follow_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let tracer = to_file(&path, settings(BOTH), 1 << 20);
    let trace = sample(&tracer).unwrap();
    trace.reached(FrontendActivity::HttpReceiveStart, at(5));
    run(&trace);
    let child = trace.context().child().unwrap();
    child.accepted(&"step".into(), 2, &"r".into());
    // The trace of the client ends after those that follow from it, whichever is dropped first.
    drop(trace);
    drop(child);
    assert!(tracer.finish(LONG));
    let elements = read(&path);
    let ids: Vec<_> = elements.iter().map(|element| element["id"].as_u64().unwrap()).collect();
    assert_eq!(elements[0]["model_name"], "step");
    assert_eq!(elements[0]["parent_id"], ids[1]);
    assert!(ids[1..].iter().all(|id| *id == ids[1]));
    assert_eq!(elements[1]["timestamps"][0]["name"], "HTTP_RECV_START");
    assert_eq!(elements[4]["tensor"]["data"], "65,-1");
    assert_eq!(elements.len(), 6);
}

#[test]
fn tensors_alone_bring_the_model_and_no_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let tracer = to_file(&path, settings(TraceLevels { timestamps: false, tensors: true }), 1 << 20);
    let trace = sample(&tracer).unwrap();
    trace.reached(FrontendActivity::HttpSendEnd, at(5));
    run(&trace);
    trace.context().custom("PRE_START", at(6));
    drop(trace);
    assert!(tracer.finish(LONG));
    let elements = read(&path);
    assert_eq!(
        (elements[0]["model_name"].as_str(), elements[0]["request_id"].as_str()),
        (Some("m"), Some("r"))
    );
    assert_eq!(elements[1]["tensor"]["name"], "IN");
    assert_eq!(elements.len(), 2);
}

#[test]
fn a_request_that_was_refused_before_it_began_leaves_no_trace_and_gives_its_count_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let tracer = to_file(&path, EffectiveSettings { count: Some(1), ..settings(BOTH) }, 1 << 20);
    let refused = sample(&tracer).unwrap();
    refused.reached(FrontendActivity::HttpReceiveStart, at(5));
    assert!(sample(&tracer).is_none());
    drop(refused);
    let trace = sample(&tracer).unwrap();
    run(&trace);
    drop(trace);
    assert!(sample(&tracer).is_none());
    assert!(tracer.finish(LONG));
    assert!(!path.exists());
    assert_eq!(read(&folder.path().join("t.json.0")).len(), 4);
}

#[test]
fn a_change_begins_to_count_anew_and_old_traces_keep_their_settings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let tracer = to_file(&path, EffectiveSettings { rate: 2, ..settings(BOTH) }, 1 << 20);
    assert!(sample(&tracer).is_none());
    let old = sample(&tracer).unwrap();
    assert!(sample(&tracer).is_none());
    let off =
        SettingsChange { levels: FieldChange::Set(TraceLevels::default()), ..SettingsChange::default() };
    tracer.change(None, off).unwrap();
    assert!(!tracer.is_on() && sample(&tracer).is_none());
    run(&old);
    drop(old);
    let on = SettingsChange { levels: FieldChange::Set(BOTH), ..SettingsChange::default() };
    tracer.change(Some("m"), on).unwrap();
    assert!(tracer.is_on() && tracer.sample("other", at(5), || None).is_none());
    assert!(sample(&tracer).is_none() && sample(&tracer).is_some());
    assert!(tracer.finish(LONG));
    assert_eq!(read(&path).len(), 4);
}

#[test]
fn clients_see_how_many_requests_are_still_traced() {
    let folder = tempfile::tempdir().unwrap();
    let tracer =
        to_file(&folder.path().join("t"), EffectiveSettings { count: Some(2), ..settings(BOTH) }, 1 << 20);
    let count = |model| {
        let shown = tracer.shown(model);
        shown.iter().find(|setting| setting.name == "trace_count").unwrap().values[0].clone()
    };
    let _trace = sample(&tracer).unwrap();
    assert_eq!((count(None), count(Some("m"))), ("1".to_owned(), "1".to_owned()));
    let rate = SettingsChange { rate: FieldChange::Set(3), ..SettingsChange::default() };
    tracer.change(None, rate).unwrap();
    assert_eq!(count(None), "1");
}

#[test]
fn traces_that_do_not_fit_into_the_memory_are_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let tracer = to_file(&folder.path().join("t"), settings(BOTH), 2000);
    let traces: Vec<_> = (0..100).filter_map(|_| sample(&tracer)).collect();
    assert_eq!(traces.len(), 3);
    traces.iter().for_each(run);
    let [_, dropped, elements, _] = tracer.exporter.counters().read();
    assert_eq!(dropped, 97);
    assert!(elements > 0);
    assert!(tracer.exporter.budget().used() <= 2000);
    drop(traces);
    assert!(tracer.finish(LONG));
    assert_eq!(tracer.exporter.budget().used(), 0);
}

#[test]
fn a_request_that_is_not_traced_for_lack_of_memory_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let tracer =
        to_file(&folder.path().join("t"), EffectiveSettings { count: Some(5), ..settings(BOTH) }, 1000);
    let first = sample(&tracer).unwrap();
    assert!(sample(&tracer).is_none());
    let count = &tracer.shown(None)[2];
    assert_eq!((count.name, count.values[0].as_str()), ("trace_count", "4"));
    drop(first);
}

#[test]
fn a_request_without_end_does_not_fill_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let tracer = to_file(&folder.path().join("t"), settings(BOTH), 1 << 20);
    let trace = sample(&tracer).unwrap();
    for nanos in 0..1_000_000 {
        trace.reached(FrontendActivity::GrpcSendEnd, at(nanos));
    }
    assert!(tracer.exporter.budget().used() <= 1 << 20);
    run(&trace);
}

#[test]
fn a_request_that_sends_requests_without_end_does_not_fill_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let tracer = to_file(&folder.path().join("t"), settings(BOTH), 10_000);
    let trace = sample(&tracer).unwrap();
    run(&trace);
    for _ in 0..1000 {
        trace.context().child().unwrap().accepted(&"m".into(), 1, &"r".into());
    }
    assert!(tracer.exporter.budget().used() <= 10_000);
    drop(trace);
    assert!(tracer.finish(LONG));
    let ids: std::collections::BTreeSet<_> =
        read(&folder.path().join("t")).iter().map(|element| element["id"].to_string()).collect();
    assert!((2..20).contains(&ids.len()), "{}", ids.len());
}

/// A collector that answers every request with this status, and passes the bodies on.
fn collector(status: &'static str) -> (String, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let (sender, bodies) = mpsc::channel();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let sender = sender.clone();
            thread::spawn(move || answer(connection.unwrap(), status, &sender));
        }
    });
    (url, bodies)
}

fn answer(mut connection: TcpStream, status: &str, bodies: &mpsc::Sender<Vec<u8>>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let _ = bodies.send(body);
        write!(connection, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
    }
}

fn to_collector(otlp: OtlpConfig, settings: EffectiveSettings) -> Tracer {
    let destination = TraceDestination::Otlp(otlp);
    Tracer::start(&TraceConfig { settings, destination, max_buffered_bytes: 1 << 20 }).unwrap()
}

fn spans(body: &[u8]) -> Vec<Value> {
    let body: Value = serde_json::from_slice(body).unwrap();
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

const PARENT: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn a_collector_gets_the_spans_below_that_of_the_client() {
    let (url, bodies) = collector("200 OK");
    let settings = EffectiveSettings { rate: 0, ..settings(BOTH) };
    let tracer = to_collector(OtlpConfig { url, ..OtlpConfig::default() }, settings);
    assert!(sample(&tracer).is_none(), "rate 0 traces only requests of traced clients");
    let trace = tracer.sample("m", at(5), || RemoteContext::parse(PARENT, Some(b"a=b"))).unwrap();
    run(&trace);
    let propagated: Value = serde_json::from_str(&trace.context().propagated().unwrap()).unwrap();
    drop(trace);
    assert!(tracer.finish(LONG));
    let spans = spans(&bodies.recv().unwrap());
    assert_eq!(spans.len(), 2);
    assert_eq!(spans[1]["parentSpanId"], "b7ad6b7169203331");
    assert_eq!(spans[0]["parentSpanId"], spans[1]["spanId"]);
    assert!(spans.iter().all(|span| span["traceId"] == "0af7651916cd43dd8448eb211c80319c"));
    let parent = format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", spans[0]["spanId"].as_str().unwrap());
    assert_eq!((&propagated["traceparent"], &propagated["tracestate"]), (&parent.into(), &"a=b".into()));
    assert_eq!(tracer.exporter.counters().read(), [1, 0, 0, 0]);
}

#[test]
fn a_collector_gets_no_tensors() {
    let (url, _bodies) = collector("200 OK");
    let tracer = to_collector(OtlpConfig { url, ..OtlpConfig::default() }, settings(BOTH));
    let trace = sample(&tracer).unwrap();
    assert!(!trace.context().sink::<crate::request_trace::TraceRecord>().unwrap().wants_tensors());
}

#[test]
fn spans_that_were_sent_make_room_for_others() {
    let (url, bodies) = collector("200 OK");
    let otlp = OtlpConfig {
        url,
        max_queue_size: 2,
        max_export_batch_size: 2,
        schedule_delay: Duration::from_millis(10),
        ..OtlpConfig::default()
    };
    let tracer = to_collector(otlp, settings(BOTH));
    for exported in 1..=3 {
        run(&sample(&tracer).unwrap());
        assert_eq!(spans(&bodies.recv_timeout(LONG).unwrap()).len(), 2);
        while tracer.exporter.counters().read()[0] < exported {
            thread::yield_now();
        }
    }
    assert_eq!(tracer.exporter.counters().read(), [3, 0, 0, 0]);
}

#[test]
fn a_whole_batch_is_sent_at_once_and_no_request_has_more_spans() {
    let (url, bodies) = collector("200 OK");
    let otlp =
        OtlpConfig { url, max_export_batch_size: 3, schedule_delay: LONG * 60, ..OtlpConfig::default() };
    let tracer = to_collector(otlp, settings(BOTH));
    for _ in 0..3 {
        run(&sample(&tracer).unwrap());
    }
    let first = spans(&bodies.recv_timeout(LONG).unwrap()).len();
    assert!((1..=3).contains(&first));
    assert!(tracer.finish(LONG));
    let sizes: Vec<_> = bodies.try_iter().map(|body| spans(&body).len()).collect();
    assert!(sizes.iter().all(|size| *size <= 3), "{sizes:?}");
    assert_eq!(first + sizes.iter().sum::<usize>(), 6);
}

#[test]
fn a_collector_gets_the_headers_that_it_asks_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let head = thread::spawn(move || {
        let reader = BufReader::new(listener.accept().unwrap().0);
        reader.lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect::<Vec<_>>()
    });
    let headers = crate::read_headers("X-Key=a%20secret,User-Agent=mine").unwrap();
    let tracer = to_collector(OtlpConfig { url, headers, ..OtlpConfig::default() }, settings(BOTH));
    run(&sample(&tracer).unwrap());
    assert!(!tracer.finish(LONG), "the collector closes the connection without an answer");
    let head = head.join().unwrap();
    for line in ["x-key: a secret", "user-agent: mine", "content-type: application/json"] {
        assert!(head.iter().any(|other| other == line), "{line} is not in {head:?}");
    }
}

#[test]
fn spans_are_sent_after_the_delay() {
    let (url, bodies) = collector("200 OK");
    let otlp = OtlpConfig { url, schedule_delay: Duration::from_millis(20), ..OtlpConfig::default() };
    let tracer = to_collector(otlp, settings(BOTH));
    run(&sample(&tracer).unwrap());
    assert_eq!(spans(&bodies.recv_timeout(LONG).unwrap()).len(), 2);
}

#[test]
fn a_collector_that_refuses_or_is_away_loses_spans_and_delays_nothing() {
    let (url, _bodies) = collector("503 Service Unavailable");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [url, format!("http://{closed}/v1/traces")] {
        let tracer = to_collector(OtlpConfig { url, ..OtlpConfig::default() }, settings(BOTH));
        run(&sample(&tracer).unwrap());
        assert!(!tracer.finish(LONG));
        assert_eq!(tracer.exporter.counters().read(), [0, 0, 0, 1]);
    }
}

#[test]
fn a_collector_that_does_not_answer_within_the_timeout_loses_spans() {
    // Connections are accepted by the system, and never answered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let otlp = OtlpConfig {
        url: format!("http://{}", silent.local_addr().unwrap()),
        timeout: Duration::from_millis(1),
        schedule_delay: Duration::from_millis(10),
        ..OtlpConfig::default()
    };
    let tracer = to_collector(otlp, settings(BOTH));
    run(&sample(&tracer).unwrap());
    while tracer.exporter.counters().read() != [0, 0, 0, 1] {
        thread::yield_now();
    }
}

#[test]
fn a_collector_that_is_off_gets_no_spans_and_needs_no_valid_url() {
    let otlp = OtlpConfig { url: "ftp://host".to_owned(), is_off: true, ..OtlpConfig::default() };
    let tracer = to_collector(otlp, settings(BOTH));
    let trace = sample(&tracer).unwrap();
    assert!(trace.context().propagated().is_some(), "backends still get the ids of their span");
    run(&trace);
    drop(trace);
    assert!(tracer.finish(LONG));
    assert_eq!(tracer.exporter.counters().read(), [0; 4]);
}

#[test]
fn a_collector_that_hangs_bounds_the_queue_and_the_exit() {
    // Connections are accepted by the system, and never answered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let otlp = OtlpConfig {
        url: format!("http://{}", silent.local_addr().unwrap()),
        protocol: OtlpProtocol::HttpProtobuf,
        max_queue_size: 10,
        max_export_batch_size: 2,
        ..OtlpConfig::default()
    };
    let tracer = to_collector(otlp, settings(BOTH));
    for _ in 0..100 {
        run(&sample(&tracer).unwrap());
    }
    let [_, dropped, _, _] = tracer.exporter.counters().read();
    assert_eq!(dropped, 95, "ten spans wait or are being sent");
    assert!(!tracer.finish(Duration::from_millis(50)));
}

#[test]
fn without_a_destination_clients_turn_nothing_on() {
    let tracer = Tracer::off();
    let on = SettingsChange { levels: FieldChange::Set(BOTH), ..SettingsChange::default() };
    let error = tracer.change(None, on).unwrap_err();
    assert_eq!(error.message, "Attempting to set invalid trace setting :trace file name is not given");
    assert!(sample(&tracer).is_none() && tracer.metrics().is_none());
    let values: Vec<_> = tracer.shown(None).into_iter().map(|setting| setting.values.join("+")).collect();
    assert_eq!(values, ["OFF", "1000", "-1", "0", "", "triton"]);
}
