//! ONNX Runtime's telemetry, which is off unless the operator asks for it.
//!
//! Official builds of ONNX Runtime from release 1.29 on start an uploader. It keeps a device id and a queue of events
//! below the home directory, and sends the events. Only a variable of the environment keeps the uploader from starting,
//! and a process may change its environment only while it has one thread. Therefore a program calls
//! [`prevent_telemetry`] before it starts threads. The backend checks the result when it opens the library.
use std::collections::BTreeMap;

use vocabulary::Error;

use crate::{
    ort::{self, Runtime},
    settings,
};

/// The setting of the backend that asks for telemetry.
const SETTING: &str = "telemetry";

/// Keeps ONNX Runtime from sending telemetry, unless the settings ask for it. Each setting has its backend, its name
/// and its value, in the given order.
///
/// A program calls this before it starts threads. In a process of several threads the call changes nothing, and the
/// backend logs a warning when it opens a library that may send telemetry.
pub fn prevent_telemetry<'a>(settings: impl IntoIterator<Item = (Option<&'a str>, &'a str, &'a str)>) {
    let (mut general, mut own) = (BTreeMap::new(), BTreeMap::new());
    for (backend, name, value) in settings {
        match backend {
            None => general.insert(name.to_owned(), value.to_owned()),
            Some(settings::BACKEND_NAME) => own.insert(name.to_owned(), value.to_owned()),
            Some(_) => None,
        };
    }
    // Settings for one backend take precedence over settings for all of them.
    general.append(&mut own);
    // The load of the first model reports a value that is not a boolean.
    if !is_wanted(&general).unwrap_or(false) {
        ort::disable_telemetry_by_environment();
    }
}

/// Whether the settings of the backend ask for telemetry.
///
/// # Errors
/// INVALID_ARGUMENT for a value that is not a boolean.
pub(crate) fn is_wanted(settings: &BTreeMap<String, String>) -> Result<bool, Error> {
    settings.get(SETTING).map_or(Ok(false), |value| native_backend::boolean(value))
}

/// Ends the telemetry of an opened library, and warns if its uploader may have started.
pub(crate) fn end(runtime: &Runtime) {
    if let Err(failure) = runtime.disable_telemetry_events() {
        log::warn!("ONNX Runtime continues to record telemetry events: {failure}");
    }
    if !ort::is_telemetry_disabled_by_environment() {
        log::warn!(
            "ONNX Runtime {} may send telemetry: the process had several threads before the server could disable it; \
             set the environment variable ORT_DISABLE_TELEMETRY=1 before the program starts",
            runtime.version()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telemetry_is_sent_only_if_a_setting_asks_for_it() {
        let wanted = |value: &str| is_wanted(&BTreeMap::from([(SETTING.to_owned(), value.to_owned())]));
        assert_eq!(is_wanted(&BTreeMap::new()), Ok(false));
        assert_eq!(wanted("false"), Ok(false));
        assert_eq!(wanted("true"), Ok(true));
        assert_eq!(wanted("maybe").unwrap_err().message, "failed to convert 'maybe' to boolean");
    }
}
