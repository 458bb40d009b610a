//! Checks that each type name is defined once in the workspace. A name with two meanings needs an explanation at each
//! use.
//!
//! The crates of the C interfaces keep the names of C. Test code may use any names.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// The crates whose types are named by C headers.
const NAMED_BY_C: &[&str] = &["crates/c-api/", "crates/in-process/"];

/// Folders of code that no other code uses, and the crate of test helpers.
const TEST_CODE: &[&str] = &["/tests/", "/benches/", "/examples/", "crates/testing/"];

/// Names that two crates define for one concept. Remove a name from this list when its types have been merged.
const DEFINED_TWICE: &[&str] = &["BackendSetting", "Batch", "Device", "SequenceStep"];

const KINDS: &[&str] = &["struct", "enum", "union", "trait", "type"];

/// Violations of the rule, one line for each name.
///
/// # Errors
/// `root` is not a repository, or a file cannot be read.
pub(crate) fn broken(root: &Path) -> Result<Vec<String>> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]).current_dir(root);
    let mut definitions = Definitions::default();
    for path in process::output(&mut list)?.lines().filter(|path| is_looked_at(path)) {
        // The file is listed, but deleted and not yet committed.
        if root.join(path).is_file() {
            let text = fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?;
            definitions.add(path, &text);
        }
    }
    Ok(definitions.broken())
}

fn is_looked_at(path: &str) -> bool {
    let is_test_module = path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
    !is_test_module
        && !NAMED_BY_C.iter().any(|folder| path.starts_with(folder))
        && !TEST_CODE.iter().any(|folder| path.contains(folder))
}

/// The places where each type name is defined.
#[derive(Default)]
struct Definitions(BTreeMap<String, Vec<String>>);

impl Definitions {
    fn add(&mut self, path: &str, text: &str) {
        for name in defined(text) {
            self.0.entry(name.to_owned()).or_default().push(path.to_owned());
        }
    }

    fn broken(&self) -> Vec<String> {
        let several = self.0.iter().filter(|(_, paths)| paths.len() > 1);
        let unexpected = several.filter(|(name, _)| !DEFINED_TWICE.contains(&name.as_str()));
        let mut broken: Vec<_> = unexpected
            .map(|(name, paths)| {
                format!("{name}: a type name is defined once, not in {}", paths.join(" and in "))
            })
            .collect();
        let is_single = |name: &&&str| self.0.get(**name).is_none_or(|paths| paths.len() < 2);
        broken.extend(
            DEFINED_TWICE
                .iter()
                .filter(is_single)
                .map(|name| format!("{name}: is not defined twice any more; take it off the list in xtask")),
        );
        broken
    }
}

/// The type names that a file defines outside of functions, implementations and its test module.
fn defined(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter_map(|line| {
        if line.starts_with(char::is_whitespace) {
            return None;
        }
        let mut words = line.split(' ').skip_while(|word| word.starts_with("pub") || *word == "unsafe");
        // `pub(in path)` consists of two words.
        let kind = words.find(|word| !word.ends_with(')'))?;
        let name = words.next().filter(|_| KINDS.contains(&kind))?;
        name.split(|character: char| !(character.is_alphanumeric() || character == '_')).next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message of the gate for two files with one definition each, without the names on the list.
    fn of_both(first: &str, second: &str) -> Vec<String> {
        let mut definitions = Definitions::default();
        definitions.add("crates/a/src/lib.rs", first);
        definitions.add("crates/b/src/lib.rs", second);
        let listed =
            |line: &String| DEFINED_TWICE.iter().any(|name| line.starts_with(&format!("{name}: is not")));
        definitions.broken().into_iter().filter(|line| !listed(line)).collect()
    }

    #[test]
    fn a_name_with_two_definitions_is_told_with_both_files() {
        let expected =
            "State: a type name is defined once, not in crates/a/src/lib.rs and in crates/b/src/lib.rs";
        for second in [
            "struct State;",
            "pub(crate) enum State<T> {",
            "pub unsafe trait State: Send {",
            "type State = u8;",
        ] {
            assert_eq!(of_both("pub struct State {", second), [expected], "{second}");
        }
    }

    #[test]
    fn names_of_functions_inner_items_and_tests_do_not_count() {
        for second in [
            "    type State = u8;",
            "fn State() {",
            "// struct State",
            "#[cfg(test)]\nmod tests {\nstruct State;",
            "struct States;",
        ] {
            assert_eq!(of_both("pub struct State {", second), [""; 0], "{second}");
        }
    }

    #[test]
    fn a_listed_name_may_be_defined_twice_and_must_be() {
        let name = DEFINED_TWICE[0];
        let definition = format!("pub struct {name} {{");
        assert_eq!(of_both(&definition, &definition), [""; 0]);
        let broken = Definitions::default().broken();
        assert_eq!(broken.len(), DEFINED_TWICE.len());
        assert!(broken[0].contains("take it off the list"), "{broken:?}");
    }

    #[test]
    fn c_interfaces_and_test_code_are_left_out() {
        assert!(is_looked_at("crates/engine/src/lib.rs") && is_looked_at("xtask/src/main.rs"));
        for path in [
            "crates/c-api/src/handle.rs",
            "crates/x/tests/a.rs",
            "crates/x/src/tests.rs",
            "crates/testing/src/lib.rs",
        ] {
            assert!(!is_looked_at(path), "{path}");
        }
    }
}
