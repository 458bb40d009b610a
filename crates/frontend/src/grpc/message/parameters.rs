//! Reads the parameters of a gRPC request: each value has one of five types, and the type matters.
//!
//! As Triton: infer_handler.cc, SetInferenceRequestMetadata.
use std::borrow::Cow;

use inference::Request;
use kserve::{lengths::MAX_ID, parameters as meaning};
use vocabulary::{Error, Name, Parameter, check_length};

use super::decode::{GrpcParameter, InferParameters};

/// The parameter that asks for an empty final response of a decoupled model. It is the only key with the server's
/// prefix that clients may use.
const EMPTY_FINAL: &str = "triton_enable_empty_final_response";

/// Reads the parameters into `request`. Returns true if the client asks for an empty final response.
///
/// # Errors
/// INVALID_ARG for a value of the wrong type or a reserved name.
pub(crate) fn read(parameters: &InferParameters<'_>, request: &mut Request) -> Result<bool, Error> {
    let mut empty_final = false;
    for (key, choice) in parameters {
        check_length("the key of a parameter", key, MAX_ID)?;
        match (&**key, choice) {
            ("sequence_id", Some(GrpcParameter::Int64(id))) => {
                meaning::set_correlation_number(request, id.cast_unsigned());
            }
            ("sequence_id", Some(GrpcParameter::Uint64(id))) => meaning::set_correlation_number(request, *id),
            ("sequence_id", Some(GrpcParameter::String(id))) => meaning::set_correlation_text(request, id),
            ("sequence_id", _) => return Err(wrong_type(key, "int64_param or string_param")),
            ("sequence_start", choice) => request.sequence.start = flag(key, choice.as_ref())?,
            ("sequence_end", choice) => request.sequence.end = flag(key, choice.as_ref())?,
            ("priority", Some(GrpcParameter::Uint64(priority))) => request.priority = *priority,
            ("priority", Some(GrpcParameter::Int64(priority))) => {
                request.priority = not_negative(key, *priority)?;
            }
            ("priority", _) => return Err(wrong_type(key, "int64_param or uint64_param")),
            ("timeout", Some(GrpcParameter::Int64(timeout))) => {
                meaning::set_timeout_us(request, not_negative(key, *timeout)?);
            }
            ("timeout", _) => return Err(wrong_type(key, "int64_param")),
            (EMPTY_FINAL, choice) => empty_final = flag(key, choice.as_ref())?,
            (key, _) if key.starts_with(meaning::OWN_PREFIX) => return Err(own_prefix()),
            (key, choice) => request.parameters.push((Name::new(key), custom(key, choice.as_ref())?)),
        }
    }
    Ok(empty_final)
}

fn flag(key: &str, choice: Option<&GrpcParameter<'_>>) -> Result<bool, Error> {
    match choice {
        Some(GrpcParameter::Bool(value)) => Ok(*value),
        _ => Err(wrong_type(key, "bool_param")),
    }
}

fn custom(key: &str, choice: Option<&GrpcParameter<'_>>) -> Result<Parameter, Error> {
    match choice {
        Some(GrpcParameter::Bool(value)) => Ok(Parameter::Bool(*value)),
        Some(GrpcParameter::Int64(value)) => Ok(Parameter::Int(*value)),
        Some(GrpcParameter::String(value)) => Ok(Parameter::String(Name::new(value))),
        Some(GrpcParameter::Double(value)) => Ok(Parameter::Double(*value)),
        Some(GrpcParameter::Uint64(_)) | None => {
            Err(wrong_type(key, "int64_param, bool_param, or string_param"))
        }
    }
}

fn not_negative(key: &str, value: i64) -> Result<u64, Error> {
    u64::try_from(value)
        .map_err(|_| Error::invalid(format!("invalid value for '{key}', expected value >= 0.")))
}

fn wrong_type(key: &str, expected: &str) -> Error {
    Error::invalid(format!("invalid value type for '{key}' parameter, expected {expected}."))
}

fn own_prefix() -> Error {
    let text = Cow::Borrowed(
        "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with \
         'triton_' are allowed: triton_enable_empty_final_response",
    );
    Error::invalid(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use inference::SequenceId;

    use super::*;

    fn read_one(
        key: &'static str,
        choice: Option<GrpcParameter<'static>>,
    ) -> Result<(Request, bool), String> {
        let mut request = Request::default();
        let read = read(&vec![(key.into(), choice)], &mut request);
        read.map(|empty_final| (request, empty_final)).map_err(|error| error.message.into_owned())
    }

    #[test]
    fn a_sequence_id_is_a_number_of_either_sign_or_a_text() {
        let id = |choice| read_one("sequence_id", Some(choice)).unwrap().0.sequence.id;
        let number = |id| std::num::NonZeroU64::new(id).map(SequenceId::Number);
        assert_eq!(id(GrpcParameter::Int64(7)), number(7));
        assert_eq!(id(GrpcParameter::Uint64(u64::MAX)), number(u64::MAX));
        assert_eq!(id(GrpcParameter::String("7".into())), Some(SequenceId::Text("7".into())));
        assert_eq!(id(GrpcParameter::String("".into())), None);
        assert_eq!(
            read_one("sequence_id", Some(GrpcParameter::Bool(true))).unwrap_err(),
            "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."
        );
    }

    #[test]
    fn a_negative_timeout_is_refused() {
        assert_eq!(
            read_one("timeout", Some(GrpcParameter::Int64(-1))).unwrap_err(),
            "invalid value for 'timeout', expected value >= 0."
        );
        let (request, _) = read_one("timeout", Some(GrpcParameter::Int64(1500))).unwrap();
        assert_eq!(request.timeout, Some(Duration::from_micros(1500)));
    }

    #[test]
    fn values_of_the_wrong_type_are_refused_by_name() {
        let expected = [
            ("sequence_start", "invalid value type for 'sequence_start' parameter, expected bool_param."),
            ("timeout", "invalid value type for 'timeout' parameter, expected int64_param."),
            (
                "priority",
                "invalid value type for 'priority' parameter, expected int64_param or uint64_param.",
            ),
            (
                EMPTY_FINAL,
                "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param.",
            ),
            (
                "triton_foo",
                "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with 'triton_' are allowed: triton_enable_empty_final_response",
            ),
            ("u", "invalid value type for 'u' parameter, expected int64_param, bool_param, or string_param."),
        ];
        for (key, text) in expected {
            assert_eq!(read_one(key, None).unwrap_err(), text);
        }
        assert_eq!(
            read_one("priority", Some(GrpcParameter::Int64(-1))).unwrap_err(),
            "invalid value for 'priority', expected value >= 0."
        );
        assert!(read_one("u", Some(GrpcParameter::Uint64(5))).is_err());
    }

    #[test]
    fn other_names_reach_the_model() {
        let (request, empty_final) = read_one("binary_data_output", Some(GrpcParameter::Bool(true))).unwrap();
        assert_eq!(request.parameters, [("binary_data_output".into(), Parameter::Bool(true))]);
        assert!(!empty_final);
        assert!(read_one(EMPTY_FINAL, Some(GrpcParameter::Bool(true))).unwrap().1);
    }
}
