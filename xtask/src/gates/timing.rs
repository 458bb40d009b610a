//! Checks that tests do not depend on how fast a machine is: test code neither sleeps nor measures time.
//!
//! A test waits for an event, counts steps, looks at an order, or moves virtual time. The list of exceptions may only
//! shrink: an exception that nothing needs any more is an error, too.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::timing_exceptions::{EXCEPTIONS, TimingException};
use crate::repository_files;

/// What sleeps or reads a clock in Rust.
const IN_RUST: &[&str] = &["sleep(", "sleep_until(", ".elapsed()", "duration_since(", "SystemTime::now("];
/// The same in Python.
const IN_PYTHON: &[&str] =
    &["sleep(", "monotonic()", "monotonic_ns()", "perf_counter", "time.time()", "time.time_ns()"];

/// Violations of the rule, one line each.
///
/// # Errors
/// `root` is not a repository, or a file cannot be read.
pub(super) fn broken(root: &Path) -> Result<Vec<String>> {
    let texts = repository_files::texts(root, &["*.rs", "*.py"])?;
    let uses: Vec<_> = texts.iter().flat_map(|(path, text)| uses_of_time(path, text)).collect();
    Ok(judge(&uses, EXCEPTIONS))
}

/// A line of test code that sleeps or measures.
#[derive(Debug, PartialEq)]
struct TimeUse {
    path: String,
    number: usize,
    line: String,
}

fn uses_of_time(path: &str, text: &str) -> Vec<TimeUse> {
    let words = if path.ends_with(".py") { IN_PYTHON } else { IN_RUST };
    let lines = text.lines().enumerate().skip(first_line_of_tests(path, text));
    let used = lines.filter(|(_, line)| {
        let code = line.split("//").next().unwrap_or_default();
        // What lies between quotes is text, or the code of a model.
        let code: String = code.split('"').step_by(2).collect();
        let code = if path.ends_with(".py") { code.split('#').next().unwrap_or_default() } else { &code };
        words.iter().any(|word| code.contains(word)) && !is_lower_bound(code)
    });
    used.map(|(index, line)| TimeUse {
        path: path.to_owned(),
        number: index + 1,
        line: line.trim().to_owned(),
    })
    .collect()
}

/// Whether a line only says that something took at least some time. That holds on every machine.
fn is_lower_bound(code: &str) -> bool {
    (code.contains("elapsed() >") || code.contains("monotonic() - begun >")) && !code.contains('<')
}

/// Where test code begins in a file: at its first line, in its module of tests, or nowhere.
fn first_line_of_tests(path: &str, text: &str) -> usize {
    // Its clock is virtual.
    if text.contains("start_paused = true") {
        return usize::MAX;
    }
    let is_test = path.starts_with("tests/")
        || path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs");
    let module = || text.lines().position(|line| line == "mod tests {");
    if is_test { 0 } else { module().unwrap_or(usize::MAX) }
}

fn judge(uses: &[TimeUse], exceptions: &[TimingException]) -> Vec<String> {
    let mut needed = BTreeSet::new();
    let mut broken = Vec::new();
    for TimeUse { path, number, line } in uses {
        let excepted = exceptions.iter().position(|exception| exception.covers(path, line));
        match excepted {
            Some(index) => {
                needed.insert(index);
            }
            None => broken
                .push(format!("{path}:{number}: a test must not depend on time (docs/testing.md): {line}")),
        }
    }
    for (index, TimingException { path, line, .. }) in exceptions.iter().enumerate() {
        if !needed.contains(&index) {
            broken.push(format!("nothing needs the exception for {path} with '{line}' any more"));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_and_measuring_are_found_in_test_code_only() {
        let code = "fn f() { sleep(x); }\n#[cfg(test)]\nmod tests {\n    begun.elapsed();\n}\n";
        let used = uses_of_time("crates/x/src/a.rs", code);
        assert_eq!(used.len(), 1);
        assert_eq!((used[0].number, used[0].line.as_str()), (4, "begun.elapsed();"));
        assert_eq!(uses_of_time("crates/x/tests/a.rs", code).len(), 2);
        assert_eq!(uses_of_time("tests/clients/a.py", "time.sleep(1)  # why\n").len(), 1);
        assert!(uses_of_time("demo/a.py", "time.sleep(1)\n").is_empty());
    }

    #[test]
    fn texts_and_comments_are_not_code() {
        assert!(uses_of_time("crates/x/tests/a.rs", "// sleep(1)\nlet a = \"sleep(1)\";\n").is_empty());
        assert!(uses_of_time("tests/a.py", "# time.sleep(1)\n").is_empty());
    }

    #[test]
    fn lower_bounds_and_virtual_time_are_fine() {
        assert!(uses_of_time("crates/x/tests/a.rs", "assert!(begun.elapsed() >= LIMIT);\n").is_empty());
        let both = "assert!(begun.elapsed() >= LIMIT && begun.elapsed() < 2 * LIMIT);\n";
        assert_eq!(uses_of_time("crates/x/tests/a.rs", both).len(), 1);
        let paused = format!("#[tokio::test(start_paused = true)]\nasync fn t() {{\n    {both}}}\n");
        assert!(uses_of_time("crates/x/tests/a.rs", &paused).is_empty());
    }

    #[test]
    fn an_exception_covers_its_line_and_must_be_needed() {
        let uses = uses_of_time("tests/a.py", "time.sleep(pause)\ntime.sleep(1)\n");
        let of = |line| TimingException { path: "tests/a.py", line, reason: "because" };
        let broken = judge(&uses, &[of("sleep(pause)")]);
        assert_eq!(broken.len(), 1);
        assert!(broken[0].starts_with("tests/a.py:2: "), "{broken:?}");
        assert!(judge(&uses, &[of("sleep(pause)"), of("sleep(1)")]).is_empty());
        let unneeded = judge(&uses, &[of("sleep("), of("elsewhere")]);
        assert_eq!(unneeded, ["nothing needs the exception for tests/a.py with 'elsewhere' any more"]);
    }

    #[test]
    fn each_exception_has_a_reason() {
        assert!(EXCEPTIONS.iter().all(|exception| exception.reason.len() > 20));
    }
}
