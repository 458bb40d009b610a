//! What observing and encrypting cost: the same requests to a server that shows nothing, to one that shows all it can, to
//! one whose status page is open, and to one whose ports are encrypted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::results;
use super::row::{BenchProtocol, BenchRow};
use super::server_contender::ServerContender;
use super::setup::BenchSetup;
use super::table::{ComparisonTable, ResultTable};
use super::turns::measure_in_turns;
use crate::console::heading;
use crate::{files, process};

/// How often the metrics are read, as by an eager collector, and how often the status page asks.
const ASKING_INTERVAL: Duration = Duration::from_secs(1);

/// Measures, prints and writes the tables. Returns true if every request was answered.
pub(super) fn run(setup: &BenchSetup) -> Result<bool> {
    let logs = setup.folder.join("observed");
    files::make_folder(&logs)?;
    let ours = |name, more: &[String]| ServerContender::ours(setup, name, more);
    let certificate = make_certificate(&logs)?;
    let mut contenders = vec![
        ours("quiet", &["--allow-metrics=false".to_owned()])?,
        ours("observed", &everything(&logs))?,
        ours("encrypted", &encryption(&certificate))?.encrypted_by(certificate.chain),
        ours("status open", &["--allow-metrics=false", "--status-log-lines=200"].map(str::to_owned))?,
    ];
    let reference = |name, more: &[String]| ServerContender::reference(setup, name, more);
    contenders.extend(reference("reference quiet", &["--allow-metrics=false".to_owned()])?);
    contenders.extend(reference("reference observed", &what_both_have(&logs.join("reference")))?);
    let readers: Vec<_> = contenders.iter().filter_map(AskingReader::of).collect();

    let mut table = ResultTable::new();
    let mut observed = ComparisonTable::new("all that can be shown : nothing");
    let mut encrypted = ComparisonTable::new("encrypted : plain");
    let mut open = ComparisonTable::new("status page open : closed");
    let mut reference = ComparisonTable::new("reference, all that can be shown : nothing");
    let options = &setup.options;
    let names: Vec<&str> = contenders.iter().map(|contender| contender.name).collect();
    for row in rows().into_iter().filter(|row| options.wants(&row.name)) {
        heading(&row.name);
        let measure = |index: usize| contenders[index].measure(&row, options.seconds);
        let rounds = measure_in_turns(options.rounds, &names, measure)?;
        observed.extend(&row.name, &rounds[1], &rounds[0]);
        encrypted.extend(&row.name, &rounds[2], &rounds[0]);
        open.extend(&row.name, &rounds[3], &rounds[0]);
        if let [.., quiet, all] = &rounds[4..] {
            reference.extend(&row.name, all, quiet);
        }
        table.extend(&row.name, &names, &rounds);
    }
    drop(readers);
    let comparisons = [observed.markdown(), encrypted.markdown(), open.markdown()].join("\n");
    let mut text = format!("{}\n{comparisons}", table.markdown());
    if options.reference.is_some() {
        text.push('\n');
        text.push_str(&reference.markdown());
    }
    results::show("observe.md", &text)?;
    Ok(table.errors() == 0.0)
}

/// Small requests, of which every step counts, and large ones for the cost of encrypting.
fn rows() -> Vec<BenchRow> {
    let mut rows = Vec::new();
    for (model, callers) in [("tiny", 64), ("large4", 4)] {
        for protocol in [BenchProtocol::HttpBinary, BenchProtocol::Grpc] {
            let name = format!("{model} {} x{callers}", protocol.name());
            rows.push(BenchRow::closed_loop(name, model, protocol, callers));
        }
    }
    rows
}

/// The options of a server that shows all it can. One of a thousand requests is traced, and one of a thousand is in the
/// access log.
fn everything(folder: &Path) -> Vec<String> {
    let mut options = what_both_have(&folder.join("ours"));
    options.push("--metrics-config=histogram_latencies=true".to_owned());
    options.push(format!("--access-log={}", folder.join("access.log").display()));
    options.push("--access-log-rate=0.001".to_owned());
    options
}

/// Those of them that Triton has too.
fn what_both_have(trace: &Path) -> Vec<String> {
    let trace = format!("--trace-config=triton,file={}.trace.json", trace.display());
    let fixed = [
        "--allow-metrics=true",
        "--metrics-config=summary_latencies=true",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=rate=1000",
    ];
    fixed.iter().map(|option| (*option).to_owned()).chain([trace]).collect()
}

/// A certificate for `localhost` that has signed itself.
struct Certificate {
    chain: PathBuf,
    key: PathBuf,
}

fn make_certificate(folder: &Path) -> Result<Certificate> {
    let (chain, key) = (folder.join("server.pem"), folder.join("server.key"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
    openssl.args(["-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    process::run(openssl.arg("-keyout").arg(&key).arg("-out").arg(&chain))?;
    Ok(Certificate { chain, key })
}

fn encryption(certificate: &Certificate) -> Vec<String> {
    ["http", "grpc"]
        .iter()
        .flat_map(|port| {
            [
                format!("--{port}-use-ssl=true"),
                format!("--{port}-server-cert={}", certificate.chain.display()),
                format!("--{port}-server-key={}", certificate.key.display()),
            ]
        })
        .chain(["--allow-metrics=false".to_owned()])
        .collect()
}

/// Reads the metrics of a server, or what its status page shows, again and again until it is dropped.
struct AskingReader {
    end: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl AskingReader {
    /// The reader of a contender that has one.
    fn of(contender: &ServerContender) -> Option<Self> {
        let (port, path) = match contender.name {
            "status open" => (contender.http_port, "/v2/explain"),
            name if name.ends_with("observed") => (contender.metrics_port, "/metrics"),
            _ => return None,
        };
        let (end, ended) = channel();
        let thread = thread::spawn(move || read(port, path, &ended));
        Some(Self { end: Some(end), thread: Some(thread) })
    }
}

fn read(port: u16, path: &str, ended: &Receiver<()>) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    while ended.recv_timeout(ASKING_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        // A server that does not answer fails its rows, not this thread.
        let _ = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
            stream.write_all(request.as_bytes())?;
            stream.read_to_end(&mut Vec::new())
        });
    }
}

impl Drop for AskingReader {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
