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

/// As [`text`], with what `severity` makes of the words `error`, `warning` and `note` of the findings.
pub fn text_with(report: &CheckReport, severity: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut files = BTreeMap::new();
    for finding in &report.findings {
        write_finding(&mut text, finding, &severity(finding.severity.as_str()), &mut files);
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
    severity: &str,
    files: &mut BTreeMap<&'a Path, Option<String>>,
) {
    let Finding { rule, file, line, column, .. } = finding;
    text.push_str(&printable(&file.display().to_string()));
    for number in [line, column].into_iter().flatten() {
        let _ = write!(text, ":{number}");
    }
    let told = printable(&finding.text_with_suggestion()).into_owned();
    let _ = writeln!(text, ": {severity}[{}]: {told}", rule.id);
    let Some(line) = line else { return };
    let content = files.entry(file).or_insert_with(|| fs::read_to_string(file).ok());
    let shown = content.as_deref().and_then(|content| content.lines().nth(line.saturating_sub(1)));
    let Some(shown) = shown.filter(|shown| shown.chars().count() <= SHOWN) else { return };
    let (shown, indent) = marked_line(shown, column.unwrap_or(1).saturating_sub(1));
    let _ = writeln!(text, "  {shown}");
    if column.is_some() {
        let _ = writeln!(text, "  {indent}^");
    }
}
