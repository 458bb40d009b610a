//! The table of all targets.
use super::{configuration, forests, grpc, http, operators, python, pytorch};
use crate::FuzzTarget;

/// All targets.
pub static TARGETS: [FuzzTarget; 25] = [
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
    forests::XGBOOST_JSON,
    forests::XGBOOST_UBJSON,
    forests::LIGHTGBM,
    forests::TREELITE,
    pytorch::PACKAGE,
    pytorch::CALL_SPEC,
];

/// The target of that name.
pub fn find_target(name: &str) -> Option<&'static FuzzTarget> {
    TARGETS.iter().find(|target| target.name == name)
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
