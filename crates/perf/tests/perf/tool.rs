//! `nereid perf` as a function: what a run prints, and the rows that it writes.

use std::collections::BTreeMap;

/// The exit status, the table, and the errors of a run.
pub(crate) fn perf(line: &str) -> (u8, String, String) {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let arguments = ["perf"].into_iter().chain(line.split_whitespace()).map(Into::into);
    let status = perf::run(arguments, &mut out, &mut errors);
    (status, String::from_utf8(out).unwrap(), String::from_utf8(errors).unwrap())
}

/// The fields of each row of a run. The run must succeed.
pub(crate) fn rows(line: &str) -> Vec<BTreeMap<String, String>> {
    let csv = tempfile::NamedTempFile::new().unwrap();
    let (status, out, errors) = perf(&format!("{line} --csv {}", csv.path().display()));
    assert_eq!((status, errors.as_str()), (0, ""), "{out}");
    let text = std::fs::read_to_string(csv.path()).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
    let headings: Vec<String> = lines.next().unwrap().collect();
    lines.map(|line| headings.iter().cloned().zip(line).collect()).collect()
}
