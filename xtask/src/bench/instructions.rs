//! Instructions and calls of the allocator for each request, as callgrind counts them.
//!
//! Counts depend little on how busy the machine is. A count is the difference between two runs of a server with unequal
//! numbers of requests, divided by the difference of these numbers: what the start, the warm-up and the stop cost is in
//! both. Under callgrind no execution is brief, so that each batch runs on the thread of its instance. How often threads
//! find each other asleep differs between runs; hence the medians of several rounds.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::callgrind::{CountedServer, ServerCounts};
use super::options::BenchOptions;
use super::table::Figures;
use super::{backends, results};
use crate::console::heading;
use crate::{files, loopback, process};

/// Requests before those that count, and requests of the shorter and of the longer run.
const WARM_UP: u32 = 200;
const COUNTED: [u32; 2] = [500, 2500];

/// The load of one row. The only caller sends its next request when it has its answer.
struct CountedLoad {
    name: &'static str,
    model: &'static str,
    /// Options of `nereid perf`.
    options: &'static [&'static str],
}

const HTTP: &str = "--protocol=http";
const GRPC: &str = "--protocol=grpc";

const LOADS: [CountedLoad; 8] = [
    CountedLoad { name: "HTTP JSON", model: "plain", options: &[HTTP, "--payload=json"] },
    CountedLoad { name: "HTTP binary", model: "plain", options: &[HTTP] },
    CountedLoad { name: "gRPC", model: "plain", options: &[GRPC] },
    CountedLoad { name: "gRPC stream", model: "plain", options: &[GRPC, "--streaming"] },
    CountedLoad { name: "batch of 8", model: "batched", options: &[HTTP, "--batch=8"] },
    CountedLoad {
        name: "sequence",
        model: "sequence",
        options: &[HTTP, "--sequence-length=20", "--sequence-length-variation=0"],
    },
    CountedLoad { name: "ensemble of 3", model: "ensemble", options: &[HTTP] },
    CountedLoad { name: "cache hit", model: "cached", options: &[HTTP] },
];

/// The models: 16 floats, copied by the C identity backend of this repository. `plain` has no batcher of its own.
const MODELS: [(&str, &str); 4] = [
    ("plain", ""),
    ("batched", "dynamic_batching { preferred_batch_size: [ 8 ] }"),
    ("sequence", "sequence_batching { oldest { max_candidate_sequences: 8 } }"),
    ("cached", "response_cache { enable: true }"),
];

/// The tensors of an ensemble of three times `plain`, in order.
const CHAIN: [&str; 4] = ["INPUT0", "first", "second", "OUTPUT0"];

/// Counts, prints, and writes the table.
///
/// # Errors
/// A server does not start, a request fails, or valgrind cannot be had.
pub(super) fn run(options: &BenchOptions) -> Result<()> {
    let folder = results::folder()?.join("instructions");
    write_models(&folder.join("models"))?;
    let server = options.server()?;
    let setup =
        CountingSetup { perf: &server, folder: &folder, backends: backends::identity_backend(&folder)? };
    let mut rows = Vec::new();
    for load in LOADS.iter().filter(|load| options.wants(load.name)) {
        heading(load.name);
        let (mut ours, mut earlier) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            ours.push(setup.of_request(&server, load)?);
            if let Some(binary) = &options.before {
                earlier.push(setup.of_request(binary, load)?);
            }
        }
        let ours = RequestCounts::median(&ours).context("there are rounds")?;
        let earlier = RequestCounts::median(&earlier);
        println!("{:<12} {}", "ours", ours.line());
        earlier.iter().for_each(|earlier| println!("{:<12} {}", "before", earlier.line()));
        rows.push((load.name, ours, earlier));
    }
    results::show("instructions.md", &table(&rows))
}

/// What one request costs.
#[derive(Clone, Copy)]
struct RequestCounts {
    instructions: f64,
    allocations: f64,
}

impl RequestCounts {
    fn between([short, long]: [ServerCounts; 2]) -> Self {
        let requests = f64::from(COUNTED[1] - COUNTED[0]);
        let each = |short: u64, long: u64| (long as f64 - short as f64) / requests;
        Self {
            instructions: each(short.instructions, long.instructions),
            allocations: each(short.allocations, long.allocations),
        }
    }

    /// The median of each count; `None` if there are no rounds.
    fn median(rounds: &[Self]) -> Option<Self> {
        let of = |count: fn(&Self) -> f64| {
            let mut counts: Vec<f64> = rounds.iter().map(count).collect();
            counts.sort_by(f64::total_cmp);
            counts.get(counts.len() / 2).copied()
        };
        Some(Self {
            instructions: of(|round| round.instructions)?,
            allocations: of(|round| round.allocations)?,
        })
    }

    fn line(&self) -> String {
        format!("{:.0} instructions, {:.2} allocations", self.instructions, self.allocations)
    }
}

/// What both runs of all builds have in common.
struct CountingSetup<'s> {
    /// The binary with the load generator.
    perf: &'s Path,
    folder: &'s Path,
    backends: PathBuf,
}

