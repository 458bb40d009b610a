//! The CSV file of `-f`: the columns of `perf_analyzer` in its order, with whole microseconds.

use std::io::{self, Write};

use super::{ReportRow, six_digits};
use crate::load::Measured;
use crate::model::ModelTraits;
use crate::options::PerfOptions;
use crate::statistics::{ServerPhase, ServerStatistics};

/// Writes the file. Rows are in the order of throughput.
pub(crate) fn write(
    out: &mut dyn Write,
    options: &PerfOptions,
    traits: &ModelTraits,
    rows: &[ReportRow],
) -> io::Result<()> {
    let mut rows: Vec<&ReportRow> = rows.iter().filter(|row| row.good() > 0).collect();
    let throughput = |row: &ReportRow| row.point.measured.requests_per_second();
    rows.sort_by(|a, b| throughput(a).total_cmp(&throughput(b)));
    let shape = ReportShape {
        options,
        traits,
        // As perf_analyzer: all rows have these columns, or none has.
        has_statistics: rows.iter().all(|row| row.point.measured.statistics.is_some()),
    };
    let name = rows.first().map_or("Concurrency", |row| row.point().0);
    writeln!(out, "{name},{}", shape.headings().join(","))?;
    for row in rows {
        writeln!(out, "{},{}", six_digits(row.point().1), shape.fields(&row.point.measured).join(","))?;
    }
    out.flush()
}

/// The percentiles of latency that reports have, in ascending order.
pub(crate) fn percentiles(extra: Option<u8>) -> Vec<u8> {
    let mut percentiles: Vec<u8> = [50, 90, 95, 99].into_iter().chain(extra).collect();
    percentiles.sort_unstable();
    percentiles.dedup();
    percentiles
}

/// Which columns a file has.
struct ReportShape<'r> {
    options: &'r PerfOptions,
    traits: &'r ModelTraits,
    has_statistics: bool,
}

