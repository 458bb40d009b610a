//! What runners of tests report about each test, in the XML of JUnit, and the lists that a reader wants at the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// How many slow tests the summary names.
const SLOWEST: usize = 10;

/// One test.
#[derive(Debug, PartialEq)]
pub(super) struct TestReport {
    /// Suite and name, as the runner tells them.
    name: String,
    time: Duration,
    verdict: TestVerdict,
}

#[derive(Debug, PartialEq)]
enum TestVerdict {
    Passed,
    Failed,
    Skipped(String),
}

/// Reads the reports of a step, which has none if it ran no tests.
///
/// # Errors
/// The file cannot be read or is not XML.
pub(super) fn read(file: &Path) -> Result<Vec<TestReport>> {
    if !file.is_file() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text).with_context(|| format!("cannot understand {}", file.display()))
}

fn parse(text: &str) -> Result<Vec<TestReport>> {
    let mut reader = Reader::from_str(text);
    let mut reports: Vec<TestReport> = Vec::new();
    loop {
        match reader.read_event()? {
            Event::Start(element) | Event::Empty(element) => match element.name().as_ref() {
                b"testcase" => reports.push(TestReport::begun(&element)?),
                b"failure" | b"error" => told(&mut reports, TestVerdict::Failed),
                b"skipped" => {
                    let reason = attribute(&element, "message")?.unwrap_or_default();
                    told(&mut reports, TestVerdict::Skipped(reason));
                }
                _ => {}
            },
            Event::Eof => return Ok(reports),
            _ => {}
        }
    }
}

/// The element of a verdict lies in the element of its test.
fn told(reports: &mut [TestReport], verdict: TestVerdict) {
    if let Some(last) = reports.last_mut() {
        last.verdict = verdict;
    }
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Result<Option<String>> {
    let Some(attribute) = element.try_get_attribute(name)? else { return Ok(None) };
    Ok(Some(attribute.normalized_value(XmlVersion::Implicit1_0)?.into_owned()))
}

impl TestReport {
    fn begun(element: &BytesStart<'_>) -> Result<TestReport> {
        let suite = attribute(element, "classname")?.unwrap_or_default();
        let name = attribute(element, "name")?.context("a test has no name")?;
        let seconds = attribute(element, "time")?.and_then(|time| time.parse().ok()).unwrap_or(0.0);
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Ok(TestReport { name: format!("{suite} {name}"), time, verdict: TestVerdict::Passed })
    }
}

/// The tests of all steps.
#[derive(Default)]
pub(super) struct TestReports {
    tests: Vec<TestReport>,
}

impl TestReports {
    pub(super) fn extend(&mut self, tests: Vec<TestReport>) {
        self.tests.extend(tests);
    }

    /// The names of those that failed.
    pub(super) fn failed(&self) -> impl Iterator<Item = &str> {
        self.tests.iter().filter(|test| test.verdict == TestVerdict::Failed).map(|test| test.name.as_str())
    }

    /// The lines of the summary: how many passed, failed and were skipped, why, and the slowest.
    pub(super) fn lines(&self) -> Vec<String> {
        if self.tests.is_empty() {
            return Vec::new();
        }
        let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
        for test in &self.tests {
            if let TestVerdict::Skipped(reason) = &test.verdict {
                *skipped.entry(reason.as_str()).or_default() += 1;
            }
        }
        let failed = self.failed().count();
        let not_run: usize = skipped.values().sum();
        let passed = self.tests.len() - failed - not_run;
        let mut lines = vec![format!("tests: {passed} passed, {failed} failed, {not_run} skipped")];
        lines.extend(self.failed().map(|name| format!("  FAILED {name}")));
        lines.extend(skipped.iter().map(|(reason, count)| format!("  skipped {count}: {reason}")));
        lines.push("slowest tests:".to_owned());
        let mut slowest: Vec<&TestReport> = self.tests.iter().collect();
        slowest.sort_by_key(|test| std::cmp::Reverse(test.time));
        for test in slowest.into_iter().take(SLOWEST) {
            lines.push(format!("  {:>6.1} s  {}", test.time.as_secs_f64(), test.name));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<?xml version="1.0"?>
<testsuites><testsuite name="clients" tests="4">
  <testcase classname="clients.test_a" name="test_good[http]" time="1.250"/>
  <testcase classname="clients.test_a" name="test_bad" time="0.5"><failure message="&lt;no&gt;">text</failure></testcase>
  <testcase classname="clients.test_b" name="test_broken" time="0.1"><error message="x"/></testcase>
  <testcase classname="clients.test_b" name="test_other" time="0.0"><skipped message="not root">why</skipped></testcase>
</testsuite></testsuites>"#;

    #[test]
    fn verdicts_times_and_reasons_are_read() {
        let mut reports = TestReports::default();
        reports.extend(parse(REPORT).unwrap());
        assert_eq!(
            reports.failed().collect::<Vec<_>>(),
            ["clients.test_a test_bad", "clients.test_b test_broken"]
        );
        assert_eq!(
            reports.lines(),
            [
                "tests: 1 passed, 2 failed, 1 skipped",
                "  FAILED clients.test_a test_bad",
                "  FAILED clients.test_b test_broken",
                "  skipped 1: not root",
                "slowest tests:",
                "     1.2 s  clients.test_a test_good[http]",
                "     0.5 s  clients.test_a test_bad",
                "     0.1 s  clients.test_b test_broken",
                "     0.0 s  clients.test_b test_other",
            ]
        );
    }

    #[test]
    fn no_tests_have_no_lines() {
        assert!(TestReports::default().lines().is_empty());
        assert!(parse("<testsuites></other>").is_err());
    }
}
