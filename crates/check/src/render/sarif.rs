//! A report in SARIF 2.1.0, which code hosts and editors show.
use serde_json::{Value, json};

use crate::{CheckReport, Finding, all_rules};

/// One SARIF log with one run. Ends with a newline.
pub fn sarif(report: &CheckReport) -> String {
    let rules: Vec<_> = all_rules().collect();
    let index = |finding: &Finding| rules.iter().position(|rule| rule.id == finding.rule.id);
    let results: Vec<_> = report.findings.iter().map(|finding| result(finding, index(finding))).collect();
    let described =
        |rule: &config::ConfigRule| json!({"id": rule.id, "shortDescription": {"text": rule.summary}});
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "nereid check",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(described).collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    format!("{log:#}\n")
}

fn result(finding: &Finding, rule: Option<usize>) -> Value {
    let text = finding.text_with_suggestion();
    let mut place = json!({"artifactLocation": {"uri": uri(finding)}});
    if let Some(line) = finding.line {
        place["region"] = json!({"startLine": line});
        if let Some(column) = finding.column {
            place["region"]["startColumn"] = json!(column);
        }
    }
    let mut result = json!({
        "ruleId": finding.rule.id,
        "level": finding.severity.as_str(),
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    });
    if let Some(rule) = rule {
        result["ruleIndex"] = json!(rule);
    }
    result
}

/// The path as a reference: relative paths stay relative, so that code hosts find the file.
fn uri(finding: &Finding) -> String {
    let mut uri = String::from(if finding.file.is_absolute() { "file://" } else { "" });
    for byte in finding.file.to_string_lossy().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}
