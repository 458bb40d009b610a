//! Checks which crate of the workspace uses which: the table of the architecture.

use std::collections::BTreeSet;

use serde_json::Value;

/// Each crate, with the crates of the workspace that it uses in its normal and build dependencies, and may use in its
/// tests. A new entry is an architectural decision and needs a record in docs/adr.
const TABLE: &[(&str, &[&str])] = &[
    ("scheduling", &[]),
    ("proto", &[]),
    ("vocabulary", &[]),
    ("line-writer", &[]),
    ("forest", &[]),
    ("config", &["vocabulary", "scheduling", "proto"]),
    ("inference", &["vocabulary", "config", "scheduling", "proto"]),
    ("lifecycle", &["vocabulary", "scheduling"]),
    ("host", &["vocabulary", "config", "inference"]),
    ("executor", &["vocabulary", "config", "inference", "host", "scheduling", "proto"]),
    ("repository", &["vocabulary", "config", "inference", "host", "lifecycle", "proto"]),
    (
        "engine",
        &[
            "vocabulary",
            "config",
            "inference",
            "host",
            "executor",
            "repository",
            "scheduling",
            "lifecycle",
            "proto",
        ],
    ),
    ("backend-forest", &["vocabulary", "proto", "config", "forest", "inference"]),
    ("backend-image", &["vocabulary", "config", "inference"]),
    ("native-backend", &["vocabulary", "config", "inference", "proto"]),
    ("backend-onnx", &["vocabulary", "config", "inference", "native-backend", "proto"]),
    ("backend-openvino", &["vocabulary", "config", "inference", "native-backend", "proto"]),
    ("backend-pytorch", &["vocabulary", "config", "inference", "native-backend", "proto"]),
    ("backend-python", &["vocabulary", "config", "inference", "proto"]),
    ("shared-memory", &["vocabulary", "inference"]),
    ("object-stores", &["vocabulary", "inference"]),
    ("cache", &["vocabulary", "inference"]),
    ("c-api", &["vocabulary", "config", "inference", "proto"]),
    ("trace", &["vocabulary", "inference", "line-writer"]),
    ("kserve", &["vocabulary", "config", "inference", "engine", "shared-memory", "trace", "proto"]),
    (
        "assembly",
        &[
            "vocabulary",
            "inference",
            "host",
            "kserve",
            "backend-forest",
            "native-backend",
            "backend-image",
            "backend-onnx",
            "backend-openvino",
            "backend-python",
            "backend-pytorch",
            "c-api",
            "object-stores",
            "cache",
            "line-writer",
        ],
    ),
    (
        "in-process",
        &[
            "vocabulary",
            "config",
            "inference",
            "host",
            "repository",
            "engine",
            "kserve",
            "assembly",
            "c-api",
            "native-backend",
            "backend-onnx",
            "backend-openvino",
            "backend-pytorch",
            "object-stores",
            "cache",
            "proto",
        ],
    ),
    ("libtritonserver", &["in-process"]),
    (
        "frontend",
        &[
            "vocabulary",
            "config",
            "inference",
            "host",
            "repository",
            "engine",
            "kserve",
            "shared-memory",
            "trace",
            "proto",
        ],
    ),
    ("plot", &[]),
    ("client", &["proto"]),
    ("perf", &["client", "plot", "proto"]),
    ("recording", &["vocabulary", "client", "proto", "line-writer"]),
    ("tune", &["plot", "proto"]),
    ("check", &["vocabulary", "config", "inference", "host", "repository", "proto"]),
    (
        "server",
        &[
            "vocabulary",
            "config",
            "inference",
            "host",
            "repository",
            "engine",
            "kserve",
            "assembly",
            "in-process",
            "frontend",
            "backend-forest",
            "native-backend",
            "backend-onnx",
            "backend-openvino",
            "backend-pytorch",
            "c-api",
            "object-stores",
            "shared-memory",
            "trace",
            "line-writer",
            "check",
            "client",
            "perf",
            "recording",
            "tune",
            "proto",
        ],
    ),
    ("testing", &["vocabulary", "config", "inference", "host", "proto"]),
    // A crate of tests, whose targets are parsers of many crates.
    (
        "fuzz",
        &[
            "backend-python",
            "backend-pytorch",
            "config",
            "forest",
            "frontend",
            "inference",
            "object-stores",
            "proto",
            "server",
        ],
    ),
    ("xtask", &[]),
];

/// Crates whose tests compare them with another crate.
const COMPARED: &[(&str, &str)] = &[("check", "engine")];

/// Only tests may use it, of any crate.
const ONLY_FOR_TESTS: &str = "testing";

/// Dependencies that break the table, and entries of the table that no dependency needs, one line each. `packages` are those of `cargo metadata`.
pub(crate) fn broken(packages: &[Value]) -> Vec<String> {
    let mut broken = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = TABLE.iter().find(|(known, _)| *known == name) else {
            broken.push(format!("crate {name} is not in the table of layers"));
            continue;
        };
        let mut used_arrows = BTreeSet::new();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            if !TABLE.iter().any(|(known, _)| *known == used) {
                continue;
            }
            let for_tests = dependency["kind"].as_str() == Some("dev");
            if !for_tests {
                used_arrows.insert(used);
            }
            let only_in_tests = used == ONLY_FOR_TESTS || COMPARED.contains(&(name, used));
            if !(allowed.contains(&used) || for_tests && only_in_tests) {
                let kind = if for_tests { " in its tests" } else { "" };
                broken.push(format!("crate {name} must not use {used}{kind}"));
            }
        }
        let unused = allowed.iter().filter(|other| !used_arrows.contains(**other));
        broken.extend(unused.map(|other| {
            format!("crate {name} does not use {other}: the table of layers needs no such arrow")
        }));
    }
    broken
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, dependency: &str, kind: Option<&str>) -> Value {
        json!({"name": name, "dependencies": [
            {"name": dependency, "kind": kind}, {"name": "serde", "kind": null}]})
    }

    #[test]
    fn an_arrow_of_the_table_is_fine_and_must_be_there() {
        assert_eq!(broken(&[package("lifecycle", "scheduling", None)]).len(), 1);
        let both = json!({"name": "lifecycle", "dependencies": [
            {"name": "scheduling", "kind": null}, {"name": "vocabulary", "kind": null}]});
        assert!(broken(&[both]).is_empty());
        assert_eq!(
            broken(&[package("tune", "plot", Some("dev"))]),
            [
                "crate tune does not use plot: the table of layers needs no such arrow",
                "crate tune does not use proto: the table of layers needs no such arrow"
            ]
        );
    }

    #[test]
    fn an_arrow_upwards_is_named() {
        assert_eq!(
            broken(&[package("scheduling", "engine", None)]),
            ["crate scheduling must not use engine"]
        );
        assert_eq!(
            broken(&[package("plot", "engine", Some("dev"))]),
            ["crate plot must not use engine in its tests"]
        );
    }

    #[test]
    fn testing_is_for_tests() {
        assert!(broken(&[package("plot", "testing", Some("dev"))]).is_empty());
        assert_eq!(broken(&[package("plot", "testing", None)]).len(), 1);
    }

    #[test]
    fn a_crate_that_the_table_lacks_is_named() {
        assert_eq!(broken(&[json!({"name": "utils", "dependencies": []})]).len(), 1);
    }
}
