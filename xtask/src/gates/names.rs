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
        several
            .map(|(name, paths)| {
                format!("{name}: a type name is defined once, not in {}", paths.join(" and in "))
            })
            .collect()
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

    /// The messages of the gate for two files with one definition each.
    fn of_both(first: &str, second: &str) -> Vec<String> {
        let mut definitions = Definitions::default();
        definitions.add("crates/a/src/lib.rs", first);
        definitions.add("crates/b/src/lib.rs", second);
        definitions.broken()
    }

    #[test]
    fn a_name_with_two_definitions_is_reported_with_both_files() {
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
