//! A row of the benchmark: the model, the protocol, the number of callers.

/// One row. Every contender is measured for it.
pub(super) struct BenchRow {
    pub(super) name: String,
    pub(super) model: &'static str,
    pub(super) protocol: BenchProtocol,
    pub(super) callers: u32,
    /// Requests per second, due at random times; `None`: each caller sends its next request when it has its answer.
    pub(super) rate: Option<u32>,
}

impl BenchRow {
    /// A row whose callers each send their next request when they have their answer.
    pub(super) fn closed_loop(
        name: String,
        model: &'static str,
        protocol: BenchProtocol,
        callers: u32,
    ) -> BenchRow {
        BenchRow { name, model, protocol, callers, rate: None }
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum BenchProtocol {
    HttpJson,
    HttpBinary,
    Grpc,
}

impl BenchProtocol {
    pub(super) fn name(self) -> &'static str {
        match self {
            BenchProtocol::HttpJson => "http-json",
            BenchProtocol::HttpBinary => "http-binary",
            BenchProtocol::Grpc => "grpc",
        }
    }

    /// The row as options of `nereid perf`.
    pub(super) fn options(self) -> [&'static str; 2] {
        match self {
            BenchProtocol::HttpJson => ["--protocol=http", "--payload=json"],
            BenchProtocol::HttpBinary => ["--protocol=http", "--payload=binary"],
            BenchProtocol::Grpc => ["--protocol=grpc", "--payload=binary"],
        }
    }
}
