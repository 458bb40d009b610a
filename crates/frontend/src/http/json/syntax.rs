//! What the reader and the writer share: errors and their texts, numbers, and where the plain part of a string ends.
use vocabulary::Error;

/// An error in the grammar, and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonSyntaxError {
    /// One of the texts in [`reason`].
    pub(crate) reason: &'static str,
    /// Byte offset.
    pub(crate) at: usize,
}

/// The texts of RapidJSON 1.1.0 (`error/en.h`), which Triton is built with.
pub(crate) mod reason {
    pub(crate) const EMPTY: &str = "The document is empty.";
    pub(crate) const NOT_SINGULAR: &str = "The document root must not be followed by other values.";
    pub(crate) const INVALID_VALUE: &str = "Invalid value.";
    pub(crate) const MISSING_NAME: &str = "Missing a name for object member.";
    pub(crate) const MISSING_COLON: &str = "Missing a colon after a name of object member.";
    pub(crate) const MISSING_COMMA_IN_OBJECT: &str = "Missing a comma or '}' after an object member.";
    pub(crate) const MISSING_COMMA_IN_ARRAY: &str = "Missing a comma or ']' after an array element.";
    pub(crate) const HEX_DIGIT: &str = "Incorrect hex digit after \\u escape in string.";
    pub(crate) const SURROGATE: &str = "The surrogate pair in string is invalid.";
    pub(crate) const ESCAPE: &str = "Invalid escape character in string.";
    pub(crate) const QUOTATION_MARK: &str = "Missing a closing quotation mark in string.";
    pub(crate) const TOO_BIG: &str = "Number too big to be stored in double.";
    pub(crate) const FRACTION: &str = "Miss fraction part in number.";
    pub(crate) const EXPONENT: &str = "Miss exponent in number.";
    /// Not one of them. No client gets this text: it has gone, or gets the error that says why.
    pub(crate) const STOPPED: &str = "The reading was stopped.";
}

/// The error texts of the accessors of Triton's JSON wrapper (`triton_json.h`).
pub(crate) mod access {
    pub(crate) const ARRAY: &str = "attempt to access JSON non-array as array";
    pub(crate) const STRING: &str = "attempt to access JSON non-string as string";
    pub(crate) const BOOLEAN: &str = "attempt to access JSON non-boolean as boolean";
    pub(crate) const SIGNED: &str = "attempt to access JSON non-signed-integer as signed-integer";
    pub(crate) const UNSIGNED: &str = "attempt to access JSON non-unsigned-integer as unsigned-integer";
    pub(crate) const NUMBER: &str = "attempt to access JSON non-number as double";
    pub(crate) const MEMBERS: &str = "attempt to get members for non-object";
    pub(crate) const OBJECT: &str = "attempt to access JSON non-object as object";
}

impl From<JsonSyntaxError> for Error {
    fn from(error: JsonSyntaxError) -> Self {
        Self::internal(format!("failed to parse the request JSON buffer: {} at {}", error.reason, error.at))
    }
}

/// Prefixes an error's text with the action that failed.
pub(crate) fn during(what: &str) -> impl Fn(Error) -> Error + '_ {
    move |error| Error::new(error.code, format!("{what}: {error}"))
}

/// A number as the parser classifies it. The class determines which accessors accept the number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    /// No fraction, no exponent, from -2^63 to 2^63 - 1.
    Int(i64),
    /// No fraction, no exponent, from 2^63 to 2^64 - 1.
    Uint(u64),
    /// Everything else.
    Double(f64),
}

impl Number {
    /// The nearest double.
    pub(crate) fn as_double(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "rounding is what the conversion means")]
        match self {
            Self::Int(value) => value as f64,
            Self::Uint(value) => value as f64,
            Self::Double(value) => value,
        }
    }
}
