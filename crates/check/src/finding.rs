//! What a check has found.
use std::path::{Path, PathBuf};

use config::{ConfigErrors, ConfigProblem, ConfigRule};
use vocabulary::Error;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The server would refuse the model.
    Error,
    /// The model is served, but probably not as intended.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// The word in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How serious it is.
    pub severity: Severity,
    /// The rule.
    pub rule: ConfigRule,
    /// The model; `None` for findings about a repository.
    pub model: Option<String>,
    /// The file or directory.
    pub file: PathBuf,
    /// The line, counted from 1, if the finding has a place in a text.
    pub line: Option<usize>,
    /// The character of the line, counted from 1.
    pub column: Option<usize>,
    /// The finding in one sentence. For errors, the server has the same text.
    pub text: String,
    /// The word that was probably meant.
    pub suggestion: Option<String>,
}

impl Finding {
    /// A finding about a whole file or directory.
    pub fn new(severity: Severity, rule: ConfigRule, file: &Path, text: impl Into<String>) -> Self {
        Self {
            severity,
            rule,
            model: None,
            file: file.to_owned(),
            line: None,
            column: None,
            text: text.into(),
            suggestion: None,
        }
    }

    /// The finding of an error.
    pub fn of_error(rule: ConfigRule, file: &Path, error: &Error) -> Self {
        Self::new(Severity::Error, rule, file, error.message.to_string())
    }

    /// The same finding with the word that was probably meant.
    #[must_use]
    pub fn meaning(self, suggestion: Option<String>) -> Self {
        Self { suggestion, ..self }
    }

    /// The same finding about a model.
    #[must_use]
    pub fn about(self, model: &str) -> Self {
        Self { model: Some(model.to_owned()), ..self }
    }

    /// The text, with the word that was probably meant at its end, unless the text has it already.
    pub(crate) fn text_with_suggestion(&self) -> String {
        let text = &self.text;
        match &self.suggestion {
            Some(meant) if !text.contains(&format!("'{meant}'?")) => match text.strip_suffix('.') {
                // Some texts of Triton are sentences with a full stop.
                Some(_) => format!("{text} Did you mean '{meant}'?"),
                None => format!("{text}, did you mean '{meant}'?"),
            },
            Some(_) | None => text.clone(),
        }
    }

    fn of_problem(problem: &ConfigProblem, file: &Path) -> Self {
        let ConfigProblem { rule, line, column, text, suggestion, .. } = problem.clone();
        Self { line, column, suggestion, ..Self::new(Severity::Error, rule, file, text) }
    }

    /// The findings of the problems of a configuration in `file`.
    pub(crate) fn of_problems(errors: &ConfigErrors, file: &Path) -> Vec<Self> {
        errors.problems().iter().map(|problem| Self::of_problem(problem, file)).collect()
    }
}

/// The findings about all models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// How many models were looked at.
    pub models: usize,
    /// By file and place.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// How many findings have this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// The findings about a model.
    pub fn of_model<'a>(&'a self, model: &'a str) -> impl Iterator<Item = &'a Finding> {
        self.findings.iter().filter(move |finding| finding.model.as_deref() == Some(model))
    }

    /// Puts the findings in order and removes those that are there twice.
    pub(crate) fn sort(&mut self) {
        let place = |finding: &Finding| {
            (finding.file.clone(), finding.line, finding.column, finding.severity, finding.rule.id)
        };
        self.findings.sort_by_cached_key(place);
        self.findings.dedup();
    }
}

#[cfg(test)]
mod tests {
    use config::rule;

    use super::*;

    #[test]
    fn a_suggestion_follows_a_text_with_and_without_a_full_stop() {
        let shown = |text: &str| {
            let finding = Finding::new(Severity::Error, rule::VALUE, Path::new("f"), text);
            finding.meaning(Some("b".to_owned())).text_with_suggestion()
        };
        assert_eq!(shown("'a' is not known"), "'a' is not known, did you mean 'b'?");
        assert_eq!(shown("'a' is not loaded."), "'a' is not loaded. Did you mean 'b'?");
        assert_eq!(shown("'a' is not known, did you mean 'b'?"), "'a' is not known, did you mean 'b'?");
    }
}
