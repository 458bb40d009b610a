//! The expected result of an exchange: the recording, patched where the server deliberately answers differently.
use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;
use testing::golden::{Exchange, HttpResponse, Message, Record};

/// One change to a recording.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patch {
    /// The HTTP status.
    Status(u16),
    /// This header, which clients act on, has this value.
    Header(&'static str, &'static str),
    /// This header, which clients act on, is missing.
    NoHeader(&'static str),
    /// The whole body, without compression.
    Body(&'static str),
    /// The recorded body was compressed with gzip. This server's body is not.
    Inflated,
    /// In the body, or in each text of a message, the first text becomes the second.
    Swap(&'static str, &'static str),
    /// Behind the recorded text of an error stands this.
    Remedy(&'static str),
    /// Whether the connection stays open.
    KeptOpen(bool),
    /// gRPC: the call ends with this code and text.
    Code(&'static str, &'static str),
    /// Bytes on a socket: the bytes that the server sends.
    Raw(&'static str),
}

/// Applies the patches.
pub(crate) fn patched(mut record: Record, patches: &[Patch]) -> Record {
    for patch in patches {
        match &mut record.exchange {
            Exchange::Http { response, .. } => patch_http(response, *patch),
            Exchange::Raw { response, closed, .. } => match *patch {
                Patch::Raw(text) => *response = Some(text.into()),
                Patch::KeptOpen(open) => *closed = !open,
                other => unfit(&record.name, other),
            },
            Exchange::Unary { code, details, answer, .. } => match *patch {
                Patch::Code(name, text) => (*code, *details, *answer) = (name.into(), text.into(), None),
                Patch::Remedy(end) => details.push_str(end),
                Patch::Swap(from, to) => {
                    *details = details.replace(from, to);
                    if let Some(Message::Json(message)) = answer {
                        swap(message, from, to);
                    }
                }
                other => unfit(&record.name, other),
            },
            Exchange::Stream { responses, .. } => match *patch {
                Patch::Swap(from, to) => responses.iter_mut().for_each(|response| swap(response, from, to)),
                other => unfit(&record.name, other),
            },
            Exchange::Told { response, .. } => match *patch {
                Patch::Swap(from, to) => swap(response, from, to),
                other => unfit(&record.name, other),
            },
        }
    }
    record
}

fn patch_http(response: &mut HttpResponse, patch: Patch) {
    let text =
        |response: &HttpResponse| String::from_utf8(response.body.clone()).expect("a patched body is text");
    match patch {
        Patch::Status(status) => response.status = status,
        Patch::Header(name, value) => {
            response.headers.retain(|(key, _)| !key.eq_ignore_ascii_case(name));
            response.headers.push((name.into(), value.into()));
        }
        Patch::NoHeader(name) => response.headers.retain(|(key, _)| !key.eq_ignore_ascii_case(name)),
        Patch::Body(text) => response.body = text.into(),
        Patch::Inflated => {
            let mut plain = Vec::new();
            GzDecoder::new(&response.body[..]).read_to_end(&mut plain).expect("the recorded body is gzip");
            response.body = plain;
        }
        Patch::Swap(from, to) => response.body = text(response).replace(from, to).into_bytes(),
        Patch::Remedy(end) => {
            let error = text(response);
            let error = error.strip_suffix(r#""}"#).expect("the recorded body is an error");
            response.body = format!(r#"{error}{end}"}}"#).into();
        }
        Patch::KeptOpen(open) => response.kept_open = open,
        other => unfit("a HTTP exchange", other),
    }
}

fn swap(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) => *text = text.replace(from, to),
        Value::Array(items) => items.iter_mut().for_each(|item| swap(item, from, to)),
        Value::Object(members) => members.values_mut().for_each(|member| swap(member, from, to)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn unfit(name: &str, patch: Patch) {
    panic!("{name} cannot be patched with {patch:?}");
}
