//! Checks the shape of source files, and words that must not be in them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::repository_files;

/// A longer file must be split. Tests and generated code may be longer.
const MAX_LINES: usize = 600;

/// Signs of unfinished work. The code builds them, so that this file does not contain them.
const UNFINISHED_MACROS: &[&str] =
    &[concat!("to", "do!("), concat!("unimpl", "emented!("), concat!("d", "bg!(")];
const UNFINISHED_WORDS: &[&str] = &[concat!("FIX", "ME"), concat!("X", "XX")];

/// Paths that exist on one machine only.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// The crates that may contain unsafe code.
const UNSAFE_CRATES: &[&str] = &[
    "crates/assembly/",
    "crates/backend-onnx/",
    "crates/backend-openvino/",
    "crates/backend-pytorch/",
    "crates/c-api/",
    "crates/in-process/",
    "crates/native-backend/",
    "crates/shared-memory/",
    "fuzz/",
];

/// Libraries whose locks do not know their order.
const OTHER_LOCKS: &[&str] = &["parking_lot::", "std::sync::"];

/// The number of checked files and the violations, one line each.
pub(crate) struct Report {
    pub(crate) files: usize,
    pub(crate) broken: Vec<String>,
    pub(crate) long_but_excepted: Vec<String>,
}

/// Checks every text file that is, or could be, in the repository.
///
/// # Errors
/// `root` is not a repository, or a file cannot be read.
pub(crate) fn check(root: &Path) -> Result<Report> {
    let mut report = Report { files: 0, broken: Vec::new(), long_but_excepted: Vec::new() };
    for path in repository_files::paths(root, &[])?.iter().filter(|path| *path != "Cargo.lock") {
        let bytes = fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        report.files += 1;
        report.broken.extend(in_any_file(path, &text));
        if path.ends_with(".rs") {
            report.broken.extend(in_rust(path, &text));
            let lines = text.lines().count();
            match lines > MAX_LINES {
                true if may_be_long(path) => report.long_but_excepted.push(format!("{path}: {lines} lines")),
                true => report.broken.push(format!("{path}: {lines} lines, more than {MAX_LINES}")),
                false => {}
            }
        }
    }
    Ok(report)
}

fn may_be_long(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "generated" | "tests.rs" | "sys.rs"))
}

fn in_any_file(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let found = lines.filter_map(|(index, line)| {
        let word = MACHINE_PATHS.iter().find(|word| line.contains(**word))?;
        Some(format!("{path}:{}: a path of one machine, {word}", index + 1))
    });
    found.collect()
}

fn in_rust(path: &str, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    if !text.starts_with("//!") {
        broken.push(format!("{path}: does not open with `//!` and a sentence of what it is"));
    }
    let may_use_unsafe = UNSAFE_CRATES.iter().any(|folder| path.starts_with(folder));
    let is_crate_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    if is_crate_root && !may_use_unsafe && !text.contains("#![forbid(unsafe_code)]") {
        broken.push(format!("{path}: needs #![forbid(unsafe_code)]"));
    }
    for (index, line) in text.lines().enumerate() {
        let at = || format!("{path}:{}", index + 1);
        let macros = UNFINISHED_MACROS.iter().filter(|word| line.contains(**word));
        let words = UNFINISHED_WORDS.iter().filter(|word| has_word(line, word));
        broken.extend(macros.chain(words).map(|word| format!("{}: unfinished, {word}", at())));
        let code = line.split("//").next().unwrap_or_default();
        let outside_quotes: String = code.split('"').step_by(2).collect();
        if is_of_a_server(path) && OTHER_LOCKS.iter().any(|lock| has_lock(&outside_quotes, lock)) {
            broken.push(format!("{}: a lock whose order is not checked; use inference::lock", at()));
        }
        if has_word(&outside_quotes, "unsafe") && !may_use_unsafe {
            broken.push(format!("{}: unsafe outside of {}", at(), UNSAFE_CRATES.join(", ")));
        }
        if code.contains(concat!("#[al", "low(")) || code.contains(concat!("#![al", "low(")) {
            broken.push(format!("{}: a lint is expected with a reason, not allowed", at()));
        }
    }
    broken
}

/// Whether the file is code of a server, whose locks have one order.
fn is_of_a_server(path: &str) -> bool {
    let other = [
        "crates/inference/src/lock",
        "crates/testing/",
        "crates/client/",
        "crates/perf/",
        "crates/recording/",
        "crates/tune/",
    ];
    path.starts_with("crates/")
        && path.contains("/src/")
        && !other.iter().any(|other| path.starts_with(other))
}

/// Whether a line names a lock of that library.
fn has_lock(code: &str, library: &str) -> bool {
    code.split_once(library).is_some_and(|(_, rest)| has_word(rest, "Mutex") || has_word(rest, "Condvar"))
}

/// Whether the word stands alone.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|character: char| !(character.is_alphanumeric() || character == '_')).any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tidy_file_breaks_nothing() {
        let text = "//! What it is.\n\n#![forbid(unsafe_code)]\n\n// unsafe is not needed here\nfn f() {}\n";
        assert!(in_rust("crates/x/src/lib.rs", text).is_empty());
    }

    #[test]
    fn each_broken_rule_is_named_with_its_line() {
        let text = format!(
            "use x;\nfn f() {{ {}) }}\nfn g() {{ unsafe {{ h() }} }}\n{}dead_code)]\n",
            UNFINISHED_MACROS[0],
            concat!("#[al", "low(")
        );
        let broken = in_rust("crates/x/src/a.rs", &text);
        assert_eq!(broken.len(), 4, "{broken:?}");
        assert!(broken[0].contains("`//!`"));
        assert!(broken[1].starts_with("crates/x/src/a.rs:2: unfinished"));
        assert!(broken[2].starts_with("crates/x/src/a.rs:3: unsafe"));
        assert!(broken[3].starts_with("crates/x/src/a.rs:4: a lint"));
    }

    #[test]
    fn unsafe_may_be_where_the_foreign_library_is_and_in_texts() {
        let text = "//! A.\nfn g() { unsafe { h() } }\n";
        assert!(in_rust("crates/backend-onnx/src/a.rs", text).is_empty());
        assert!(in_rust("crates/x/src/a.rs", "//! A.\nconst A: &str = \"unsafe\";\n").is_empty());
    }

    #[test]
    fn locks_of_a_server_know_their_order() {
        let text = "//! A.\nuse parking_lot::{Condvar, RwLock};\n";
        assert_eq!(in_rust("crates/engine/src/a.rs", text).len(), 1);
        assert!(in_rust("crates/inference/src/lock.rs", text).is_empty());
        assert!(in_rust("crates/engine/tests/a.rs", text).is_empty());
        assert!(in_rust("crates/engine/src/a.rs", "//! A.\nuse parking_lot::RwLock;\n").is_empty());
    }

    #[test]
    fn a_crate_root_must_forbid_unsafe_code() {
        assert_eq!(in_rust("crates/x/src/lib.rs", "//! A.\n").len(), 1);
        assert!(in_rust("crates/backend-onnx/src/lib.rs", "//! A.\n").is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_found_in_any_file() {
        let text = format!("see\n{}me/file", MACHINE_PATHS[0]);
        assert_eq!(in_any_file("README.md", &text).len(), 1);
    }

    #[test]
    fn only_tests_and_generated_code_may_be_long() {
        assert!(may_be_long("crates/x/tests/a.rs") && may_be_long("crates/x/src/generated/b.rs"));
        assert!(!may_be_long("crates/x/src/testing.rs"));
    }
}