impl ReportShape<'_> {
    /// All headings but the first.
    fn headings(&self) -> Vec<String> {
        let mut headings = vec!["Inferences/Second"];
        if self.traits.is_decoupled {
            headings.push("Response Throughput");
        }
        headings.push("Client Send");
        if self.has_statistics {
            headings.extend([
                "Network+Server Send/Recv",
                "Server Queue",
                "Server Compute Input",
                "Server Compute Infer",
                "Server Compute Output",
            ]);
            if self.traits.has_cache {
                headings.extend(["Server Cache Hit", "Server Cache Miss"]);
            }
        }
        headings.push("Client Recv");
        let mut headings: Vec<String> = headings.into_iter().map(str::to_owned).collect();
        let percentiles = percentiles(self.options.percentile);
        headings.extend(percentiles.iter().map(|percentile| format!("p{percentile} latency")));
        if self.options.reports.verbose_csv {
            let average = self.options.percentile.is_none().then_some("Avg latency");
            let more = average.into_iter().chain(["request/response", "response wait"]);
            headings.extend(more.map(str::to_owned));
        }
        headings
    }

    /// A field for each heading.
    fn fields(&self, measured: &Measured) -> Vec<String> {
        let count = measured.latencies.count().max(1);
        let mean_micros = |time: std::time::Duration| (time.as_micros() / u128::from(count)) as u64;
        let (send, receive) = (mean_micros(measured.send_time), mean_micros(measured.receive_time));
        let latency = measured.latencies.mean().as_micros() as u64;
        let mut fields = vec![six_digits(measured.requests_per_second() * self.options.batch as f64)];
        if self.traits.is_decoupled {
            fields.push(six_digits(measured.responses_per_second()));
        }
        fields.push(send.to_string());
        if let Some(statistics) = measured.statistics.as_ref().filter(|_| self.has_statistics) {
            let wait = latency.saturating_sub(send + receive);
            fields.extend(self.of_server(statistics, wait).iter().map(u64::to_string));
        }
        fields.push(receive.to_string());
        for percentile in percentiles(self.options.percentile) {
            let quantile = measured.latencies.quantile(f64::from(percentile) / 100.0);
            fields.push(quantile.as_micros().to_string());
        }
        if self.options.reports.verbose_csv {
            let average = self.options.percentile.is_none().then_some(latency);
            let busy = send + receive;
            let more = average.into_iter().chain([busy, latency.saturating_sub(busy)]);
            fields.extend(more.map(|micros| micros.to_string()));
        }
        fields
    }

    /// The columns of the server. The network has what remains of the client's wait.
    fn of_server(&self, statistics: &ServerStatistics, wait: u64) -> Vec<u64> {
        let mean = |phase| statistics.model.time(phase).mean_micros();
        let cache = [mean(ServerPhase::CacheHit), mean(ServerPhase::CacheMiss)];
        let queue = mean(ServerPhase::Queue);
        let accounted = queue + statistics.model.compute().mean_micros() + cache.iter().sum::<u64>();
        let mut fields = vec![
            wait.saturating_sub(accounted),
            queue,
            mean(ServerPhase::ComputeInput),
            mean(ServerPhase::ComputeInfer),
            mean(ServerPhase::ComputeOutput),
        ];
        if self.traits.has_cache {
            fields.extend(cache);
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;

    fn written(line: &str, traits: &ModelTraits, rows: &[ReportRow]) -> Vec<Vec<String>> {
        let mut out = Vec::new();
        write(&mut out, &samples::options(line), traits, rows).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
    }

    fn row(completed: u64) -> ReportRow {
        let mut row = samples::row();
        row.point.measured.completed = completed;
        row.point.measured.statistics = Some(ServerStatistics::default());
        row
    }

    #[test]
    fn the_columns_are_those_of_perf_analyzer() {
        let lines = written("-m m -b 2", &ModelTraits::default(), &[row(1000)]);
        let headings = "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,\
                        Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,p50 latency,\
                        p90 latency,p95 latency,p99 latency";
        assert_eq!(lines[0].join(","), headings);
        assert_eq!(lines[1].join(","), "4,1000,5,243,0,0,0,0,2,250,250,250,250");
    }

    #[test]
    fn more_columns_stand_where_perf_analyzer_has_them() {
        let traits = ModelTraits { is_decoupled: true, has_cache: true, ..ModelTraits::default() };
        let lines = written("-m m -f x --verbose-csv --percentile 92", &traits, &[row(1000)]);
        let headings = "Concurrency,Inferences/Second,Response Throughput,Client Send,Network+Server Send/Recv,\
                        Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output,\
                        Server Cache Hit,Server Cache Miss,Client Recv,p50 latency,p90 latency,p92 latency,\
                        p95 latency,p99 latency,request/response,response wait";
        assert_eq!(lines[0].join(","), headings);
        assert_eq!(lines[1].len(), lines[0].len());
        assert_eq!(lines[1][2], "1500");
        assert_eq!(lines[1][17..], ["7", "243"]);
        let lines = written("-m m -f x --verbose-csv", &ModelTraits::default(), &[row(1000)]);
        assert_eq!(lines[0][13..], ["Avg latency", "request/response", "response wait"]);
        assert_eq!(lines[1][13..], ["250", "7", "243"]);
    }

    #[test]
    fn a_server_without_statistics_has_no_columns() {
        let lines = written("-m m", &ModelTraits::default(), &[samples::row()]);
        assert_eq!(lines[0][..4], ["Concurrency", "Inferences/Second", "Client Send", "Client Recv"]);
        assert_eq!(lines[0].len(), lines[1].len());
    }

    #[test]
    fn rows_are_in_the_order_of_throughput() {
        let lines = written("-m m", &ModelTraits::default(), &[row(900), row(10), row(500)]);
        let rates: Vec<&str> = lines[1..].iter().map(|line| line[1].as_str()).collect();
        assert_eq!(rates, ["5", "250", "450"]);
    }
}
