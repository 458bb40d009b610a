//! Options from the environment and from a file (`--config`).
//!
//! The command line takes precedence over the environment, and the environment over the file: an option that was given
//! higher up is not read further down, also if it may be given several times.
use std::collections::BTreeSet;

use super::{
    environment::ProcessEnvironment,
    meaning::ResolvedOptions,
    options_file::{self, LayeredOption},
    refusal::BadOption,
    table::{self, CONFIG, OptionSpec},
    tokenizer::ArgumentTokens,
    typed::TypedOptions,
    unread_variables,
};

/// Reads the options that `line` does not have from the environment and from the file.
///
/// # Errors
/// A value breaks the rule of its option, or the file cannot be read.
pub(super) fn apply(
    line: ArgumentTokens,
    environment: &ProcessEnvironment,
    typed: &mut TypedOptions,
) -> Result<(), BadOption> {
    let (mut given, config) = names_on(line);
    let config = config.or_else(|| environment.options.get(CONFIG).cloned());
    let of_environment = of_environment(environment, typed);
    let of_file = config.map_or(Ok(Vec::new()), |path| options_file::read(&path))?;
    for layer in [of_environment, of_file] {
        let mut here = BTreeSet::new();
        for LayeredOption { option, value, origin } in layer {
            if given.contains(option.name) {
                continue;
            }
            if !here.insert(option.name) && !option.may_repeat() {
                return Err(BadOption::plain(format!("{origin}: the option takes one value, not several")));
            }
            set(typed, option, &value)
                .map_err(|text| BadOption::plain(format!("{origin}: {text}")).advising(option.advice()))?;
        }
        given.extend(here);
    }
    Ok(())
}

/// Sets an option that was not given on the command line.
pub(super) fn set(typed: &mut TypedOptions, option: &'static OptionSpec, value: &str) -> Result<(), String> {
    if option.is_flag() && !super::values::boolean(value)? {
        return Ok(());
    }
    // The rule of C that a number ends where its digits end is for command lines of scripts only.
    if !option.is_whole_number(value) {
        return Err(format!("Invalid option value. Got {value}"));
    }
    option.apply(typed, value)?;
    table::note(typed, option, value);
    Ok(())
}

/// The names of the options on a command line, and the file that it names. What is wrong with the line is told later.
fn names_on(mut line: ArgumentTokens) -> (BTreeSet<&'static str>, Option<String>) {
    let (mut names, mut config) = (BTreeSet::new(), None);
    while let Ok(Some(given)) = line.next_option() {
        names.insert(given.option.name);
        if given.option.name == CONFIG {
            config = Some(given.value);
        }
    }
    // Arguments are repositories, too.
    if !line.positionals().is_empty() {
        names.extend(["model-repository", "model-store"]);
    }
    (names, config)
}

/// An option that may be given several times has a value on each line of its variable.
fn of_environment(environment: &ProcessEnvironment, typed: &mut TypedOptions) -> Vec<LayeredOption> {
    let mut found = Vec::new();
    typed.warnings.extend_from_slice(&environment.warnings);
    typed.warnings.extend(environment.unread.iter().map(|name| unread_variables::warning(name)));
    for option in table::all().filter(|option| option.name != CONFIG) {
        let (Some(variable), Some(text)) = (option.variable(), environment.options.get(option.name)) else {
            continue;
        };
        // Kubernetes gives containers such a variable for each service, here one with the name `nereid-http`.
        if unread_variables::is_service_address(text) {
            typed.warnings.push(format!(
                "Warning: the environment variable {variable} describes a service of Kubernetes and is not read."
            ));
            continue;
        }
        let values = text.lines().map(|value| LayeredOption {
            option,
            value: value.to_owned(),
            origin: format!("environment variable {variable}"),
        });
        found.extend(values);
    }
    found
}

impl ResolvedOptions {
    /// Whether the options were also looked for in a file (`--config`).
    pub fn has_file(&self, environment: &ProcessEnvironment) -> bool {
        self.given.contains_key(CONFIG) || environment.options.contains_key(CONFIG)
    }
}