impl CountingSetup<'_> {
    /// Counts in two runs of `binary`.
    fn of_request(&self, binary: &Path, load: &CountedLoad) -> Result<RequestCounts> {
        let [short, long] = COUNTED.map(|requests| self.of_run(binary, load, requests));
        Ok(RequestCounts::between([short?, long?]))
    }

    fn of_run(&self, binary: &Path, load: &CountedLoad, requests: u32) -> Result<ServerCounts> {
        let [http_port, grpc_port, metrics_port] = loopback::free_ports()?;
        let arguments = [
            format!("--model-repository={}", self.folder.join("models").display()),
            format!("--backend-directory={}", self.backends.display()),
            "--cache-config=local,size=1048576".to_owned(),
            format!("--http-port={http_port}"),
            format!("--grpc-port={grpc_port}"),
            format!("--metrics-port={metrics_port}"),
        ];
        let server = CountedServer::start(binary, &arguments, self.folder)?;
        let port = if load.options.contains(&GRPC) { grpc_port } else { http_port };
        let csv = self.folder.join("row.csv");
        let mut command = Command::new(self.perf);
        command.args(["perf", "--model", load.model]).args(load.options);
        // Equal inputs, which a cache knows.
        command.args(["--input-data=zero", "--concurrency=1"]).arg(format!("--url=127.0.0.1:{port}"));
        command.arg(format!("--warmup-request-count={WARM_UP}")).arg(format!("--request-count={requests}"));
        process::output(command.arg("--csv").arg(&csv))?;
        let figures = Figures::from_csv(&fs::read_to_string(&csv)?)?;
        ensure!(figures.errors() == 0.0, "{}: {} requests failed", load.name, figures.errors());
        server.finish()
    }
}

fn write_models(repository: &Path) -> Result<()> {
    for (name, more) in MODELS {
        write_model(repository, name, &format!("backend: \"identity\"\n{more}"))?;
    }
    let mut steps = String::new();
    for tensors in CHAIN.windows(2) {
        steps += &format!(
            "step {{ model_name: \"plain\" model_version: -1 input_map {{ key: \"INPUT0\" value: \"{}\" }} \
             output_map {{ key: \"OUTPUT0\" value: \"{}\" }} }}\n",
            tensors[0], tensors[1]
        );
    }
    write_model(repository, "ensemble", &format!("platform: \"ensemble\"\nensemble_scheduling {{\n{steps}}}"))
}

fn write_model(repository: &Path, name: &str, more: &str) -> Result<()> {
    let folder = repository.join(name);
    files::make_folder(&folder.join("1"))?;
    let config = format!(
        "max_batch_size: 8\n\
         input [ {{ name: \"INPUT0\" data_type: TYPE_FP32 dims: [ 16 ] }} ]\n\
         output [ {{ name: \"OUTPUT0\" data_type: TYPE_FP32 dims: [ 16 ] }} ]\n{more}\n"
    );
    files::write(&folder.join("config.pbtxt"), config)
}

/// The rows: ours, and the earlier build if there is one.
fn table(rows: &[(&str, RequestCounts, Option<RequestCounts>)]) -> String {
    let compares = rows.iter().any(|(_, _, earlier)| earlier.is_some());
    let mut text = "| a request | instructions | allocations |".to_owned();
    text.push_str(if compares {
        " before | before | instructions, ratio |\n|---|---:|---:|---:|---:|---:|\n"
    } else {
        "\n|---|---:|---:|\n"
    });
    for (name, ours, earlier) in rows {
        let _ = write!(text, "| {name} | {:.0} | {:.2} |", ours.instructions, ours.allocations);
        if let Some(earlier) = earlier {
            let ratio = ours.instructions / earlier.instructions;
            let _ = write!(text, " {:.0} | {:.2} | {ratio:.4} |", earlier.instructions, earlier.allocations);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_costs_what_more_requests_add() {
        let server = |instructions, allocations| ServerCounts { instructions, allocations };
        let ours = RequestCounts::between([server(1_000_000, 5_000), server(81_000_000, 17_000)]);
        assert_eq!(ours.line(), "40000 instructions, 6.00 allocations");
        let other = |instructions, allocations| RequestCounts { instructions, allocations };
        let median = RequestCounts::median(&[other(3.0, 1.0), other(1.0, 3.0), other(2.0, 2.0)]).unwrap();
        assert_eq!((median.instructions, median.allocations), (2.0, 2.0));
        assert!(RequestCounts::median(&[]).is_none());
        let earlier = RequestCounts { instructions: 50_000.0, allocations: 7.0 };
        assert!(table(&[("HTTP", ours, None)]).ends_with("\n| HTTP | 40000 | 6.00 |\n"));
        let both = table(&[("HTTP", ours, Some(earlier))]);
        assert!(both.ends_with("\n| HTTP | 40000 | 6.00 | 50000 | 7.00 | 0.8000 |\n"), "{both}");
    }

    #[test]
    fn an_ensemble_has_three_steps() {
        let folder = tempfile::tempdir().unwrap();
        write_models(folder.path()).unwrap();
        let config = fs::read_to_string(folder.path().join("ensemble/config.pbtxt")).unwrap();
        assert_eq!(config.matches("model_name: \"plain\"").count(), CHAIN.len() - 1);
    }
}
