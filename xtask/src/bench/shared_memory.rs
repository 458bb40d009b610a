//! What tensors in clients' shared memory cost: an identity of ONNX Runtime asked over both protocols, beside the same
//! graph over the same memory without a server.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::row::{BenchProtocol, BenchRow};
use super::server_contender::ServerContender;
use super::setup::BenchSetup;
use super::table::{Figures, cells, median, table_head};
use super::turns::turns;
use super::{bare_programs, results};
use crate::console::heading;
use crate::process;
use crate::tools::runtime_library;

/// The models, and the bytes of their input and of their output.
const MODELS: [(&str, usize); 2] = [("large4", 4 << 20), ("large16", 16 << 20)];

/// The option of the server that lets clients register shared memory.
pub(super) const ALLOWED: &str = "--allow-client-shm=true";

/// The options of `nereid perf` for tensors in shared memory. Each output has at most so many bytes.
pub(super) fn perf_options(output_bytes: usize) -> [String; 2] {
    ["--shared-memory=system".to_owned(), format!("--output-shared-memory-size={output_bytes}")]
}

/// Measures, prints and writes the table. Returns true if every request to ours was answered.
pub(super) fn run(setup: &BenchSetup) -> Result<bool> {
    let bare = bare_programs::build("server", "bare_shared_memory")?;
    let in_place = [ALLOWED.to_owned(), "--client-shm-in-place=true".to_owned()];
    let ours = |name, more: &[String]| ServerContender::ours(setup, name, more);
    let mut contenders = vec![ours("ours, copies", &in_place[..1])?, ours("ours, in place", &in_place)?];
    // That release has no option for it.
    contenders.extend(ServerContender::reference(setup, "reference", &[])?);
    let numbers = ["p50 us", "p99 us", "req/s", "server us/req", "p50 / bare"];
    let mut text = table_head(&["requests", "contender"], &numbers);
    let mut failed = 0.0;
    for (model, bytes) in MODELS {
        for protocol in [BenchProtocol::HttpBinary, BenchProtocol::Grpc] {
            let row = BenchRow::closed_loop(format!("{model} shm {}", protocol.name()), model, protocol, 1);
            if !setup.options.wants(&row.name) {
                continue;
            }
            heading(&row.name);
            let mut bare_times = Vec::new();
            let mut rounds = vec![Vec::new(); contenders.len()];
            for round in 0..setup.options.rounds {
                let bare_us = bare_p50_us(setup, &bare, model, bytes)?;
                println!("{:<16} p50 us {bare_us:.0}", "bare");
                bare_times.push(bare_us);
                for index in turns(round, contenders.len()) {
                    let contender = &contenders[index];
                    let figures =
                        contender.measure_with(&row, setup.options.seconds, &perf_options(bytes))?;
                    println!("{:<16} {}", contender.name, figures.line());
                    rounds[index].push(figures);
                }
            }
            let bare_us = median(bare_times);
            text.push_str(&format!("| {} | bare | {bare_us:.0} | | | | 1.00 |\n", row.name));
            failed += rounds[0].iter().chain(&rounds[1]).map(Figures::errors).sum::<f64>();
            for (contender, rounds) in contenders.iter().zip(&rounds) {
                text.push_str(&line(&row.name, contender.name, &Figures::medians(rounds), bare_us));
            }
        }
    }
    results::show("shared_memory.md", &text)?;
    Ok(failed == 0.0)
}

/// The median time of a request to a program that runs the graph over shared memory without a server.
fn bare_p50_us(setup: &BenchSetup, program: &Path, model: &str, bytes: usize) -> Result<f64> {
    let mut command = Command::new(program);
    command.arg("--model").arg(setup.folder.join(format!("ours/{model}/1/model.onnx")));
    command.env(runtime_library::VARIABLE, &setup.library);
    command.args(["--bytes", &bytes.to_string(), "--seconds", &setup.options.seconds.to_string()]);
    bare_programs::figure(&process::output(&mut command)?, "p50_us")
}

/// A line of the table.
fn line(row: &str, contender: &str, figures: &Figures, bare_us: f64) -> String {
    let of = |column: &str| figures.column(column).unwrap_or(f64::NAN);
    let p50 = of("p50_us");
    let numbers = [
        (p50, 0),
        (of("p99_us"), 0),
        (of("requests_per_second"), 0),
        (of("server_us_per_request"), 1),
        (p50 / bare_us, 2),
    ];
    format!("| {row} | {contender} |{}", cells(&numbers))
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
