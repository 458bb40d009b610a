//! Checks which crate of the workspace uses which: the table of the architecture.

use std::collections::BTreeSet;

use serde_json::Value;

/// Each crate, with the crates of the workspace that it uses in its normal and build dependencies, and may use in its
/// tests. A new entry is an architectural decision and needs a record in docs/adr.
const TABLE: &[(&str, &[&str])] = &[
    ("scheduling", &[]),
    ("proto", &[]),
    ("inference", &["scheduling", "proto"]),
    ("lifecycle", &["inference", "scheduling"]),
    ("engine", &["inference", "scheduling", "lifecycle", "proto"]),
    ("backend-image", &["inference"]),
    ("backend-onnx", &["inference", "proto"]),
    ("backend-python", &["inference", "proto"]),
    ("shared-memory", &["inference"]),
    ("object-stores", &["inference"]),
    ("cache", &["inference"]),
    ("c-api", &["inference", "proto"]),
    (
        "in-process",
        &[
            "c-api",
            "proto",
            "inference",
            "engine",
            "backend-image",
            "backend-onnx",
            "backend-python",
            "object-stores",
            "cache",
            "frontend",
        ],
    ),
    ("libtritonserver", &["in-process"]),
    ("trace", &["inference"]),
    ("frontend", &["engine", "inference", "proto", "shared-memory", "trace"]),
    ("plot", &[]),
    ("perf", &["plot", "proto"]),
    ("recording", &["perf", "proto"]),
    ("tune", &["plot", "proto"]),
    ("check", &["engine", "inference", "proto"]),
    (
        "server",
        &[
            "proto",
            "inference",
            "engine",
            "backend-onnx",
            "check",
            "object-stores",
            "c-api",
            "in-process",
            "frontend",
            "perf",
            "recording",
            "shared-memory",
            "trace",
            "tune",
        ],
    ),
    ("testing", &["inference", "proto", "scheduling"]),
    // A crate of tests, whose targets are parsers of many crates.
    ("fuzz", &["backend-python", "frontend", "inference", "object-stores", "proto", "server"]),
    ("xtask", &[]),
];

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
            if !(allowed.contains(&used) || for_tests && used == ONLY_FOR_TESTS) {
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
        assert!(broken(&[package("lifecycle", "scheduling", None)]).len() == 1);
        let both = json!({"name": "lifecycle", "dependencies": [
            {"name": "scheduling", "kind": null}, {"name": "inference", "kind": null}]});
        assert!(broken(&[both]).is_empty());
        assert_eq!(
            broken(&[package("shared-memory", "inference", Some("dev"))]),
            ["crate shared-memory does not use inference: the table of layers needs no such arrow"]
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
        assert_eq!(broken(&[json!({"name": "nereid-utils", "dependencies": []})]).len(), 1);
    }
}
