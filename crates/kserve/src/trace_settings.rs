//! The settings of tracing, as both protocols read and change them.
use engine::Engine;
use trace::{
    Tracer,
    settings::{FieldChange, SettingsChange, TraceLevels},
};
use vocabulary::Error;

/// What a client says about a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenSetting {
    /// The setting gets the value of the layer before it.
    Clear,
    /// These values; only levels may have several.
    Values(Vec<String>),
}

/// The words of an error that differ between the protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountErrorForm {
    /// HTTP: without a space before the value.
    Http,
    /// gRPC: with a space.
    Grpc,
}

/// The settings that a client may change, in the order in which the server reads them.
pub const CHANGEABLE: [&str; 4] = ["trace_level", "trace_rate", "trace_count", "log_frequency"];

/// The setting that no client may change.
pub const FILE: &str = "trace_file";

/// The error for a request that names [`FILE`].
pub fn file_is_fixed() -> Error {
    Error::unsupported("trace file location can not be updated through network protocol")
}

/// Checks that the server has a model of that name that can be used.
///
/// # Errors
/// INVALID_ARG, as in Triton (P-W54).
pub fn check_model(engine: &Engine, model: Option<&str>) -> Result<(), Error> {
    match model {
        Some(name) if engine.model(name, None).is_err() && !engine.demands().would_load(name) => {
            Err(Error::invalid(format!("Request for unknown model : {name}")))
        }
        _ => Ok(()),
    }
}

/// Changes the settings of a model, or of all models. `setting_of` returns what the client says about a setting.
///
/// # Errors
/// A value is not valid, or the changed settings cannot trace.
pub fn change(
    tracer: &Tracer,
    model: Option<&str>,
    form: CountErrorForm,
    mut setting_of: impl FnMut(&str) -> Result<Option<GivenSetting>, Error>,
) -> Result<(), Error> {
    let [level, rate, count, frequency] = CHANGEABLE;
    let levels = match setting_of(level)? {
        None => FieldChange::Keep,
        Some(GivenSetting::Clear) => FieldChange::Clear,
        Some(GivenSetting::Values(names)) => {
            TraceLevels::named(names.iter().map(String::as_str))?.map_or(FieldChange::Keep, FieldChange::Set)
        }
    };
    let rate = number(rate, setting_of(rate)?, |text| unsigned(rate, text))?;
    let count = number(count, setting_of(count)?, |text| limit(count, text, form))?;
    let log_frequency = number(frequency, setting_of(frequency)?, |text| unsigned(frequency, text))?;
    let change = SettingsChange { levels, rate, count, log_frequency };
    if change == SettingsChange::default() {
        return Ok(());
    }
    tracer.change(model, change)
}

fn number<T>(
    name: &str,
    setting: Option<GivenSetting>,
    parse: impl Fn(&str) -> Result<T, Error>,
) -> Result<FieldChange<T>, Error> {
    match setting {
        None => Ok(FieldChange::Keep),
        Some(GivenSetting::Clear) => Ok(FieldChange::Clear),
        Some(GivenSetting::Values(values)) => match &values[..] {
            [value] => parse(value).map(FieldChange::Set),
            _ => Err(Error::invalid(format!("expect only 1 value for '{name}'"))),
        },
    }
}

/// A number of 32 bits without a sign. A negative one is out of range, and not a large one (P-W4).
fn unsigned(name: &str, text: &str) -> Result<u32, Error> {
    let value = leading_integer(name, text)?;
    u32::try_from(value).map_err(|_| out_of_range(name, "0", u32::MAX.into(), text))
}

/// A number of traces; -1 for no limit.
fn limit(name: &str, text: &str, form: CountErrorForm) -> Result<Option<u32>, Error> {
    let value = leading_integer(name, text)?;
    let Ok(value) = i32::try_from(value) else {
        return Err(out_of_range(name, "-1", i64::from(i32::MAX), text));
    };
    match value {
        -1 => Ok(None),
        ..-1 => {
            let space = if form == CountErrorForm::Grpc { " " } else { "" };
            Err(Error::invalid(format!(
                "Unable to parse '{name}'. Expecting value >= -1, got:{space}{value}"
            )))
        }
        0.. => Ok(Some(value.unsigned_abs())),
    }
}

/// The number at the beginning of a text. What follows the number is ignored, as C's `stoi` does. A number that is too
/// large for the type is the largest one.
fn leading_integer(name: &str, text: &str) -> Result<i64, Error> {
    let trimmed = text.trim_start();
    let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(Error::invalid(format!("Unable to parse '{name}', got: {text}")));
    }
    let number = &trimmed[..trimmed.len() - unsigned.len() + digits];
    let too_large = if number.starts_with('-') { i64::MIN } else { i64::MAX };
    Ok(number.parse().unwrap_or(too_large))
}

fn out_of_range(name: &str, least: &str, most: i64, text: &str) -> Error {
    Error::invalid(format!(
        "Unable to parse '{name}', value is out of range [ {least}, {most} ], got: {text}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(name: &str, values: &[&str]) -> Result<(), String> {
        let setting = GivenSetting::Values(values.iter().map(|value| (*value).to_owned()).collect());
        change(&Tracer::off(), None, CountErrorForm::Http, |requested| {
            Ok((requested == name).then(|| setting.clone()))
        })
        .map_err(|error| error.message.into_owned())
    }

    #[test]
    fn wrong_values_are_refused_in_the_words_of_the_reference() {
        for (name, value, text) in [
            ("trace_rate", "x", "Unable to parse 'trace_rate', got: x"),
            ("trace_rate", "", "Unable to parse 'trace_rate', got: "),
            (
                "trace_rate",
                "99999999999",
                "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 99999999999",
            ),
            (
                "trace_rate",
                "-1",
                "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1",
            ),
            ("trace_count", "-2", "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"),
            (
                "trace_count",
                "99999999999999999999",
                "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], got: 99999999999999999999",
            ),
            ("log_frequency", "x", "Unable to parse 'log_frequency', got: x"),
        ] {
            assert_eq!(changed(name, &[value]), Err(text.to_owned()));
        }
        assert_eq!(
            changed("trace_rate", &["1", "2"]),
            Err("expect only 1 value for 'trace_rate'".to_owned())
        );
        let both = changed("trace_level", &["OFF", "TENSORS"]);
        assert_eq!(both, Err("Expect only one trace level 'OFF' is specified".to_owned()));
        assert!(changed("trace_level", &["TENSORS"]).is_err());
        assert_eq!(changed("trace_rate", &["4294967295"]), Ok(()));
    }

    #[test]
    fn numbers_are_read_as_c_does() {
        for (name, value) in
            [("trace_rate", "5x"), ("trace_count", "-1"), ("log_frequency", " 7"), ("other", "x")]
        {
            assert_eq!(changed(name, &[value]), Ok(()), "{name}");
        }
        assert_eq!(unsigned("trace_rate", "5x").unwrap(), 5);
        assert_eq!(limit("trace_count", "-1", CountErrorForm::Http).unwrap(), None);
        let error = limit("trace_count", "-2", CountErrorForm::Grpc).unwrap_err();
        assert!(error.message.ends_with("got: -2"), "{error}");
    }

    #[test]
    fn levels_that_are_unknown_change_nothing() {
        assert_eq!(changed("trace_level", &["timestamps"]), Ok(()));
        assert_eq!(changed("trace_level", &[]), Ok(()));
    }
}
