//! Checks `docs/life_of_a_request.toml`: the way of a request, hop by hop, and the table of it in `ARCHITECTURE.md`.
//!
//! The gate finds each function of the way and counts what a reader must know to follow it: hops, files, types of the
//! workspace that these functions name, and traits that they are called through. The limits in the file may only
//! become lower.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::exception_list::Upkeep;
use super::function_use::{self, FunctionUse};

const LIFE: &str = "docs/life_of_a_request.toml";
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// The first line of the table in the architecture.
const HEADING: &str = "| hop | what happens | where | hands on |";
const COMMAND: &str = "cargo xtask gates --write";

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Life {
    limits: BTreeMap<String, usize>,
    hop: Vec<Hop>,
}

/// One part of the way, in one room.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hop {
    happens: String,
    hands_on: String,
    place: Vec<HopPlace>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HopPlace {
    file: String,
    /// `name` or `Owner::name`. The first is where a reader begins.
    functions: Vec<String>,
}

/// Violations, one line each. `sources`: all files of the product in Rust, with their texts. `types`: the names of
/// its types.
///
/// # Errors
/// A file cannot be read, or a table not be written.
pub(super) fn broken(
    root: &Path,
    sources: &[(String, String)],
    types: &BTreeSet<String>,
    upkeep: Upkeep,
) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join(LIFE)).with_context(|| format!("cannot read {LIFE}"))?;
    let life: Life = toml::from_str(&text).with_context(|| format!("in {LIFE}"))?;
    let way = Way::of(&life, sources, types)?;
    if !way.missing.is_empty() {
        return Ok(way.missing);
    }
    let (mut broken, lower) = way.compare(&life.limits);
    match upkeep {
        Upkeep::Write if lower != life.limits => {
            fs::write(root.join(LIFE), with_limits(&text, &lower))?;
        }
        Upkeep::Write => {}
        Upkeep::Report => broken.extend(too_high(&life.limits, &lower)),
    }
    let path = root.join(ARCHITECTURE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {ARCHITECTURE}"))?;
    let renewed = with_table(&page, &way.table(&life))
        .with_context(|| format!("{ARCHITECTURE} has no line '{HEADING}'"))?;
    match upkeep {
        _ if renewed == page => {}
        Upkeep::Write => fs::write(&path, renewed).with_context(|| format!("cannot write {ARCHITECTURE}"))?,
        Upkeep::Report => {
            broken.push(format!("{ARCHITECTURE}: its table of hops is not what {LIFE} says: {COMMAND}"));
        }
    }
    Ok(broken)
}

/// What a reader meets on the way.
struct Way {
    hops: usize,
    functions: usize,
    files: BTreeSet<String>,
    types: BTreeSet<String>,
    traits: BTreeSet<String>,
    /// What the file names and the sources do not have, each with what to write instead.
    missing: Vec<String>,
}

impl Way {
    fn of(life: &Life, sources: &[(String, String)], types: &BTreeSet<String>) -> Result<Self> {
        let mut way = Self {
            hops: life.hop.len(),
            functions: 0,
            files: BTreeSet::new(),
            types: BTreeSet::new(),
            traits: BTreeSet::new(),
            missing: Vec::new(),
        };
        for (number, hop) in (1..).zip(&life.hop) {
            for place in &hop.place {
                way.files.insert(place.file.clone());
                for function in &place.functions {
                    way.functions += 1;
                    match used_at(sources, &place.file, function)? {
                        Some(used) => way.add(used, types),
                        None => way.missing.push(missing(sources, number, &place.file, function)?),
                    }
                }
            }
        }
        Ok(way)
    }

    fn add(&mut self, used: FunctionUse, types: &BTreeSet<String>) {
        self.traits.extend(used.trait_name.filter(|name| types.contains(name)));
        self.types.extend(used.names.into_iter().filter(|name| types.contains(name)));
    }

