//! The error of a failed call of the runtime.
use std::borrow::Cow;

use vocabulary::{Error, FailureReason};

/// A failed call: the runtime's code and message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("onnx runtime error {code}: {message}")]
pub(crate) struct OrtError {
    /// `OrtErrorCode`. It is a number, because a newer runtime may have more codes.
    pub(crate) code: i32,
    /// The runtime's message.
    pub(crate) message: String,
}

impl OrtError {
    /// What the runtime has reported. The whole message goes to the log if verbose lines are wanted there.
    pub(super) fn of_runtime(code: i32, message: String) -> Self {
        let message = match without_source_places(&message) {
            Cow::Borrowed(_) => message,
            Cow::Owned(shorter) => {
                log::debug!("onnx runtime error {code}: {message}");
                shorter
            }
        };
        Self { code, message }
    }

    /// A contradiction that this wrapper finds before the runtime does.
    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Self { code: ort_sys::OrtErrorCode::ORT_INVALID_ARGUMENT as i32, message: message.into() }
    }
}

impl From<OrtError> for Error {
    fn from(failure: OrtError) -> Self {
        Self::internal(failure.to_string()).because(FailureReason::Backend)
    }
}

/// Leaves out the places in the runtime's own source, `/path/file.cc:12 void f(int) const `: they help nobody who serves a
/// model. What the runtime has found wrong follows them.
fn without_source_places(message: &str) -> Cow<'_, str> {
    let mut rest = message;
    let mut shorter = String::new();
    while let Some((before, after)) = next_place(rest) {
        shorter.push_str(before);
        if !before.is_empty() && !before.ends_with(' ') {
            shorter.push(' ');
        }
        rest = after;
    }
    // A message that is a place and nothing else stays.
    if rest.len() == message.len() || rest.trim().is_empty() {
        return Cow::Borrowed(message);
    }
    shorter.push_str(rest);
    Cow::Owned(shorter)
}

/// What stands before the first place of a source file, and what follows the signature behind it.
fn next_place(text: &str) -> Option<(&str, &str)> {
    let ends = [".cc:", ".cpp:", ".h:", ".cuh:", ".cu:"];
    let (path_end, line) = ends
        .iter()
        .filter_map(|end| text.find(end).map(|at| (at, at + end.len())))
        .min_by_key(|(at, _)| *at)?;
    let path = text[..path_end].rfind([' ', ':']).map_or(0, |at| at + 1);
    let (number, signature) = text[line..].split_once(' ')?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((&text[..path], after_signature(signature)?))
}

/// What follows the signature of a C++ function: the last of its parameter lists, and qualifiers.
fn after_signature(text: &str) -> Option<&str> {
    let mut rest = &text[text.find('(')?..];
    loop {
        rest = after_group(rest, ('(', ')'))?;
        // The parameters of a lambda or of `operator()` are followed by more of the name.
        match rest.strip_prefix([':', '>', '(']) {
            Some(_) => rest = &rest[rest.find('(')?..],
            None => break,
        }
    }
    rest = rest.strip_prefix(" const").unwrap_or(rest);
    if let Some(substitutions) = rest.strip_prefix(' ').filter(|rest| rest.starts_with("[with ")) {
        rest = after_group(substitutions, ('[', ']'))?;
    }
    rest.strip_prefix(' ').or_else(|| rest.is_empty().then_some(rest))
}

/// What follows the bracket that closes the first one of a text.
fn after_group(text: &str, (open, close): (char, char)) -> Option<&str> {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        if character == open {
            depth += 1;
        } else if character == close {
            depth -= 1;
            if depth == 0 {
                return Some(&text[at + close.len_utf8()..]);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_no_places_of_the_runtimes_source() {
        for (message, shorter) in [
            (
                "Non-zero status code returned while running Add node. Name:'' Status Message: \
                 /onnxruntime_src/onnxruntime/core/providers/cpu/math/element_wise_ops.h:560 void \
                 onnxruntime::BroadcastIterator::Append(ptrdiff_t, ptrdiff_t) axis == 1 || axis == largest was false. \
                 Attempting to broadcast an axis by a dimension other than 1. 3 by 4",
                "Non-zero status code returned while running Add node. Name:'' Status Message: axis == 1 || axis == \
                 largest was false. Attempting to broadcast an axis by a dimension other than 1. 3 by 4",
            ),
            (
                "Load model from m.onnx failed:/onnxruntime_src/onnxruntime/core/graph/model_load_utils.h:46 void \
                 onnxruntime::model_load_utils::ValidateOpsetForDomain(const std::unordered_map<std::string, int>&, \
                 const onnxruntime::logging::Logger&, bool, const string&, int) ONNX Runtime only *guarantees* support \
                 for models stamped with official released onnx opset versions.",
                "Load model from m.onnx failed: ONNX Runtime only *guarantees* support for models stamped with official \
                 released onnx opset versions.",
            ),
            (
                "a.cc:1 common::Status f::<lambda(int)>::operator()(int) const [with T = std::vector<int>[3]] it is (not) so",
                "it is (not) so",
            ),
            ("a.cc:1 void f() b; c.cc:22 int g() d", "b; d"),
        ] {
            assert_eq!(without_source_places(message), shorter);
        }
        for whole in [
            "",
            "no place",
            "a.cc: text",
            "a.cc:1 no function",
            "a.cc:1 void f()",
            "a.h:x f() b",
            "a.cc:1 f(( b",
        ] {
            assert_eq!(without_source_places(whole), whole);
        }
    }
}
