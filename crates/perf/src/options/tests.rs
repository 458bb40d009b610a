//! The command line: every option, the contradictions, and what perf_analyzer takes.

use std::ffi::OsString;
use std::time::Duration;

use client::endpoint::{ClientEncryption, TrustedCertificates};
use client::framing::MessageCompression;

use super::settings::ReportOptions;
use super::*;
use crate::search::Points;

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
    assert_eq!(options.load, Load::Closed(Points::List(vec![1.0])));
    let window = Until::Elapsed(Duration::from_secs(5));
    assert_eq!(options.windows, Windows::UntilStable { window, percent: 10.0, most: 10 });
    assert_eq!((options.content, options.texts), (InputContent::Random, TextContent::OfLength(128)));
    assert!(parsed("").unwrap_err().contains("--model"));
    assert_eq!(parsed("simple -b 2").unwrap().model, "simple");
    assert!(parsed("simple -m other").unwrap_err().contains("--model"));
}

#[test]
fn every_option_has_its_place() {
    let options = parsed(
        "-m m -x 3 -u host:9 -i grpc --streaming --connections 2 --concurrency 4 --request-rate 10,2.5 --warm-up 0.5 \
         --request-count 100 -b 8 --shape IN:1,16 --shape a:b:0 --input-data a.json --input-data dir --seed 9 \
         --csv out.csv --server-pid 12 --server-pid 13 --sequences -H A:b:c --request-parameter max:5:int \
         --grpc-compression-algorithm gzip --percentile 95 -l 30 --sequence-length 7 \
         --sequence-length-variation 10 --sequence-id-range 3:90 --num-of-sequences 6 --string-data x \
         --sequence-header X-Sequence-Id \
         --report table -v -f f.csv --verbose-csv --plot p.svg --profile-export-file p.json",
    )
    .unwrap();
    let expected = PerfOptions {
        model: "m".into(),
        then: Vec::new(),
        version: Some("3".into()),
        address: "host:9".into(),
        encryption: None,
        protocol: Protocol::Grpc,
        binary_outputs: true,
        streaming: true,
        headers: vec![("A".into(), "b:c".into())],
        parameters: vec![("max".into(), GivenParameter::Int(5))],
        compression: Some(MessageCompression::Gzip),
        load: Load::Open {
            rates: Points::List(vec![10.0, 2.5]),
            distribution: Distribution::Poisson,
            callers: 4,
        },
        connections: Some(2),
        warm_up: PointWarmUp::Time(Duration::from_millis(500)),
        windows: Windows::Single(Until::Requests(100)),
        percentile: Some(95),
        latency_limit: Some(Duration::from_millis(30)),
        batch: 8,
        sequences: SequenceOptions {
            of_one_request: true,
            length: Some(7),
            variation: 10.0,
            first_id: 3,
            end_id: Some(90),
            count: 6,
            header: Some("x-sequence-id".parse().unwrap()),
        },
        shapes: [("IN".to_owned(), vec![1, 16]), ("a:b".to_owned(), vec![0])].into(),
        content: InputContent::Files(vec!["a.json".into(), "dir".into()]),
        texts: TextContent::Given("x".into()),
        shared_memory: None,
        seed: 9,
        server_pids: vec![12, 13],
        reports: ReportOptions {
            table: true,
            verbose: true,
            csv: Some("out.csv".into()),
            latency_report: Some("f.csv".into()),
            verbose_csv: true,
            plot: Some("p.svg".into()),
            profile: Some("p.json".into()),
        },
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
fn streams_over_http_are_json_in_both_directions() {
    for line in ["-m m --streaming", "-m m --streaming --payload json -i http"] {
        let options = parsed(line).unwrap();
        assert_eq!((options.protocol, options.binary_outputs), (Protocol::HttpJson, false), "{line}");
    }
    let options = parsed("-m m --streaming -i grpc --payload binary").unwrap();
    assert_eq!((options.protocol, options.streaming), (Protocol::Grpc, true));
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
    let trusting = |trusted| Some(ClientEncryption { trusted, identity: None });
    assert_eq!(encryption("-u https://host:1"), trusting(TrustedCertificates::OfSystem));
    let file = trusting(TrustedCertificates::File("ca.pem".into()));
    assert_eq!(encryption("-u grpcs://host:1 -i grpc --ca-certificates ca.pem"), file);
    let error = parsed("-m m --ca-certificates ca.pem").unwrap_err();
    assert!(error.contains("write --url https://"), "{error}");
}

#[test]
fn points_are_a_list_or_a_range() {
    let load = |line: &str| parsed(&format!("-m m {line}")).unwrap().load;
    let list = |points: &[f64]| Load::Closed(Points::List(points.to_vec()));
    let range = |start, end, step| Points::Range { start, end, step, is_binary: false };
    assert_eq!(load("--concurrency 1,16,64"), list(&[1.0, 16.0, 64.0]));
    assert_eq!(load("--concurrency-range 8"), list(&[8.0]));
    assert_eq!(load("-t 8"), list(&[8.0]));
    assert_eq!(load("--concurrency 1:3"), Load::Closed(range(1.0, Some(3.0), 1.0)));
    assert_eq!(load("--concurrency-range 8:24:8"), Load::Closed(range(8.0, Some(24.0), 8.0)));
    assert_eq!(load("--concurrency-range 1:0:2 -l 5"), Load::Closed(range(1.0, None, 2.0)));
    let rates = |line: &str| match load(line) {
        Load::Open { rates, distribution, callers } => (rates, distribution, callers),
        other => panic!("{other:?}"),
    };
    let found = rates("--request-rate-range 10:20:2.5");
    assert_eq!(found, (range(10.0, Some(20.0), 2.5), Distribution::Constant, OPEN_LOOP));
    let found = rates("--request-rate-range 10 --request-distribution poisson --concurrency 3");
    assert_eq!(found, (Points::List(vec![10.0]), Distribution::Poisson, 3));
    let intervals = Load::Intervals { file: "gaps".into(), callers: OPEN_LOOP };
    assert_eq!(load("--request-intervals gaps"), intervals);
}

/// The most unanswered requests, unless the command line says otherwise.
const OPEN_LOOP: usize = 256;

#[test]
fn a_binary_search_needs_a_range_and_a_limit() {
    let line = "-m m --binary-search --concurrency-range 1:64";
    let load = parsed(&format!("{line} --latency-threshold 5")).unwrap().load;
    let range = Points::Range { start: 1.0, end: Some(64.0), step: 1.0, is_binary: true };
    assert_eq!(load, Load::Closed(range));
    assert!(parsed(line).unwrap_err().contains("--latency-threshold"));
}

#[test]
fn windows_are_by_time_or_by_count() {
    let windows = |line: &str| parsed(&format!("-m m {line}")).unwrap().windows;
    let window = Until::Elapsed(Duration::from_millis(700));
    let expected = Windows::UntilStable { window, percent: 25.0, most: 4 };
    assert_eq!(windows("-p 700 -s 25 -r 4"), expected);
    let window = Until::Requests(9);
    let expected = Windows::UntilStable { window, percent: 10.0, most: 10 };
    assert_eq!(windows("--measurement-mode count_windows --measurement-request-count 9"), expected);
    assert_eq!(windows("--duration 0.5"), Windows::Single(Until::Elapsed(Duration::from_millis(500))));
    assert!(matches!(windows("--request-count 0"), Windows::UntilStable { .. }));
}

#[test]
fn options_of_perf_analyzer_that_do_not_exist_are_refused_with_a_reason() {
    for (option, reason) in [
        ("--collect-metrics", "metrics port"),
        ("--model-repository /models", "over the network"),
        ("--bls-composing-models a,b", "/v2/models/stats"),
        ("--periodic-concurrency-range 1:2:1", "constant within a point"),
        ("--trace-level TIMESTAMPS", "at the server"),
        ("-c 5", "--concurrency-range"),
        ("-d", "--concurrency-range"),
        ("--service-kind openai", "triton only"),
        ("--shared-memory cuda", "GPU"),
    ] {
        let error = parsed(&format!("-m m {option}")).unwrap_err();
        let name = option.split(' ').next().unwrap();
        assert!(error.contains(name) && error.contains(reason), "{option}: {error}");
    }
}

#[test]
fn an_unknown_option_has_a_suggestion() {
    let error = parsed("-m m --concurency-range 4").unwrap_err();
    assert!(error.contains("--concurrency-range"), "{error}");
}

#[test]
fn usual_command_lines_of_perf_analyzer_are_taken() {
    for line in [
        "-m resnet -b 8 -u localhost:8001 -i gRPC --concurrency-range 1:16:4 --percentile=95 -f perf.csv --verbose-csv",
        "-m simple -x 1 --async --max-threads 16 --measurement-mode count_windows --measurement-request-count 100",
        "-m seq --sync --sequence-length=10 --sequence-id-range 1:100 --serial-sequences -i grpc --streaming",
        "-m m --service-kind=triton -z --shape IN:1,3 -p 3000 -s 5 -r 20 --percentile -1 -v -v",
        "-m m -u https://h:1 --ssl-https-verify-peer 1 --ssl-https-verify-host 2 \
         --ssl-https-ca-certificates-file ca --ssl-https-client-certificate-file c \
         --ssl-https-private-key-file k --ssl-https-client-certificate-type PEM",
        "-m m -i grpc --ssl-grpc-use-ssl --ssl-grpc-root-certifications-file ca",
    ] {
        parsed(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let options = parsed(
        "-m m -i grpc --ssl-grpc-use-ssl --ssl-grpc-certificate-chain-file c \
                          --ssl-grpc-private-key-file k",
    );
    let encryption = options.unwrap().encryption.unwrap();
    assert_eq!(encryption.identity, Some(("c".into(), "k".into())));
}

#[test]
fn contradictions_and_nonsense_are_refused_by_name() {
    for (line, word) in [
        ("-m m --connections 2", "--connections"),
        ("-m m --streaming --payload binary", "--protocol grpc"),
        ("-m m --streaming --input-tensor-format binary", "--protocol grpc"),
        ("-m m --streaming --output-tensor-format binary", "--protocol grpc"),
        ("-m m --streaming --payload json --input-tensor-format json", "contradict"),
        ("-m m --streaming --then n", "--then"),
        ("-m m --streaming --shared-memory system", "--shared-memory"),
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
        ("-m m --async --sync", "--sync"),
        ("-m m --concurrency 1.5", "--concurrency"),
        ("-m m --concurrency 2 --concurrency-range 2", "contradict"),
        ("-m m --request-rate 2 --request-rate-range 2", "contradict"),
        ("-m m --request-rate 2 --request-intervals f", "contradict"),
        ("-m m --concurrency-range 1:0", "--latency-threshold"),
        ("-m m --request-distribution poisson", "--request-rate-range"),
        ("-m m --percentile 100", "--percentile"),
        ("-m m --stability-percentage -1", "-1"),
        ("-m m --max-trials 0", "--max-trials"),
        ("-m m --measurement-interval 0", "--measurement-interval"),
        ("-m m --verbose-csv", "-f"),
        ("-m m -H none", "-H"),
        ("-m m --request-parameter a:b:float", "--request-parameter"),
        ("-m m --request-parameter a:b:int", "--request-parameter"),
        ("-m m --sequence-id-range 0", "--sequence-id-range"),
        ("-m m --sequence-id-range 5:5", "--sequence-id-range"),
        ("-m m --sequence-length-variation 101", "--sequence-length-variation"),
        ("-m m --input-data zero --input-data f", "--input-data"),
        ("-m m --payload json --input-tensor-format json", "contradict"),
        ("-m m --grpc-compression-algorithm gzip", "--protocol grpc"),
        ("-m m -u https://h:1 --ssl-https-private-key-file k", "belong together"),
        ("-m m -u https://h:1 --ssl-https-verify-peer 0", "--ssl-https-verify-peer"),
    ] {
        let error = parsed(line).unwrap_err();
        assert!(error.contains(word), "{line}: {error}");
    }
}
