//! Checks that each type name is defined once in the workspace. A name with two meanings needs an explanation at each
//! use.
//!
//! The crates of the C interfaces may use the names of C, as the tables of these interfaces have them. Test code may use
//! any names. `double_names.txt` lists the other names that are defined more than once today.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use super::exception_list::{ExceptionList, Upkeep};

/// The crates that may define what C headers name.
const NAMED_BY_C: &[&str] = &["crates/c-api/", "crates/in-process/"];

/// Folders of code that no other code uses, and the crate of test helpers.
const TEST_CODE: &[&str] = &["/tests/", "/benches/", "/examples/", "crates/testing/"];

const KINDS: &[&str] = &["struct", "enum", "union", "trait", "type"];

/// Violations of the rule, one line for each name. `sources`: all files in Rust. `names_of_c`: the names in the tables
/// of the C interfaces, without their prefixes.
///
/// # Errors
/// The list cannot be read or written.
pub(crate) fn broken(
    root: &Path,
    sources: &[(String, String)],
    names_of_c: &BTreeSet<String>,
    upkeep: Upkeep,
) -> Result<Vec<String>> {
    let mut definitions = Definitions::default();
    for (path, text) in sources.iter().filter(|(path, _)| is_of_product(path)) {
        definitions.add(path, text, names_of_c);
    }
    ExceptionList::read(root, "double_names.txt", upkeep)?.compare(&definitions.several())
}

/// The names of all types of the product.
pub(super) fn of_types(sources: &[(String, String)]) -> BTreeSet<String> {
    let sources = sources.iter().filter(|(path, _)| is_of_product(path));
    sources.flat_map(|(_, text)| defined(text)).map(str::to_owned).collect()
}

/// Whether a file is code that others use, and no test.
pub(super) fn is_of_product(path: &str) -> bool {
    let is_test_module = path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
    !is_test_module && !TEST_CODE.iter().any(|folder| path.contains(folder))
}

/// The places where each type name is defined.
#[derive(Default)]
struct Definitions(BTreeMap<String, Vec<String>>);

impl Definitions {
    fn add(&mut self, path: &str, text: &str, names_of_c: &BTreeSet<String>) {
        let may_use_c = NAMED_BY_C.iter().any(|folder| path.starts_with(folder));
        for name in defined(text).filter(|name| !(may_use_c && names_of_c.contains(*name))) {
            self.0.entry(name.to_owned()).or_default().push(path.to_owned());
        }
    }

    /// The names with several definitions, and a message for each.
    fn several(&self) -> BTreeMap<String, String> {
        let several = self.0.iter().filter(|(_, paths)| paths.len() > 1);
        several
            .map(|(name, paths)| {
                let places = paths.join(" and in ");
                (name.clone(), format!("{name}: a type name is defined once, not in {places}"))
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
        definitions.add("crates/a/src/lib.rs", first, &BTreeSet::new());
        definitions.add("crates/b/src/lib.rs", second, &BTreeSet::new());
        definitions.several().into_values().collect()
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
    fn test_code_is_left_out() {
        for path in ["crates/engine/src/lib.rs", "crates/c-api/src/handle.rs", "xtask/src/main.rs"] {
            assert!(is_of_product(path), "{path}");
        }
        for path in ["crates/x/tests/a.rs", "crates/x/src/tests.rs", "crates/testing/src/lib.rs"] {
            assert!(!is_of_product(path), "{path}");
        }
    }

    #[test]
    fn only_names_of_c_may_be_repeated_by_its_crates() {
        let names_of_c = ["Message".to_owned()].into();
        let mut definitions = Definitions::default();
        for path in ["crates/c-api/src/a.rs", "crates/x/src/a.rs"] {
            definitions.add(path, "struct Message;\nstruct Buffer;", &names_of_c);
        }
        assert_eq!(definitions.several().into_keys().collect::<Vec<_>>(), ["Buffer"]);
    }
}
