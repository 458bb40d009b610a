//! What tensors in clients' shared memory cost: an identity of ONNX Runtime asked over both protocols, beside the same
//! graph over the same memory without a server.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::contenders::Contender;
use super::plan::{BenchProtocol, BenchRow};
use super::table::Figures;
use super::{BenchOptions, write};
use crate::console::heading;
use crate::process;
use crate::tools::runtime_library;
use crate::workspace::{self, cargo};

/// The models, and the bytes of their input and of their output.
const MODELS: [(&str, usize); 2] = [("large4", 4 << 20), ("large16", 16 << 20)];

/// The option of the server that lets clients register shared memory.
pub(super) const ALLOWED: &str = "--allow-client-shm=true";

/// The options of `nereid perf` for tensors in shared memory. Each output has at most so many bytes.
pub(super) fn perf_options(output_bytes: usize) -> [String; 2] {
    ["--shared-memory=system".to_owned(), format!("--output-shared-memory-size={output_bytes}")]
}

/// Measures, prints and writes the table. Returns true if every request to ours was answered.
pub(super) fn run(options: &BenchOptions, folder: &Path, server: &Path, library: &Path) -> Result<bool> {
    let bare = build_bare()?;
    let in_place = [ALLOWED.to_owned(), "--client-shm-in-place=true".to_owned()];
    let ours = |name, more: &[String]| Contender::ours_with(name, server, folder, library, more);
    let mut contenders = vec![ours("ours, copies", &in_place[..1])?, ours("ours, in place", &in_place)?];
    if let Some(packages) = &options.reference {
        // That release has no option for it.
        contenders.push(Contender::reference(packages, server, folder, &[])?);
    }
    let mut text =
        "| requests | contender | p50 us | p99 us | req/s | server us/req | p50 / bare |\n|---|---|"
            .to_owned();
    text.push_str(&"---:|".repeat(5));
    text.push('\n');
    let mut failed = 0.0;
    for (model, bytes) in MODELS {
        for protocol in [BenchProtocol::HttpBinary, BenchProtocol::Grpc] {
            let name = format!("{model} shm {}", protocol.name());
            if !name.contains(&options.filter) {
                continue;
            }
            heading(&name);
            let mut bare_times = Vec::new();
            let mut rounds = vec![Vec::new(); contenders.len()];
            for round in 0..options.rounds {
                bare_times.push(bare_p50_us(
                    &bare,
                    &folder.join(format!("ours/{model}/1/model.onnx")),
                    library,
                    bytes,
                    options,
                )?);
                println!("{:<16} p50 us {:.0}", "bare", bare_times[round]);
                for turn in 0..contenders.len() {
                    // As for the other rows: each round begins with another contender.
                    let index = (round + turn) % contenders.len();
                    let row =
                        BenchRow { name: name.clone(), model, protocol, callers: 1, rate: None, bare: false };
                    let figures =
                        contenders[index].measure_with(&row, options.seconds, &perf_options(bytes))?;
                    println!("{:<16} {}", contenders[index].name(), figures.line());
                    rounds[index].push(figures);
                }
            }
            bare_times.sort_by(f64::total_cmp);
            let bare_us = bare_times[bare_times.len() / 2];
            text.push_str(&format!("| {name} | bare | {bare_us:.0} | | | | 1.00 |\n"));
            failed += rounds[0].iter().chain(&rounds[1]).map(Figures::errors).sum::<f64>();
            for (contender, rounds) in contenders.iter().zip(&rounds) {
                text.push_str(&line(&name, &contender.name(), &Figures::medians(rounds), bare_us));
            }
        }
    }
    heading("results");
    print!("{text}");
    write(folder, "shared_memory.md", &text)?;
    Ok(failed == 0.0)
}

/// Builds the program that runs a graph over shared memory without a server.
fn build_bare() -> Result<PathBuf> {
    let package = ["build", "--release", "--package", "nereid-server", "--example", "bare_shared_memory"];
    process::run(&mut cargo(&package))?;
    Ok(workspace::target().join("release/examples/bare_shared_memory"))
}

fn bare_p50_us(
    bare: &Path,
    model: &Path,
    library: &Path,
    bytes: usize,
    options: &BenchOptions,
) -> Result<f64> {
    let mut command = Command::new(bare);
    command.arg("--model").arg(model).env(runtime_library::VARIABLE, library);
    command.args(["--bytes", &bytes.to_string(), "--seconds", &options.seconds.to_string()]);
    let printed = process::output(&mut command)?;
    let figure = printed.split_whitespace().find_map(|word| word.strip_prefix("p50_us="));
    figure.and_then(|text| text.parse().ok()).with_context(|| format!("the bare loop printed: {printed}"))
}

/// A line of the table.
fn line(row: &str, contender: &str, figures: &Figures, bare_us: f64) -> String {
    let of = |column: &str| figures.column(column).unwrap_or(f64::NAN);
    let p50 = of("p50_us");
    let mut text = format!("| {row} | {contender} | {p50:.0} | {:.0} |", of("p99_us"));
    writeln!(
        text,
        " {:.0} | {:.1} | {:.2} |",
        of("requests_per_second"),
        of("server_us_per_request"),
        p50 / bare_us
    )
    .expect("a string takes all");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_how_much_slower_than_the_bare_loop_a_request_is() {
        let csv = "requests_per_second,p50_us,p99_us,server_us_per_request\n1000,150,300,90\n";
        let text = line("row", "ours", &Figures::from_csv(csv).unwrap(), 100.0);
        assert_eq!(text, "| row | ours | 150 | 300 | 1000 | 90.0 | 1.50 |\n");
    }
}
