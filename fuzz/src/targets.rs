//! The targets.
//!
//! The bounds are those of the parsers as they are, with little room: a change that makes a parser need more must say
//! so here.
mod configuration;
mod grpc;
mod http;
mod operators;
mod python;

use bytes::Bytes;

use crate::FuzzTarget;

/// All targets.
pub static TARGETS: [FuzzTarget; 19] = [
    http::INFER,
    http::GENERATE,
    http::ROUTE,
    http::INFLATE,
    http::CERTIFICATE,
    grpc::INFER,
    grpc::MESSAGES,
    grpc::FRAMES,
    configuration::TEXT,
    configuration::JSON,
    configuration::MODEL,
    configuration::CACHED_ANSWER,
    python::MESSAGE,
    python::FRAMES,
    python::REQUIREMENTS,
    operators::URL,
    operators::PROFILE,
    operators::OPTIONS,
    operators::OPTIONS_FILE,
];

/// The input as text. What is not UTF-8 is replaced.
fn text(input: &[u8]) -> String {
    String::from_utf8_lossy(input).into_owned()
}

/// The first byte, as a setting of the target, and the rest.
fn setting(input: &[u8]) -> (usize, Bytes) {
    let (first, rest) = input.split_first().unwrap_or((&0, &[]));
    (usize::from(*first), Bytes::copy_from_slice(rest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_target_has_a_name_of_its_own_and_reasons() {
        let names: BTreeSet<_> = TARGETS.iter().map(|target| target.name).collect();
        assert_eq!(names.len(), TARGETS.len());
        for target in &TARGETS {
            assert!(!target.memory.reason.is_empty() && !target.work.reason.is_empty(), "{}", target.name);
        }
    }
}
