//! `LogSettings`: shows and changes the log settings.
use std::collections::BTreeMap;

use kserve::log_control::{self, LogChange, LogControl, LogState, UnknownLogFormat};
use proto::{
    LogSettingsRequest, LogSettingsResponse,
    log_settings_request::{SettingValue, setting_value::ParameterChoice},
    log_settings_response::{SettingValue as ShownValue, setting_value::ParameterChoice as Shown},
};
use vocabulary::Error;

/// Applies the settings of the request, if there are any, and shows all.
///
/// # Errors
/// The text of the reference about the first wrong setting. Then nothing has changed (P-W34).
pub(super) fn answer(
    log: Option<&dyn LogControl>,
    request: &LogSettingsRequest,
) -> Result<LogSettingsResponse, Error> {
    let log = log.ok_or_else(log_control::absent)?;
    let change = change(&request.settings)?;
    let unknown_format = |UnknownLogFormat| {
        let setting = change.format.as_deref().unwrap_or_default();
        Error::invalid(format!("invalid argument for log_format, got: {setting}"))
    };
    Ok(show(log.apply(&change).map_err(unknown_format)?))
}

/// What the settings change. As in the reference, the file is checked first, and unknown names are ignored.
fn change(settings: &BTreeMap<String, SettingValue>) -> Result<LogChange, Error> {
    let setting = |name: &str| settings.get(name).map(|value| value.parameter_choice.as_ref());
    let switch = |name: &str| match setting(name) {
        None => Ok(None),
        Some(Some(ParameterChoice::BoolParam(value))) => Ok(Some(*value)),
        Some(_) => Err(Error::invalid(format!("expect boolean for '{name}'"))),
    };
    if settings.contains_key("log_file") {
        return Err(log_control::fixed_file());
    }
    Ok(LogChange {
        info: switch("log_info")?,
        warning: switch("log_warning")?,
        error: switch("log_error")?,
        verbose_level: match setting("log_verbose_level") {
            None => None,
            Some(Some(ParameterChoice::Uint32Param(level))) => Some(log_control::verbosity((*level).into())),
            Some(_) => return Err(Error::invalid("expect int32 for 'log_verbose_level'")),
        },
        format: match setting("log_format") {
            None => None,
            Some(Some(ParameterChoice::StringParam(format))) => Some(format.clone()),
            Some(_) => return Err(Error::invalid("expect string for 'log_format'")),
        },
    })
}

fn show(state: LogState) -> LogSettingsResponse {
    let settings = [
        ("log_file", Shown::StringParam(state.file)),
        ("log_info", Shown::BoolParam(state.info)),
        ("log_warning", Shown::BoolParam(state.warning)),
        ("log_error", Shown::BoolParam(state.error)),
        ("log_verbose_level", Shown::Uint32Param(state.verbose_level)),
        ("log_format", Shown::StringParam(state.format.to_owned())),
    ];
    let value = |shown| ShownValue { parameter_choice: Some(shown) };
    LogSettingsResponse { settings: settings.map(|(name, shown)| (name.to_owned(), value(shown))).into() }
}

#[cfg(test)]
mod tests {
    use vocabulary::ErrorCode;

    use super::*;

    fn settings(pairs: &[(&str, Option<ParameterChoice>)]) -> BTreeMap<String, SettingValue> {
        let value = |choice: &Option<ParameterChoice>| SettingValue { parameter_choice: choice.clone() };
        pairs.iter().map(|(name, choice)| ((*name).to_owned(), value(choice))).collect()
    }

    #[test]
    fn a_change_has_only_what_the_client_names() {
        use ParameterChoice::{BoolParam, StringParam, Uint32Param};
        assert_eq!(change(&settings(&[("other", None)])), Ok(LogChange::default()));
        let settings = settings(&[
            ("log_info", Some(BoolParam(false))),
            ("log_warning", Some(BoolParam(true))),
            ("log_error", Some(BoolParam(false))),
            ("log_verbose_level", Some(Uint32Param(u32::MAX))),
            ("log_format", Some(StringParam("x".to_owned()))),
        ]);
        let expected = LogChange {
            info: Some(false),
            warning: Some(true),
            error: Some(false),
            verbose_level: Some(i32::MAX.unsigned_abs()),
            format: Some("x".to_owned()),
        };
        assert_eq!(change(&settings), Ok(expected));
    }

    #[test]
    fn wrong_values_get_the_texts_of_the_reference() {
        let wrong = Some(ParameterChoice::Uint32Param(1));
        let text = Some(ParameterChoice::StringParam("1".to_owned()));
        for (name, value, expected) in [
            ("log_info", wrong.clone(), "expect boolean for 'log_info'"),
            ("log_warning", None, "expect boolean for 'log_warning'"),
            ("log_error", text.clone(), "expect boolean for 'log_error'"),
            ("log_verbose_level", text, "expect int32 for 'log_verbose_level'"),
            ("log_format", wrong.clone(), "expect string for 'log_format'"),
        ] {
            let error = change(&settings(&[(name, value)])).unwrap_err();
            assert_eq!((error.code, &*error.message), (ErrorCode::InvalidArgument, expected));
        }
        let error = change(&settings(&[("log_file", None), ("log_info", wrong)])).unwrap_err();
        assert_eq!(error, log_control::fixed_file());
    }
}
