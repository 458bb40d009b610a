//! Compares a response with the recorded one: status, headers that clients act on, and body.
use std::{io::Read, path::Path};

use flate2::read::{GzDecoder, ZlibDecoder};
use serde_json::Value;
use testing::{
    compare::{difference, without_measures},
    golden::HttpResponse,
    http::Response,
};

/// Headers that clients act on.
const MATTERS: [&str; 6] = [
    "Content-Type",
    "Inference-Header-Content-Length",
    "Content-Encoding",
    "Accept-Encoding",
    "Connection",
    "endpoint-load-metrics",
];

/// Headers that the protocol does not define.
const FOREIGN: [&str; 2] = ["Date", "Server"];

/// The model repository of the recorded server.
const RECORDED_REPOSITORY: &str = "/srv/repo";

/// Compares HTTP responses. For statistics paths, measured values are not compared.
pub(crate) fn http(
    expected: &HttpResponse,
    ours: &Response,
    path: &str,
    repository: &Path,
) -> Result<(), String> {
    if expected.status != ours.status {
        return Err(format!("status {} instead of {}: {}", ours.status, expected.status, ours.text()));
    }
    for name in MATTERS {
        let recorded = expected.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        let recorded = recorded.map(|(_, value)| value.as_str());
        if recorded != ours.header(name) {
            return Err(format!("{name} is {:?} instead of {recorded:?}", ours.header(name)));
        }
    }
    if let Some(name) = FOREIGN.into_iter().find(|name| ours.header(name).is_some()) {
        return Err(format!("a header {name}"));
    }
    if ours.header("Content-Length").is_none() && ours.header("Transfer-Encoding").is_none() {
        return Err("neither Content-Length nor Transfer-Encoding".into());
    }
    let encoding = ours.header("Content-Encoding");
    bodies(&plain(encoding, &expected.body)?, &plain(encoding, &ours.body)?, path, repository)
}

fn bodies(expected: &[u8], ours: &[u8], path: &str, repository: &Path) -> Result<(), String> {
    if expected == ours {
        return Ok(());
    }
    let (Ok(expected), Ok(ours)) = (std::str::from_utf8(expected), std::str::from_utf8(ours)) else {
        return Err(format!(
            "another binary body: {} instead of {}",
            String::from_utf8_lossy(ours),
            String::from_utf8_lossy(expected)
        ));
    };
    let ours = ours.replace(&repository.display().to_string(), RECORDED_REPOSITORY);
    let difference = if path.ends_with("/stats") {
        difference(&without_measures(expected), &without_measures(&ours))
    } else {
        difference(expected, &ours)
    };
    difference.map_or(Ok(()), Err)
}

/// A body after decompression. The recordings and this server use different compressors.
fn plain(encoding: Option<&str>, body: &[u8]) -> Result<Vec<u8>, String> {
    let mut plain = Vec::new();
    let read = match encoding {
        Some("gzip") => GzDecoder::new(body).read_to_end(&mut plain),
        Some("deflate") => ZlibDecoder::new(body).read_to_end(&mut plain),
        _ => return Ok(body.to_vec()),
    };
    read.map(|_| plain).map_err(|error| format!("the body is not {}: {error}", encoding.unwrap_or_default()))
}

/// Compares protobuf messages in their JSON form. The memory of models, which not every server reports, is left out.
pub(crate) fn message(expected: &Value, ours: &Value) -> Result<(), String> {
    let mut ours = ours.clone();
    for model in ours.get_mut("model_stats").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(model) = model.as_object_mut() {
            model.remove("memory_usage");
        }
    }
    if *expected == ours { Ok(()) } else { Err(format!("message {ours} instead of {expected}")) }
}
