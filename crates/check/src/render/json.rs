//! A report for programs.
use serde::Serialize;

use crate::{CheckReport, Finding, Severity};

#[derive(Serialize)]
struct ReportObject<'a> {
    models: usize,
    errors: usize,
    warnings: usize,
    notes: usize,
    findings: Vec<FindingObject<'a>>,
}

#[derive(Serialize)]
struct FindingObject<'a> {
    severity: &'static str,
    rule: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<&'a str>,
}

/// One JSON object with the counts and the findings. Ends with a newline.
pub fn json(report: &CheckReport) -> String {
    let object = ReportObject {
        models: report.models,
        errors: report.count(Severity::Error),
        warnings: report.count(Severity::Warning),
        notes: report.count(Severity::Note),
        findings: report.findings.iter().map(finding).collect(),
    };
    let text = serde_json::to_string_pretty(&object).expect("a report has a JSON form");
    text + "\n"
}

fn finding(finding: &Finding) -> FindingObject<'_> {
    FindingObject {
        severity: finding.severity.as_str(),
        rule: finding.rule.id,
        model: finding.model.as_deref(),
        file: finding.file.display().to_string(),
        line: finding.line,
        column: finding.column,
        message: &finding.text,
        suggestion: finding.suggestion.as_deref(),
    }
}
