//! The arguments that the command line takes, by group.

use clap::{Arg, ArgAction, Command};

use super::refused;

const ABOUT: &str = "\
Sends inference requests to a server and reports throughput and latency. Inputs are made from the model's own
metadata, so any server of the KServe v2 protocol will do. The options are those of perf_analyzer.

Closed loop (the default): each of the concurrent callers sends its next request when it has its answer.
Open loop (--request-rate-range): requests are due at the times of a schedule, whatever the server does, and
latency counts from the time a request was due, not from the time it could be sent.";

const AFTER: &str = "\
Measurement: windows of --measurement-interval follow each other until three agree within --stability-percentage
in throughput and latency. The report is about these three. After --max-trials windows the report says that the
point is not stable, and the exit status is 3. With --duration there is a single window.

Connections: over HTTP each caller has one of its own. Over gRPC callers share --connections HTTP/2 connections.

Input file: {\"data\": [{\"INPUT0\": [1, 2, 3]}, ...]}, as of perf_analyzer; or a JSON object of arrays by input
name, or an array of such objects. Callers take the requests in turn.

Sequences: if the model has a sequence batcher, each caller sends one sequence after the other.

Chains: with --then, a request is the whole chain, and its latency that of all its calls.

docs/perf.md describes everything.";

/// An option with a value.
fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
}

/// The table of the options, for completions and the manual page.
pub fn command() -> Command {
    Command::new("nereid perf")
        .override_usage("nereid perf <MODEL> [OPTIONS]")
        .about(ABOUT)
        .after_help(AFTER)
        .args(under("Server", server()))
        .args(under("Encryption", encryption()))
        .args(under("Load", load()))
        .args(under("Measurement", measurement()))
        .args(under("Inputs", inputs()))
        .args(under("Sequences", sequences()))
        .args(under("Reports", reports()))
        .args(refused::arguments())
}

fn under(heading: &'static str, arguments: Vec<Arg>) -> Vec<Arg> {
    arguments.into_iter().map(|argument| argument.help_heading(heading)).collect()
}

fn server() -> Vec<Arg> {
    vec![
        option("model", "NAME", "The model to call, as the argument")
            .short('m')
            .required_unless_present("name"),
        Arg::new("name").value_name("MODEL").help("The model to call").conflicts_with("model"),
        option("model-version", "N", "Its version [default: the server's choice]").short('x'),
        option("then", "NAME", "Send each response's outputs to this model, as its inputs of the same names")
            .action(ArgAction::Append),
        option("url", "HOST:PORT", "The server [default: 127.0.0.1:8000, or :8001 for grpc]").short('u'),
        option("protocol", "http|grpc", "What to speak")
            .short('i')
            .value_parser(["http", "grpc"])
            .ignore_case(true)
            .default_value("http"),
        flag(
            "streaming",
            "A stream for each request, for models with many responses or none. Over HTTP: generate_stream",
        ),
        option("connections", "N", "HTTP/2 connections [default: concurrency, at most 8]"),
        option("header", "NAME:VALUE", "A header of each request, or metadata of each call")
            .short('H')
            .action(ArgAction::Append),
        option("request-parameter", "NAME:VALUE:TYPE", "A parameter of each request: bool, int or string")
            .action(ArgAction::Append),
        option("grpc-compression-algorithm", "none|gzip|deflate", "How messages of gRPC are compressed")
            .value_parser(["none", "gzip", "deflate"])
            .default_value("none"),
        option("service-kind", "KIND", "The kind of server: triton, the only one").default_value("triton"),
        flag("async", "Accepted: callers never block each other").short('a').conflicts_with("sync"),
        flag("sync", "Accepted: a caller always waits for its response"),
        option("max-threads", "N", "Accepted: one thread does all work"),
    ]
}

fn encryption() -> Vec<Arg> {
    let file = |name, help| option(name, "FILE", help);
    vec![
        file("ca-certificates", "For https and grpcs: trust these (PEM) [default: the system's]"),
        flag("ssl-grpc-use-ssl", "Encrypt connections of gRPC, as with a URL of grpcs://"),
        file("ssl-grpc-root-certifications-file", "As --ca-certificates, for gRPC"),
        file("ssl-grpc-private-key-file", "The private key of the client's certificate (PEM), for gRPC"),
        file("ssl-grpc-certificate-chain-file", "The client's certificate (PEM), for gRPC"),
        file("ssl-https-ca-certificates-file", "As --ca-certificates, for https"),
        file("ssl-https-client-certificate-file", "The client's certificate (PEM), for https"),
        file("ssl-https-private-key-file", "The private key of the client's certificate (PEM), for https"),
        option("ssl-https-client-certificate-type", "PEM", "Accepted: certificates are PEM")
            .value_parser(["PEM"]),
        option("ssl-https-private-key-type", "PEM", "Accepted: keys are PEM").value_parser(["PEM"]),
        option("ssl-https-verify-peer", "1", "Accepted: the server's certificate is always verified")
            .value_parser(["1"]),
        option("ssl-https-verify-host", "2", "Accepted: the server's name is always verified")
            .value_parser(["2"]),
    ]
}

