//! All problems of a configuration, in the order of the rules.
use std::{
    fmt,
    path::{Path, PathBuf},
};

use proto::{Fields, TextPosition, text::MistakeKind, text::TextError};
use vocabulary::{Error, ErrorCode};

use super::rule::{self, ConfigRule};

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The code that a client receives when this is the first problem.
    pub code: ErrorCode,
    /// The rule, in words that clients of Triton know.
    pub text: String,
    /// The field with the problem, such as `input[0].dims`; empty if the problem concerns no single field.
    pub field: String,
    /// Line of that field in the configuration file, counted from 1, if the file contains the field.
    pub line: Option<usize>,
    /// The character of that line, counted from 1.
    pub column: Option<usize>,
    /// The id of the rule, for reports.
    pub rule: ConfigRule,
    /// The word that was probably meant.
    pub suggestion: Option<String>,
}

/// All problems of one configuration.
///
/// [`Display`](fmt::Display) writes them in one line, the first problem first and unchanged. [`ConfigErrors::report`]
/// writes each problem on its own line with its position in the file. As an error of a function it is never empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigErrors {
    problems: Vec<ConfigProblem>,
    file: Option<PathBuf>,
    /// The rule whose problems are added.
    rule: Option<ConfigRule>,
}

impl ConfigErrors {
    /// The problems in the order of the rules.
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }

    /// The file of the configuration, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether the configuration has no problem.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// One line for each problem, with file and line where they are known.
    pub fn report(&self) -> String {
        let lines = self.problems.iter().map(|problem| match (&self.file, problem.line) {
            (Some(file), Some(line)) => format!("{}:{line}: {}", file.display(), problem.text),
            _ => problem.text.clone(),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    pub(super) fn one(code: ErrorCode, text: impl Into<String>) -> Self {
        let mut errors = Self::default();
        errors.push(code, "", text);
        errors
    }

    /// The mistakes in the text of a configuration.
    pub(super) fn of_text(file: &Path, error: &TextError) -> Self {
        let problems = error.each().map(|mistake| ConfigProblem {
            code: ErrorCode::Internal,
            text: mistake.message.clone(),
            field: String::new(),
            line: Some(mistake.line),
            column: Some(mistake.column),
            rule: match mistake.kind {
                MistakeKind::Syntax => rule::SYNTAX,
                MistakeKind::UnknownField => rule::UNKNOWN_FIELD,
                MistakeKind::UnknownValue => rule::UNKNOWN_VALUE,
                MistakeKind::WrongValue => rule::WRONG_VALUE,
                MistakeKind::Repeated => rule::REPEATED_FIELD,
            },
            suggestion: mistake.suggestion.as_deref().map(str::to_owned),
        });
        Self { problems: problems.collect(), file: Some(file.to_owned()), rule: None }
    }

    /// Begins a rule: the problems that follow are its problems.
    pub fn begin(&mut self, rule: ConfigRule) {
        self.rule = Some(rule);
    }

    /// Adds a broken rule about a field, with INVALID_ARG.
    pub fn invalid(&mut self, field: &str, text: impl Into<String>) {
        self.push(ErrorCode::InvalidArgument, field, text);
    }

    /// Adds a problem, unless the list already contains it: some rules have the same words for many fields.
    pub fn push(&mut self, code: ErrorCode, field: &str, text: impl Into<String>) {
        self.push_meaning(code, field, text, None);
    }

    /// As [`ConfigErrors::push`], with the word that was probably meant.
    pub fn push_meaning(
        &mut self,
        code: ErrorCode,
        field: &str,
        text: impl Into<String>,
        suggestion: Option<String>,
    ) {
        let (text, rule) = (text.into(), self.rule.unwrap_or(rule::CONFIGURATION));
        if !self.problems.iter().any(|problem| problem.text == text) {
            let field = field.to_owned();
            self.problems.push(ConfigProblem {
                code,
                text,
                field,
                line: None,
                column: None,
                rule,
                suggestion,
            });
        }
    }

    /// Adds an error of another part of the server.
    pub fn push_error(&mut self, field: &str, error: &Error) {
        self.push(error.code, field, error.message.to_string());
    }

    /// Takes over the problems of another list.
    pub fn absorb(&mut self, others: Self) {
        for problem in others.problems {
            if !self.problems.iter().any(|known| known.text == problem.text) {
                self.problems.push(problem);
            }
        }
        self.file = self.file.take().or(others.file);
    }

    /// The first problem as an error of the server; `None` without problems.
    pub fn first(&self) -> Option<Error> {
        self.problems.first().map(|problem| Error::new(problem.code, problem.text.clone()))
    }

    /// Sets the position of each problem.
    #[must_use]
    pub fn located(mut self, file: Option<&Path>, fields: &Fields) -> Self {
        self.file = file.map(Path::to_owned);
        for problem in self.problems.iter_mut().filter(|problem| problem.line.is_none()) {
            let position = nearest_position(fields, &problem.field);
            problem.line = position.map(|position| position.line);
            problem.column = position.map(|position| position.column);
        }
        self
    }

    pub(super) fn into_result(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

/// The position of the field, or of the nearest enclosing field in the file: a missing field has none.
fn nearest_position(fields: &Fields, field: &str) -> Option<TextPosition> {
    let mut path = field;
    loop {
        if let Some(position) = fields.position(path) {
            return Some(position);
        }
        path = &path[..path.rfind(['.', '['])?];
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.problems.iter().enumerate() {
            f.write_str(if position == 0 { "" } else { "; " })?;
            f.write_str(&problem.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigErrors> for Error {
    fn from(errors: ConfigErrors) -> Self {
        let code = errors.problems.first().map_or(ErrorCode::Internal, |problem| problem.code);
        Self::new(code, errors.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_problems_make_one_error_with_the_code_and_words_of_the_first() {
        let mut errors = ConfigErrors::default();
        errors.push(ErrorCode::Unsupported, "a", "first");
        errors.invalid("b", "second");
        errors.invalid("c", "second");
        let error = Error::from(errors);
        assert_eq!((error.code, error.message.as_ref()), (ErrorCode::Unsupported, "first; second"));
    }

    #[test]
    fn a_report_tells_the_line_of_each_problem() {
        let fields = proto::text::parse(b"name: 'm'\ninput {\n name: 'x'\n}").unwrap().fields;
        let mut errors = ConfigErrors::default();
        errors.invalid("input[0].dims", "no dims");
        errors.invalid("output", "no output");
        errors.invalid("name", "bad name");
        let errors = errors.located(Some(Path::new("m/config.pbtxt")), &fields);
        assert_eq!(errors.report(), "m/config.pbtxt:2: no dims\nno output\nm/config.pbtxt:1: bad name");
    }
}
