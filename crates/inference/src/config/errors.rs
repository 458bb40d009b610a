//! All problems of a configuration, in the order of the rules.
use std::{
    fmt,
    path::{Path, PathBuf},
};

use proto::Fields;

use crate::{Error, ErrorCode};

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The code that a client receives when this is the first problem.
    pub code: ErrorCode,
    /// The rule, in words that clients of Triton know.
    pub text: String,
    /// The field with the problem, such as `input[0].dims`; empty if the problem concerns no single field.
    pub field: String,
    /// Line of that field in the configuration file, counted from 1, if the file contains the field.
    pub line: Option<usize>,
}

/// All problems of one configuration.
///
/// [`Display`](fmt::Display) writes them in one line, the first problem first and unchanged. [`ConfigErrors::report`]
/// writes each problem on its own line with its position in the file. As an error of a function it is never empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigErrors {
    problems: Vec<Problem>,
    file: Option<PathBuf>,
}

impl ConfigErrors {
    /// The problems in the order of the rules.
    pub fn problems(&self) -> &[Problem] {
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

    pub(super) fn invalid(&mut self, field: &str, text: impl Into<String>) {
        self.push(ErrorCode::InvalidArgument, field, text);
    }

    /// Adds a problem, unless the list already contains it: some rules have the same words for many fields.
    pub(super) fn push(&mut self, code: ErrorCode, field: &str, text: impl Into<String>) {
        let text = text.into();
        if !self.problems.iter().any(|problem| problem.text == text) {
            self.problems.push(Problem { code, text, field: field.to_owned(), line: None });
        }
    }

    /// Sets the line of each problem.
    pub(super) fn located(mut self, file: Option<&Path>, fields: &Fields) -> Self {
        self.file = file.map(Path::to_owned);
        for problem in &mut self.problems {
            problem.line = problem.line.or_else(|| nearest_line(fields, &problem.field));
        }
        self
    }

    pub(super) fn into_result(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

/// The line of the field, or of the nearest enclosing field in the file: a missing field has no line.
fn nearest_line(fields: &Fields, field: &str) -> Option<usize> {
    let mut path = field;
    loop {
        if let Some(line) = fields.line(path) {
            return Some(line);
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