    /// The figures, by the names that they have in the file.
    fn figures(&self) -> [(&'static str, usize); 4] {
        [
            ("hops", self.hops),
            ("files", self.files.len()),
            ("types", self.types.len()),
            ("traits", self.traits.len()),
        ]
    }

    /// What exceeds its limit, and the limits that the sources need.
    fn compare(&self, limits: &BTreeMap<String, usize>) -> (Vec<String>, BTreeMap<String, usize>) {
        let mut lower = limits.clone();
        let mut broken = Vec::new();
        for (name, count) in self.figures() {
            let limit = lower.entry(name.to_owned()).or_insert(count);
            if count > *limit {
                let named = match name {
                    "types" => self.types.iter().cloned().collect::<Vec<_>>().join(", "),
                    "traits" => self.traits.iter().cloned().collect::<Vec<_>>().join(", "),
                    "files" => self.files.iter().cloned().collect::<Vec<_>>().join(", "),
                    _ => String::new(),
                };
                broken.push(format!(
                    "the life of a request has {count} {name}, and the limit in {LIFE} is {limit}. {named}"
                ));
            }
            *limit = count.min(*limit);
        }
        (broken, lower)
    }

    fn table(&self, life: &Life) -> String {
        let mut table = format!("{HEADING}\n|---:|---|---|---|\n");
        for (number, hop) in (1..).zip(&life.hop) {
            let places: Vec<String> = hop.place.iter().map(shown).collect();
            table += &format!("| {number} | {} | {} | {} |\n", hop.happens, places.join(", "), hop.hands_on);
        }
        let traits: Vec<String> = self.traits.iter().map(|name| format!("`{name}`")).collect();
        table += &format!(
            "| {} | in all | {} functions in {} files name {} types of the workspace | {} traits are between: {} |\n",
            self.hops,
            self.functions,
            self.files.len(),
            self.types.len(),
            self.traits.len(),
            traits.join(", ")
        );
        table
    }
}

/// A place with the function that a reader begins with.
fn shown(place: &HopPlace) -> String {
    let file = place.file.strip_prefix("crates/").unwrap_or(&place.file);
    let first = place.functions.first().map_or("", String::as_str);
    format!("`{file}` (`{first}`)")
}

/// What a function uses, if the file has it.
fn used_at(sources: &[(String, String)], file: &str, function: &str) -> Result<Option<FunctionUse>> {
    let Some((_, text)) = sources.iter().find(|(path, _)| path == file) else { return Ok(None) };
    let parsed = syn::parse_file(text).with_context(|| format!("{file} is no Rust"))?;
    Ok(function_use::find(&parsed.items, function))
}

/// What to write instead of a function that is not where the file says.
fn missing(sources: &[(String, String)], hop: usize, file: &str, function: &str) -> Result<String> {
    let name = function.rsplit("::").next().unwrap_or_default();
    let declared = [format!("fn {name}("), format!("fn {name}<")];
    let mut now = Vec::new();
    let candidates = sources.iter().filter(|(_, text)| declared.iter().any(|word| text.contains(word)));
    for (path, _) in candidates {
        if used_at(sources, path, function)?.is_some() {
            now.push(path.as_str());
        }
    }
    let advice = match now.as_slice() {
        [] => "write the name that it has now, or remove it if a request passes it no more".to_owned(),
        places => format!("it is in {} now: write that file", places.join(" and in ")),
    };
    Ok(format!("{LIFE}, hop {hop}: {file} has no function {function}; {advice}"))
}

fn too_high(limits: &BTreeMap<String, usize>, lower: &BTreeMap<String, usize>) -> Vec<String> {
    let wrong = lower.iter().filter(|(name, count)| limits.get(*name) != Some(*count));
    wrong
        .map(|(name, count)| format!("{LIFE}: lower the limit of {name} to {count}, or: {COMMAND}"))
        .collect()
}

/// The text of the file with these limits.
fn with_limits(text: &str, limits: &BTreeMap<String, usize>) -> String {
    let lines = text.lines().map(|line| {
        let limit = line.split_once(" = ").and_then(|(name, _)| limits.get_key_value(name));
        limit.map_or_else(|| line.to_owned(), |(name, count)| format!("{name} = {count}"))
    });
    lines.flat_map(|line| [line, "\n".to_owned()]).collect()
}

/// A page with its table replaced by this one. `None`: the page has no such table.
fn with_table(page: &str, table: &str) -> Option<String> {
    let begin = page.find(HEADING)?;
    let length: usize =
        page[begin..].split_inclusive('\n').take_while(|line| line.starts_with('|')).map(str::len).sum();
    Some([&page[..begin], table, &page[begin + length..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# The way.\n[limits]\nhops = 2\nfiles = 3\ntypes = 2\ntraits = 1\n\n\
                        [[hop]]\nhappens = \"it is read\"\nhands_on = \"`Request`\"\n\
                        [[hop.place]]\nfile = \"crates/a/src/lib.rs\"\nfunctions = [\"read\", \"Model::infer\"]\n";

    fn sources(other: &str) -> Vec<(String, String)> {
        let first = "fn read() -> Request { other::Unknown } impl Runner for Model { fn infer(&self) {} }";
        vec![
            ("crates/a/src/lib.rs".to_owned(), first.to_owned()),
            ("crates/b/src/lib.rs".to_owned(), other.to_owned()),
        ]
    }

    fn way(text: &str, sources: &[(String, String)]) -> (Life, Way) {
        let life: Life = toml::from_str(text).unwrap();
        let types = ["Request", "Model", "Runner"].map(str::to_owned).into();
        let way = Way::of(&life, sources, &types).unwrap();
        (life, way)
    }

    #[test]
    fn figures_are_counted_and_compared_with_their_limits() {
        let (life, way) = way(TEXT, &sources(""));
        assert!(way.missing.is_empty());
        let (broken, lower) = way.compare(&life.limits);
        assert_eq!(
            broken,
            [format!(
                "the life of a request has 3 types, and the limit in {LIFE} is 2. Model, Request, Runner"
            )]
        );
        let shorter = with_limits(TEXT, &lower);
        assert!(shorter.starts_with("# The way.\n[limits]\nhops = 1\nfiles = 1\ntypes = 2\ntraits = 1\n\n"));
        assert_eq!(too_high(&life.limits, &lower).len(), 2);
    }

    #[test]
    fn a_function_that_has_moved_is_found_where_it_is() {
        let moved = TEXT.replace("Model::infer", "Model::enqueue");
        let (_, lost) = way(&moved, &sources("impl Model { fn enqueue() {} }"));
        assert_eq!(
            lost.missing,
            [format!(
                "{LIFE}, hop 1: crates/a/src/lib.rs has no function Model::enqueue; it is in crates/b/src/lib.rs now: \
                 write that file"
            )]
        );
        let (_, lost) = way(&moved, &sources("impl Other { fn enqueue() {} }"));
        assert!(
            lost.missing[0].ends_with("or remove it if a request passes it no more"),
            "{:?}",
            lost.missing
        );
    }

    #[test]
    fn the_table_replaces_the_one_of_the_page() {
        let (life, way) = way(TEXT, &sources(""));
        let page = format!("# Page\n\n{HEADING}\n|---|\n| old |\n\nRest\n");
        let renewed = with_table(&page, &way.table(&life)).unwrap();
        let lines: Vec<&str> = renewed.lines().collect();
        assert_eq!(lines[4], "| 1 | it is read | `a/src/lib.rs` (`read`) | `Request` |");
        assert_eq!((lines[0], lines[6], lines[7]), ("# Page", "", "Rest"));
        assert_eq!(with_table("# Page\n", ""), None);
    }
}
