//! The texts of options, and the numbers that they stand for.

use std::str::FromStr;
use std::time::Duration;

use clap::ArgMatches;

/// The text of an option.
pub(super) fn given<'m>(matches: &'m ArgMatches, name: &str) -> Option<&'m str> {
    matches.get_one::<String>(name).map(String::as_str)
}

pub(super) fn many<'a>(matches: &'a ArgMatches, name: &str) -> impl Iterator<Item = &'a str> {
    matches.get_many::<String>(name).into_iter().flatten().map(String::as_str)
}

pub(super) fn or_default<'m>(matches: &'m ArgMatches, name: &str) -> &'m str {
    given(matches, name).expect("the option has a default value")
}

pub(super) fn number<T: FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option} needs a number, got '{text}'"))
}

pub(super) fn count(option: &str, text: &str) -> Result<usize, String> {
    match number(option, text)? {
        0 => Err(format!("{option} must be above zero")),
        count => Ok(count),
    }
}

pub(super) fn seconds(option: &str, text: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(number(option, text)?)
        .map_err(|_| format!("{option} needs a number of seconds, got '{text}'"))
}

pub(super) fn milliseconds(option: &str, text: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(number::<f64>(option, text)? / 1000.0)
        .map_err(|_| format!("{option} needs a number of milliseconds, got '{text}'"))
}
