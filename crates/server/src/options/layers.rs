//! Options from the environment and from a file (`--config`).
//!
//! The command line takes precedence over the environment, and the environment over the file: an option that was given
//! higher up is not read further down, also if it may be given several times.
use std::{collections::BTreeSet, fs};

use toml::{Table, Value};

use super::{
    environment::ProcessEnvironment,
    meaning::GivenOptions,
    refusal::BadOption,
    table::{self, Spec},
    tokenizer::{ArgumentTokens, did_you_mean},
    typed::TypedOptions,
    unread_variables,
};

/// The option that names the file.
const CONFIG: &str = "config";

/// Options that are commands to the program, or say where the others are.
const ONLY_ON_THE_LINE: [&str; 3] = ["help", "version", CONFIG];

/// An option that is not on the command line.
struct LayeredOption {
    option: &'static Spec,
    value: String,
    /// Where the option was given, for errors.
    origin: String,
}

/// The environment variable of an option. `None` if it has none.
pub(super) fn variable(option: &Spec) -> Option<String> {
    let has_one = option.name == CONFIG || !ONLY_ON_THE_LINE.contains(&option.name);
    has_one.then(|| format!("NEREID_{}", option.name.replace('-', "_").to_uppercase()))
}

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
    let of_file = config.map_or(Ok(Vec::new()), |path| of_file(&path))?;
    for layer in [of_environment, of_file] {
        let here: BTreeSet<_> = layer.iter().map(|layered| layered.option.name).collect();
        for LayeredOption { option, value, origin } in layer {
            if given.contains(option.name) {
                continue;
            }
            set(typed, option, &value)
                .map_err(|text| BadOption::plain(format!("{origin}: {text}")).advising(option.advice()))?;
        }
        given.extend(here);
    }
    Ok(())
}

fn set(typed: &mut TypedOptions, option: &'static Spec, value: &str) -> Result<(), String> {
    if option.is_flag() && !super::values::boolean(value)? {
        return Ok(());
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
    (names, config)
}

/// An option that may be given several times has a value on each line of its variable.
fn of_environment(environment: &ProcessEnvironment, typed: &mut TypedOptions) -> Vec<LayeredOption> {
    let mut found = Vec::new();
    typed.warnings.extend(environment.unread.iter().map(|name| unread_variables::warning(name)));
    for option in table::all().filter(|option| option.name != CONFIG) {
        let (Some(variable), Some(text)) = (variable(option), environment.options.get(option.name)) else {
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

/// Whether the options were also looked for in a file.
pub(super) fn has_file(given: &GivenOptions, environment: &ProcessEnvironment) -> bool {
    given.contains_key(CONFIG) || environment.options.contains_key(CONFIG)
}

/// The options in a file.
fn of_file(path: &str) -> Result<Vec<LayeredOption>, BadOption> {
    let refused = |error: String| BadOption::framed(CONFIG, format!("cannot read '{path}': {error}"));
    let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| refused(error.to_string()))?;
    let mut found = Vec::new();
    collect(path, "", table, &mut found)?;
    Ok(found)
}

/// Collects the options of a table whose names begin with `prefix`: `[http]` with `port` is `http-port`.
fn collect(path: &str, prefix: &str, table: Table, found: &mut Vec<LayeredOption>) -> Result<(), BadOption> {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.replace('_', "-"));
        if let Value::Table(group) = value {
            collect(path, &format!("{name}-"), group, found)?;
            continue;
        }
        let option = table::named(&name).filter(|option| !ONLY_ON_THE_LINE.contains(&option.name));
        let option = option.ok_or_else(|| {
            let text = format!("{path}: unrecognized option '{name}'");
            BadOption::plain(text).advising(did_you_mean(&name))
        })?;
        let origin = format!("{path}: {name}");
        let values = texts(value).map_err(|text| BadOption::plain(format!("{origin}: {text}")))?;
        found.extend(values.into_iter().map(|value| LayeredOption { option, value, origin: origin.clone() }));
    }
    Ok(())
}

/// A value as one would type it on the command line; those of a list, one after the other.
fn texts(value: Value) -> Result<Vec<String>, &'static str> {
    Ok(match value {
        Value::String(text) => vec![text],
        Value::Integer(number) => vec![number.to_string()],
        Value::Float(number) => vec![number.to_string()],
        Value::Boolean(boolean) => vec![boolean.to_string()],
        Value::Array(values) => values.into_iter().map(texts).collect::<Result<Vec<_>, _>>()?.concat(),
        Value::Datetime(_) | Value::Table(_) => {
            return Err("a value is a string, a number, true, false, or a list of these");
        }
    })
}
