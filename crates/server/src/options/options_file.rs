//! Options in a file of TOML (`--config`), with the line of each.
use std::{collections::BTreeMap, fs};

use toml::de::{DeTable, DeValue};

use super::{
    refusal::BadOption,
    table::{self, CONFIG, ONLY_ON_THE_LINE, OptionSpec},
    tokenizer::did_you_mean,
};

const WRONG_VALUE: &str = "a value is a string, a number, true, false, or a list of these";

/// An option that is not on the command line.
pub(super) struct LayeredOption {
    pub(super) option: &'static OptionSpec,
    pub(super) value: String,
    /// Where the option was given, for errors.
    pub(super) origin: String,
}

/// Reads the options in a file.
///
/// # Errors
/// The file cannot be read, has an unknown key, has an option twice, or a value that no option has.
pub(super) fn read(path: &str) -> Result<Vec<LayeredOption>, BadOption> {
    let refused = |error: String| BadOption::framed(CONFIG, format!("cannot read '{path}': {error}"));
    let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    parse(path, &text)
}

/// Reads the options in the text of a file.
///
/// # Errors
/// As [`read`].
pub(super) fn parse(path: &str, text: &str) -> Result<Vec<LayeredOption>, BadOption> {
    let refused = |error: String| BadOption::framed(CONFIG, format!("cannot read '{path}': {error}"));
    let document = DeTable::parse(text).map_err(|error| refused(error.to_string().trim_end().to_owned()))?;
    let mut file = OptionsFile { path, text, lines: BTreeMap::new(), found: Vec::new() };
    file.collect("", document.get_ref())?;
    Ok(file.found)
}

/// A file while it is read.
struct OptionsFile<'f> {
    path: &'f str,
    text: &'f str,
    /// The line of each option.
    lines: BTreeMap<&'static str, usize>,
    found: Vec<LayeredOption>,
}

impl OptionsFile<'_> {
    /// Collects the options of a table whose names begin with `prefix`: `[http]` with `port` is `http-port`.
    fn collect(&mut self, prefix: &str, table: &DeTable<'_>) -> Result<(), BadOption> {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.get_ref().replace('_', "-"));
            let line = self.line(key.span().start);
            if let DeValue::Table(group) = value.get_ref() {
                self.collect(&format!("{name}-"), group)?;
                continue;
            }
            if ONLY_ON_THE_LINE.contains(&name.as_str()) {
                return Err(self.refused(line, &format!("'{name}' cannot stand in a file of options")));
            }
            let option = table::named(&name).ok_or_else(|| {
                self.refused(line, &format!("unrecognized option '{name}'")).advising(did_you_mean(&name))
            })?;
            if let Some(other) = self.lines.insert(option.name, line) {
                let (first, second) = (other.min(line), other.max(line));
                let text = format!("the option '{name}' stands in line {first}, too");
                return Err(self.refused(second, &text));
            }
            let mut values = Vec::new();
            self.push_values(value.get_ref(), line, &mut values).map_err(|line| {
                self.refused(line, &format!("{name}: {WRONG_VALUE}")).advising(option.advice())
            })?;
            self.found.extend(values.into_iter().map(|(value, line)| LayeredOption {
                option,
                value,
                origin: format!("{}:{line}: {name}", self.path),
            }));
        }
        Ok(())
    }

    /// Adds a value as an operator would type it on the command line; those of a list, one after the other, each with
    /// its line. The error is the line of a value that no option has.
    fn push_values(
        &self,
        value: &DeValue<'_>,
        line: usize,
        values: &mut Vec<(String, usize)>,
    ) -> Result<(), usize> {
        match value {
            DeValue::String(text) => values.push((text.to_string(), line)),
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix());
                // A number that is too large breaks the rule of its option.
                values.push((parsed.map_or_else(|_| number.to_string(), |parsed| parsed.to_string()), line));
            }
            DeValue::Float(number) => values.push((number.as_str().to_owned(), line)),
            DeValue::Boolean(boolean) => values.push((boolean.to_string(), line)),
            DeValue::Array(list) => {
                for value in list.iter() {
                    self.push_values(value.get_ref(), self.line(value.span().start), values)?;
                }
            }
            DeValue::Datetime(_) | DeValue::Table(_) => return Err(line),
        }
        Ok(())
    }

    /// The number of the line that has this byte.
    fn line(&self, byte: usize) -> usize {
        let before = &self.text.as_bytes()[..byte.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn refused(&self, line: usize, text: &str) -> BadOption {
        BadOption::plain(format!("{}:{line}: {text}", self.path))
    }
}
