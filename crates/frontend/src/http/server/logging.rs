//! `/v2/logging`: shows and changes the log settings.
use http::{Method, StatusCode};
use kserve::{
    json_text::write_string,
    log_control::{self, LogChange, LogState, UnknownLogFormat},
};
use vocabulary::Error;

use crate::http::{
    call::HttpCall,
    context::HttpContext,
    json::{Document, JsonValue},
    reply::{self, HttpOutcome},
};

/// `GET` and `POST /v2/logging`
pub(super) async fn answer(context: &HttpContext, call: &mut HttpCall<'_>) -> HttpOutcome {
    let log = context.options.log.clone().ok_or_else(log_control::absent)?;
    let state = if *call.method == Method::POST {
        let change = context.read_members(call.body, change).await?;
        log.apply(&change).map_err(|UnknownLogFormat| unknown_format(&change))?
    } else {
        log.state()
    };
    Ok(reply::json(StatusCode::OK, show(&state)))
}

/// The reference answers with status 503 (P-W63).
fn unknown_format(change: &LogChange) -> Error {
    let setting = change.format.as_deref().unwrap_or_default();
    Error::invalid(format!("invalid argument for --log_format, got: {setting}"))
}

/// What the body changes. As in the reference, the file is checked first, and unknown members and nulls are ignored.
fn change(json: &[u8]) -> Result<LogChange, Error> {
    let document = Document::parse_members(json)?;
    let setting = |name| document.root().find(name).filter(|value| !value.is_null());
    let switch = |name| setting(name).map(JsonValue::as_bool).transpose();
    if setting("log_file").is_some() {
        return Err(log_control::fixed_file());
    }
    Ok(LogChange {
        info: switch("log_info")?,
        warning: switch("log_warning")?,
        error: switch("log_error")?,
        verbose_level: setting("log_verbose_level")
            .map(|level| level.as_uint().map(log_control::verbosity))
            .transpose()?,
        format: setting("log_format")
            .map(|format| format.as_text().map(std::borrow::Cow::into_owned))
            .transpose()?,
    })
}

fn show(state: &LogState) -> Vec<u8> {
    let LogState { file, info, warning, error, verbose_level, format } = state;
    let mut shown = br#"{"log_file":"#.to_vec();
    write_string(&mut shown, file.as_bytes());
    let rest = format!(
        r#","log_info":{info},"log_warning":{warning},"log_error":{error},"log_verbose_level":{verbose_level},"log_format":"{format}"}}"#
    );
    shown.extend_from_slice(rest.as_bytes());
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::status;

    fn refused(json: &[u8]) -> (u16, String) {
        let error = change(json).unwrap_err();
        (status(error.code).as_u16(), error.message.into_owned())
    }

    #[test]
    fn a_change_has_only_what_the_client_names() {
        assert_eq!(change(b"{}"), Ok(LogChange::default()));
        assert_eq!(change(br#"{"log_info":null,"log_file":null,"other":3}"#), Ok(LogChange::default()));
        let all = br#"{"log_info":false,"log_warning":true,"log_error":false,"log_verbose_level":2,"log_format":"x"}"#;
        let expected = LogChange {
            info: Some(false),
            warning: Some(true),
            error: Some(false),
            verbose_level: Some(2),
            format: Some("x".to_owned()),
        };
        assert_eq!(change(all), Ok(expected));
    }

    #[test]
    fn a_level_beyond_all_levels_is_the_highest() {
        let level = |json: &[u8]| change(json).unwrap().verbose_level;
        assert_eq!(level(br#"{"log_verbose_level":18446744073709551615}"#), Some(i32::MAX.unsigned_abs()));
        assert_eq!(level(br#"{"log_verbose_level":4000000000}"#), Some(i32::MAX.unsigned_abs()));
    }

    #[test]
    fn wrong_members_get_the_texts_of_the_reference() {
        let text = "log file location can not be updated through network protocol";
        assert_eq!(refused(br#"{"log_info":3,"log_file":3}"#), (501, text.into()));
        for name in ["log_info", "log_warning", "log_error"] {
            let text = "attempt to access JSON non-boolean as boolean";
            assert_eq!(refused(format!(r#"{{"{name}":"true"}}"#).as_bytes()), (500, text.into()));
        }
        let text = "attempt to access JSON non-unsigned-integer as unsigned-integer";
        for level in ["-1", "1.0", "\"1\""] {
            let json = format!(r#"{{"log_verbose_level":{level}}}"#);
            assert_eq!(refused(json.as_bytes()), (500, text.into()));
        }
        let text = "attempt to access JSON non-string as string";
        assert_eq!(refused(br#"{"log_format":3}"#), (500, text.into()));
        let text = "failed to parse the request JSON buffer: The document is empty. at 0";
        assert_eq!(refused(b""), (500, text.into()));
    }

    #[test]
    fn the_settings_are_shown_in_the_order_of_the_reference() {
        let state = LogState {
            file: "a\"b".to_owned(),
            info: true,
            warning: false,
            error: true,
            verbose_level: 7,
            format: "ISO8601",
        };
        let expected = r#"{"log_file":"a\"b","log_info":true,"log_warning":false,"log_error":true,"log_verbose_level":7,"log_format":"ISO8601"}"#;
        assert_eq!(String::from_utf8(show(&state)).unwrap(), expected);
    }
}
