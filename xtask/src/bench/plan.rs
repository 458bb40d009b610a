//! The rows of the benchmark: which model, how it is called, by how many.

/// One row; every contender is asked for it.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) model: &'static str,
    pub(crate) protocol: Protocol,
    pub(crate) callers: u32,
    /// Whether a bare loop over the same model is a contender.
    pub(crate) bare: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Protocol {
    HttpJson,
    HttpBinary,
    Grpc,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Protocol::HttpJson => "http-json",
            Protocol::HttpBinary => "http-binary",
            Protocol::Grpc => "grpc",
        }
    }

    /// As options of `nereid perf`.
    pub(crate) fn options(self) -> [&'static str; 2] {
        match self {
            Protocol::HttpJson => ["--protocol=http", "--payload=json"],
            Protocol::HttpBinary => ["--protocol=http", "--payload=binary"],
            Protocol::Grpc => ["--protocol=grpc", "--payload=binary"],
        }
    }
}

/// Tiny requests, where the server is all the cost; a model that computes, where batching is; and large tensors,
/// where copies are.
pub(crate) fn rows() -> Vec<Row> {
    use Protocol::{Grpc, HttpBinary, HttpJson};
    let of = |model: &'static str, protocols: &[Protocol], counts: &[u32]| {
        let mut rows = Vec::new();
        for &protocol in protocols {
            for &callers in counts {
                let name = format!("{model} {} x{callers}", protocol.name());
                rows.push(Row { name, model, protocol, callers, bare: model == "conv" });
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
