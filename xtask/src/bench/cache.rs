//! What the response cache costs and saves: a hit beside reading the same request, a small hit beside an execution, and a
//! stream of requests that never repeat beside the same stream without a cache.

use anyhow::Result;

use super::row::{BenchProtocol, BenchRow};
use super::server_contender::ServerContender;
use super::setup::BenchSetup;
use super::table::{Figures, cells, table_head};
use super::turns::turns;
use super::{results, shared_memory};
use crate::console::heading;

/// Bytes of the cache. Every answer to an equal request fits.
const LARGE_CACHE: u64 = 256 << 20;
/// Bytes of the cache for requests that never repeat: they displace each other.
const SMALL_CACHE: u64 = 1 << 20;

/// A model, and how many callers ask it.
struct CacheRow {
    model: &'static str,
    cached: &'static str,
    callers: u32,
    requests: CacheRequests,
}

/// What the callers ask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CacheRequests {
    Equal,
    /// Their tensors lie in shared memory of the client.
    EqualInSharedMemory,
    /// Each request differs from all others.
    Different,
}

use CacheRequests::{Different, Equal, EqualInSharedMemory};

const fn row(model: &'static str, cached: &'static str, callers: u32, requests: CacheRequests) -> CacheRow {
    CacheRow { model, cached, callers, requests }
}

const ROWS: [CacheRow; 9] = [
    row("read_1k", "read_1k_cached", 1, Equal),
    row("read_600k", "read_600k_cached", 1, Equal),
    row("read_4m", "read_4m_cached", 1, Equal),
    row("read_16m", "read_16m_cached", 1, Equal),
    row("read_600k", "read_600k_cached", 1, EqualInSharedMemory),
    row("read_4m", "read_4m_cached", 1, EqualInSharedMemory),
    row("read_16m", "read_16m_cached", 1, EqualInSharedMemory),
    row("small", "small_cached", 64, Equal),
    row("small", "small_cached", 64, Different),
];
/// The bytes of the 16 numbers that each model answers.
const OUTPUT_BYTES: usize = 64;

/// Measures, prints and writes the table. Returns true if every request to ours was answered.
pub(super) fn run(setup: &BenchSetup) -> Result<bool> {
    let setup = setup.with_models("caches", "bench/caches.py")?;
    let mut text = head();
    let mut failed = 0.0;
    for row in &ROWS {
        for protocol in [BenchProtocol::HttpBinary, BenchProtocol::Grpc] {
            let name = row.name(protocol);
            if !setup.options.wants(&name) {
                continue;
            }
            heading(&name);
            let bytes = if row.requests == Different { SMALL_CACHE } else { LARGE_CACHE };
            let more = [format!("--cache-config=local,size={bytes}"), shared_memory::ALLOWED.to_owned()];
            // Started for each row: the reference may not survive one.
            let mut contenders = vec![ServerContender::ours(&setup, "ours", &more)?];
            contenders.extend(ServerContender::reference(&setup, "reference", &more[..1])?);
            let mut rounds = vec![(Vec::new(), Vec::new()); contenders.len()];
            let mut has_failed = false;
            for round in 0..setup.options.rounds {
                for index in turns(round, contenders.len()) {
                    if index > 0 && has_failed {
                        continue;
                    }
                    match row.measure(&contenders[index], protocol, &setup) {
                        Ok((without, with)) => {
                            rounds[index].0.push(without);
                            rounds[index].1.push(with);
                        }
                        // Its rounds until then count.
                        Err(error) if index > 0 => {
                            println!("{}: {error:#}", contenders[index].name);
                            has_failed = true;
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            let ours = &rounds[0];
            failed += ours.0.iter().chain(&ours.1).map(Figures::errors).sum::<f64>();
            for (contender, (without, with)) in contenders.iter().zip(&rounds) {
                let medians = (Figures::medians(without), Figures::medians(with));
                text.push_str(&line(&name, contender.name, &medians.0, &medians.1));
            }
        }
    }
    results::show("cache.md", &text)?;
    Ok(failed == 0.0)
}

impl CacheRow {
    fn name(&self, protocol: BenchProtocol) -> String {
        let kind = match self.requests {
            Equal => "equal",
            EqualInSharedMemory => "equal shm",
            Different => "different",
        };
        format!("{kind} {} {} x{}", self.model, protocol.name(), self.callers)
    }

    /// Makes a measurement without the cache, and one with it.
    fn measure(
        &self,
        contender: &ServerContender,
        protocol: BenchProtocol,
        setup: &BenchSetup,
    ) -> Result<(Figures, Figures)> {
        let more = match self.requests {
            Equal => Vec::new(),
            EqualInSharedMemory => shared_memory::perf_options(OUTPUT_BYTES).to_vec(),
            Different => vec![format!("--input-data={}", setup.folder.join("different.json").display())],
        };
        let of = |model: &'static str| {
            let row = BenchRow::closed_loop(self.name(protocol), model, protocol, self.callers);
            contender.measure_with(&row, setup.options.seconds, &more)
        };
        let (without, with) = (of(self.model)?, of(self.cached)?);
        println!("{:<12} without: {}", contender.name, without.line());
        println!("{:<12} with:    {}", "", with.line());
        Ok((without, with))
    }
}

fn head() -> String {
    let numbers = [
        "without p50 us",
        "with p50 us",
        "added us",
        "without req/s",
        "with req/s",
        "ratio",
        "without server us/req",
        "with server us/req",
        "ratio",
    ];
    table_head(&["requests", "server"], &numbers)
}

/// A line of the table.
fn line(row: &str, contender: &str, without: &Figures, with: &Figures) -> String {
    let both = |column: &str| {
        let of = |figures: &Figures| figures.column(column).unwrap_or(f64::NAN);
        (of(without), of(with))
    };
    let ((p50, p50_with), (rate, rate_with)) = (both("p50_us"), both("requests_per_second"));
    let (cost, cost_with) = both("server_us_per_request");
    let numbers = [
        (p50, 0),
        (p50_with, 0),
        (p50_with - p50, 0),
        (rate, 0),
        (rate_with, 0),
        (rate_with / rate, 2),
        (cost, 1),
        (cost_with, 1),
        (cost_with / cost, 2),
    ];
    format!("| {row} | {contender} |{}", cells(&numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let names =
            ROWS.iter().flat_map(|row| [BenchProtocol::HttpBinary, BenchProtocol::Grpc].map(|p| row.name(p)));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(names.contains(&"different small grpc x64".to_owned()));
    }

    #[test]
    fn a_line_shows_what_the_cache_adds() {
        let figures = |p50: u32, cost: u32| {
            let csv = format!("requests_per_second,p50_us,server_us_per_request\n1000,{p50},{cost}\n");
            Figures::from_csv(&csv).unwrap()
        };
        let text = line("row", "ours", &figures(100, 10), &figures(130, 5));
        assert_eq!(text, "| row | ours | 100 | 130 | 30 | 1000 | 1000 | 1.00 | 10.0 | 5.0 | 0.50 |\n");
    }
}
