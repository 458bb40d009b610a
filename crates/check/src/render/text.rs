//! A report for people: as compilers write it, with the line of the file and a caret.
use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use proto::text::{marked_line, printable};

use crate::{CheckReport, Finding, Severity};

/// The largest number of characters of a line that is shown.
const SHOWN: usize = 160;

/// The findings, and a line that counts them.
pub fn text(report: &CheckReport) -> String {
    text_with(report, str::to_owned)
}

/// As [`text`], with what `emphasis` makes of the parts of a finding that a reader looks for: its place, the word `error`,
/// `warning` or `note`, and the mark `^` below what is wrong.
pub fn text_with(report: &CheckReport, emphasis: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut files = BTreeMap::new();
    for finding in &report.findings {
        write_finding(&mut text, finding, &emphasis, &mut files);
    }
    let count = |severity: Severity| {
        let count = report.count(severity);
        format!("{count} {}{}", severity.as_str(), if count == 1 { "" } else { "s" })
    };
    let counts = [Severity::Error, Severity::Warning, Severity::Note].map(count).join(", ");
    let models = report.models;
    let plural = if models == 1 { "" } else { "s" };
    let _ = writeln!(text, "{models} model{plural} checked: {counts}");
    text
}

fn write_finding<'a>(
    text: &mut String,
    finding: &'a Finding,
    emphasis: &impl Fn(&str) -> String,
    files: &mut BTreeMap<&'a Path, Option<String>>,
) {
    let Finding { rule, file, line, column, .. } = finding;
    let mut place = printable(&file.display().to_string()).into_owned();
    for number in [line, column].into_iter().flatten() {
        let _ = write!(place, ":{number}");
    }
    let (place, severity) = (emphasis(&place), emphasis(finding.severity.as_str()));
    let told = printable(&finding.text_with_suggestion()).into_owned();
    let _ = writeln!(text, "{place}: {severity}[{}]: {told}", rule.id);
    let Some(line) = line else { return };
    let content = files.entry(file).or_insert_with(|| fs::read_to_string(file).ok());
    let shown = content.as_deref().and_then(|content| content.lines().nth(line.saturating_sub(1)));
    let Some(shown) = shown.filter(|shown| shown.chars().count() <= SHOWN) else { return };
    let (shown, indent) = marked_line(shown, column.unwrap_or(1).saturating_sub(1));
    let _ = writeln!(text, "  {shown}");
    if column.is_some() {
        let _ = writeln!(text, "  {indent}{}", emphasis("^"));
    }
}
