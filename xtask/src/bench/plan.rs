//! The rows of the benchmark: the model, the protocol, the number of callers.

/// One row. Every contender is measured for it.
pub(crate) struct BenchRow {
    pub(crate) name: String,
    pub(crate) model: &'static str,
    pub(crate) protocol: BenchProtocol,
    pub(crate) callers: u32,
    /// Requests per second, due at random times; `None`: each caller sends its next request when it has its answer.
    pub(crate) rate: Option<u32>,
    /// Whether a bare loop over the same model is a contender.
    pub(crate) bare: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum BenchProtocol {
    HttpJson,
    HttpBinary,
    Grpc,
}

impl BenchProtocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            BenchProtocol::HttpJson => "http-json",
            BenchProtocol::HttpBinary => "http-binary",
            BenchProtocol::Grpc => "grpc",
        }
    }

    /// The row as options of `nereid perf`.
    pub(crate) fn options(self) -> [&'static str; 2] {
        match self {
            BenchProtocol::HttpJson => ["--protocol=http", "--payload=json"],
            BenchProtocol::HttpBinary => ["--protocol=http", "--payload=binary"],
            BenchProtocol::Grpc => ["--protocol=grpc", "--payload=binary"],
        }
    }
}

/// Tiny requests, for the cost of the server; a model that computes, for the cost of batching; and large tensors, for
/// the cost of copies.
pub(crate) fn rows() -> Vec<BenchRow> {
    use BenchProtocol::{Grpc, HttpBinary, HttpJson};
    let of = |model: &'static str, protocols: &[BenchProtocol], counts: &[u32]| {
        let mut rows = Vec::new();
        for &protocol in protocols {
            for &callers in counts {
                let name = format!("{model} {} x{callers}", protocol.name());
                rows.push(BenchRow { name, model, protocol, callers, rate: None, bare: model == "conv" });
            }
        }
        rows
    };
    let mut rows = of("tiny", &[HttpJson, Grpc], &[1, 16, 64]);
    rows.extend(of("plugin", &[HttpJson, Grpc], &[1, 16, 64]));
    rows.extend(of("tiny_sequence", &[HttpJson, Grpc], &[16, 64]));
    rows.extend(of("conv", &[HttpBinary, Grpc], &[16, 32]));
    rows.extend(of("large4", &[HttpBinary, Grpc], &[1, 4]));
    rows.extend(of("large16", &[HttpBinary, Grpc], &[1, 4]));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let rows = rows();
        let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), rows.len());
        assert!(names.contains(&"tiny http-json x16"));
    }
}
