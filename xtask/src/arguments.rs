//! Takes the arguments of a command line by name. Arguments that are left are an error.

use std::str::FromStr;

use anyhow::{Context, Result, anyhow, ensure};

/// The arguments not taken yet, in order.
pub(crate) struct Arguments {
    words: Vec<String>,
}

impl Arguments {
    pub(crate) fn new(words: impl Iterator<Item = String>) -> Arguments {
        Arguments { words: words.collect() }
    }

    /// Takes the first argument.
    pub(crate) fn word(&mut self) -> Option<String> {
        (!self.words.is_empty()).then(|| self.words.remove(0))
    }

    /// Takes a flag without a value. Returns whether it was given.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|word| word != name);
        self.words.len() < before
    }

    /// Takes `NAME VALUE` or `NAME=VALUE`.
    pub(crate) fn value<T: FromStr>(&mut self, name: &str) -> Result<Option<T>> {
        let joined = format!("{name}=");
        let Some(index) = self.words.iter().position(|word| word == name || word.starts_with(&joined)) else {
            return Ok(None);
        };
        let word = self.words.remove(index);
        let text = match word.strip_prefix(&joined) {
            Some(text) => text.to_owned(),
            None if index < self.words.len() => self.words.remove(index),
            None => return Err(anyhow!("{name} needs a value")),
        };
        let value = text.parse().ok();
        Ok(Some(value.with_context(|| format!("{name} cannot be '{text}'"))?))
    }

    /// # Errors
    /// An argument is left.
    pub(crate) fn finish(self) -> Result<()> {
        ensure!(self.words.is_empty(), "unknown: {}; see `cargo xtask help`", self.words.join(" "));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Arguments {
        Arguments::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn values_and_flags_are_found_in_any_order() {
        let mut arguments = arguments("demo --once --port-base=9000 --name x");
        assert_eq!(arguments.word().as_deref(), Some("demo"));
        assert_eq!(arguments.value::<u16>("--port-base").unwrap(), Some(9000));
        assert_eq!(arguments.value::<String>("--name").unwrap().as_deref(), Some("x"));
        assert_eq!(arguments.value::<u16>("--other").unwrap(), None);
        assert!(arguments.flag("--once") && !arguments.flag("--once"));
        arguments.finish().unwrap();
    }

    #[test]
    fn what_is_wrong_or_left_over_is_named() {
        assert!(arguments("--n").value::<u16>("--n").unwrap_err().to_string().contains("--n needs a value"));
        assert!(arguments("--n x").value::<u16>("--n").unwrap_err().to_string().contains("'x'"));
        assert!(arguments("--bogus").finish().unwrap_err().to_string().contains("--bogus"));
    }
}