fn load() -> Vec<Arg> {
    vec![
        option("concurrency-range", "START:END:STEP", "Callers of the closed loop [default: 1]").short('t'),
        option("concurrency", "LIST", "Callers: 1,16,64 or START:END[:STEP]"),
        option("request-rate-range", "START:END:STEP", "Open loop: requests per second, evenly spaced"),
        option("request-rate", "LIST", "Open loop: requests per second, 100,200, of a Poisson process"),
        option("request-distribution", "constant|poisson", "The gaps between requests of an open loop")
            .value_parser(["constant", "poisson"]),
        option("request-intervals", "FILE", "Open loop: gaps in microseconds, one in each line, repeated"),
        option("latency-threshold", "MILLISECONDS", "End the range at the first point that is slower")
            .short('l'),
        flag("binary-search", "Search the range for the last point below --latency-threshold"),
    ]
}

fn measurement() -> Vec<Arg> {
    vec![
        option("measurement-mode", "MODE", "What a window is")
            .value_parser(["time_windows", "count_windows"])
            .default_value("time_windows"),
        option("measurement-interval", "MILLISECONDS", "The length of a window [default: 5000]").short('p'),
        option("measurement-request-count", "N", "The least requests of a window by count [default: 50]"),
        option("stability-percentage", "N", "How much three windows may differ [default: 10]").short('s'),
        option("max-trials", "N", "The most windows of a point [default: 10]").short('r'),
        option("percentile", "N", "Compare windows by this percentile of latency [default: the mean]")
            .allow_negative_numbers(true),
        option("duration", "SECONDS", "One window of this length instead"),
        option("request-count", "N", "One window of N requests instead").conflicts_with("duration"),
        option("warm-up", "SECONDS", "Time before counting starts").default_value("1"),
        option("warmup-request-count", "N", "Requests before counting starts, instead of a time"),
    ]
}

fn inputs() -> Vec<Arg> {
    vec![
        option("batch", "N", "Size of the batch dimension").short('b').default_value("1"),
        option(
            "shape",
            "NAME:N,N",
            "Shape of an input with variable dimensions, without the batch dimension",
        )
        .action(ArgAction::Append),
        option("input-data", "zero|random|PATH", "What the tensors hold; PATH is a JSON file or a directory")
            .action(ArgAction::Append),
        option("data-directory", "DIRECTORY", "As --input-data DIRECTORY"),
        Arg::new("z").short('z').help("As --input-data zero").action(ArgAction::SetTrue),
        option("string-data", "TEXT", "The content of each element of texts"),
        option("string-length", "N", "The length of random texts").default_value("128"),
        option("payload", "json|binary", "How tensors travel over HTTP [default: binary]")
            .value_parser(["json", "binary"]),
        option("input-tensor-format", "json|binary", "How inputs travel over HTTP")
            .value_parser(["json", "binary"]),
        option("output-tensor-format", "json|binary", "How outputs travel over HTTP")
            .value_parser(["json", "binary"]),
        option("shared-memory", "none|system", "Where tensors are: in the messages, or in shared memory")
            .default_value("none"),
        option("output-shared-memory-size", "BYTES", "Room for each output in shared memory")
            .default_value("102400"),
        option("seed", "N", "For random inputs and random schedules").default_value("1"),
    ]
}

fn sequences() -> Vec<Arg> {
    vec![
        option("sequence-length", "N", "Requests of a sequence [default: those of the input data, or 20]"),
        option("sequence-length-variation", "PERCENT", "How much lengths vary").default_value("20"),
        option("sequence-id-range", "START[:END]", "The ids of sequences, END excluded").default_value("1"),
        option("num-of-sequences", "N", "Sequences of an open loop at the same time").default_value("4"),
        option(
            "sequence-header",
            "NAME",
            "A header with the id of the sequence, by which a balancer keeps it at its server",
        ),
        flag("serial-sequences", "Accepted: a sequence never has two requests under way"),
        flag("sequences", "Make every request a sequence of its own, for models with a sequence batcher"),
    ]
}

fn reports() -> Vec<Arg> {
    let file = |name, help| option(name, "FILE", help);
    vec![
        option("report", "text|table", "The report of perf_analyzer, or one line for each point")
            .value_parser(["text", "table"])
            .default_value("text"),
        Arg::new("verbose").short('v').action(ArgAction::Count).help("Report each window"),
        file("latency-report", "Write a CSV file with perf_analyzer's columns").short('f'),
        flag("verbose-csv", "More columns in the file of -f"),
        file("csv", "Write a CSV file with Nereid's columns"),
        file("plot", "Write a picture of the latencies (SVG)"),
        file("profile-export-file", "Write the times of each request (JSON)"),
        option("server-pid", "PID", "Report processor time of this process and its descendants")
            .action(ArgAction::Append),
    ]
}
