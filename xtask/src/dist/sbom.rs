//! The parts that a build contains: the crates it depends on. As a list in CycloneDX's format (ECMA-424), which scanners read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::process;
use crate::workspace::{self, cargo};

/// What is built: the server, and the library with the C interface.
const ROOTS: [&str; 2] = ["server", "libtritonserver"];

/// A crate from a registry.
pub(super) struct BuiltCrate {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) licence: Option<String>,
    /// The folder of its sources.
    pub(super) folder: PathBuf,
    /// SHA-256 of the archive in the registry.
    checksum: Option<String>,
    /// The names and versions of the crates that it uses.
    uses: Vec<(String, String)>,
}

/// The crates in a build for this platform, by name.
pub(super) fn parts() -> Result<Vec<BuiltCrate>> {
    let host = workspace::host()?;
    let mut command = cargo(&["metadata", "--format-version", "1", "--locked", "--filter-platform", &host]);
    let metadata: Value =
        serde_json::from_str(&process::output(&mut command)?).context("cargo metadata is not JSON")?;
    let packages: BTreeMap<&str, &Value> = list(&metadata["packages"], "id").collect();
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"]["nodes"], "id").collect();
    let mut open: Vec<&str> = packages
        .iter()
        .filter(|(_, package)| ROOTS.iter().any(|root| package["name"] == *root))
        .map(|(id, _)| *id)
        .collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(used(nodes.get(id).context("a crate is not in the graph")?));
        }
    }
    let checksums = checksums()?;
    let part = |id: &&str| {
        let package = packages.get(id).context("a crate has no description")?;
        let (name, version) = named(package);
        let uses = used(nodes[id]).filter_map(|id| packages.get(id).map(|package| named(package)));
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap_or_default());
        Ok(BuiltCrate {
            licence: package["license"].as_str().map(str::to_owned),
            folder: manifest.parent().context("a manifest has no folder")?.to_owned(),
            checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
            uses: uses.collect(),
            name,
            version,
        })
    };
    // Crates of the workspace have no source.
    found.iter().filter(|id| packages[**id]["source"].is_string()).map(part).collect()
}

/// The crates that a crate links with; those of its build scripts and tests are not in the build.
fn used(node: &Value) -> impl Iterator<Item = &str> {
    let dependencies = node["deps"].as_array().into_iter().flatten();
    let linked = dependencies.filter(|dependency| {
        let mut kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
        kinds.any(|kind| kind["kind"].is_null())
    });
    linked.filter_map(|dependency| dependency["pkg"].as_str())
}

fn named(package: &Value) -> (String, String) {
    let text = |member: &str| package[member].as_str().unwrap_or_default().to_owned();
    (text("name"), text("version"))
}

fn list<'a>(values: &'a Value, key: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let values = values.as_array().into_iter().flatten();
    values.filter_map(move |value| Some((value[key].as_str()?, value)))
}

/// The checksums in `Cargo.lock`, by name and version.
fn checksums() -> Result<BTreeMap<(String, String), String>> {
    let lock = fs::read_to_string(workspace::root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    Ok(checksums_in(&lock))
}

fn checksums_in(lock: &str) -> BTreeMap<(String, String), String> {
    let packages = lock.split("[[package]]").skip(1);
    let found = packages.filter_map(|package| {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
            Some(line.trim_matches('"').to_owned())
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    });
    found.collect()
}

/// The list of the parts of a server with this version.
pub(super) fn text(parts: &[BuiltCrate], version: &str) -> Result<String> {
    let reference = |name: &str, version: &str| format!("pkg:cargo/{name}@{version}");
    let components = parts.iter().map(|part| {
        let url = reference(&part.name, &part.version);
        let mut component = json!({
            "type": "library", "bom-ref": url, "name": part.name, "version": part.version, "purl": url,
        });
        if let Some(licence) = &part.licence {
            // Old manifests separate alternatives by a slash.
            component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
        }
        if let Some(checksum) = &part.checksum {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        component
    });
    let known: BTreeSet<_> = parts.iter().map(|part| (&part.name, &part.version)).collect();
    let dependencies = parts.iter().map(|part| {
        let uses = part.uses.iter().filter(|(name, version)| known.contains(&(name, version)));
        let uses: BTreeSet<_> = uses.map(|(name, version)| reference(name, version)).collect();
        json!({ "ref": reference(&part.name, &part.version), "dependsOn": uses })
    });
    let list = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application", "bom-ref": "nereid", "name": "nereid", "version": version,
            "licenses": [{ "expression": "Apache-2.0" }],
        } },
        "components": components.collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&list)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_belong_to_a_name_and_a_version() {
        let lock = "[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\
                    source = \"registry\"\nchecksum = \"ab\"\n";
        let found = checksums_in(lock);
        assert_eq!(found.len(), 1);
        assert_eq!(found[&("a".to_owned(), "1.0.0".to_owned())], "ab");
    }

    #[test]
    fn a_list_names_each_part_its_licence_and_what_it_uses() {
        let part = |name: &str, uses: &[(&str, &str)]| BuiltCrate {
            name: name.into(),
            version: "1.0.0".into(),
            licence: Some("MIT/Apache-2.0".into()),
            folder: PathBuf::new(),
            checksum: Some("ab".into()),
            uses: uses.iter().map(|(name, version)| ((*name).into(), (*version).into())).collect(),
        };
        let parts = [part("a", &[("b", "1.0.0"), ("of the workspace", "0.1.0")]), part("b", &[])];
        let list: Value = serde_json::from_str(&text(&parts, "0.1.0").unwrap()).unwrap();
        assert_eq!(list["components"][0]["purl"], "pkg:cargo/a@1.0.0");
        assert_eq!(list["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(list["components"][0]["hashes"][0]["content"], "ab");
        assert_eq!(list["dependencies"][0]["dependsOn"], json!(["pkg:cargo/b@1.0.0"]));
    }
}
