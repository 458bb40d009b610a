//! Compares the values of tensors, and tells the first that differs.

use bytes::Bytes;
use half::{bf16, f16};
use serde_json::Value;

/// The values of a tensor as they came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TensorValues {
    /// Little-endian elements; texts have their lengths before them.
    Bytes(Bytes),
    Json(Value),
}

/// The first difference of two tensors of the same datatype and shape. `None` if there is none.
pub(crate) fn difference_of_values(
    datatype: &str,
    recorded: &TensorValues,
    replayed: &TensorValues,
    tolerance: f64,
) -> Option<String> {
    match (recorded, replayed) {
        (TensorValues::Bytes(before), TensorValues::Bytes(now)) => {
            difference_of_bytes(datatype, before, now, tolerance)
        }
        (TensorValues::Json(before), TensorValues::Json(now)) => {
            let (mut all_before, mut all_now) = (Vec::new(), Vec::new());
            flatten(before, &mut all_before);
            flatten(now, &mut all_now);
            if all_before.len() != all_now.len() {
                return Some(format!("{} elements, recorded {}", all_now.len(), all_before.len()));
            }
            let mut pairs = all_before.iter().zip(&all_now).enumerate();
            let (index, (before, now)) = pairs.find(|(_, (before, now))| !is_same(before, now, tolerance))?;
            Some(format!("element {index} is {now}, recorded {before}"))
        }
        _ => Some("one has JSON values, the other bytes".to_owned()),
    }
}

/// The elements of nested arrays, in order. Numbers are doubles, so that `1` and `1.0` are the same.
fn flatten(value: &Value, elements: &mut Vec<Value>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| flatten(value, elements)),
        Value::Null => {}
        _ => elements.push(value.clone()),
    }
}

fn is_same(before: &Value, now: &Value, tolerance: f64) -> bool {
    match (before.as_f64(), now.as_f64()) {
        // Large integers are not exact as doubles.
        _ if before == now => true,
        (Some(_), Some(_)) if before.is_i64() && now.is_i64() && tolerance == 0.0 => false,
        (Some(before), Some(now)) => is_close(before, now, tolerance),
        _ => false,
    }
}

/// Whether numbers are the same within the tolerance. No number is the same as no number.
fn is_close(before: f64, now: f64, tolerance: f64) -> bool {
    before == now
        || (before.is_nan() && now.is_nan())
        || (before - now).abs() <= tolerance * before.abs().max(1.0)
}

/// The first difference of two JSON values, with its place.
pub(crate) fn difference_of_json(before: &Value, now: &Value, tolerance: f64) -> Option<String> {
    match (before, now) {
        (Value::Object(before), Value::Object(now)) => {
            if let Some(name) = now.keys().find(|name| !before.contains_key(*name)) {
                return Some(format!("{name} is not in the recording"));
            }
            before.iter().find_map(|(name, before)| match now.get(name) {
                None => Some(format!("{name} is missing")),
                Some(now) => {
                    let difference = difference_of_json(before, now, tolerance)?;
                    Some(match difference.strip_prefix("value ") {
                        Some(rest) => format!("{name} {rest}"),
                        None => format!("{name}.{difference}"),
                    })
                }
            })
        }
        (Value::Array(all_before), Value::Array(all_now)) if all_before.len() == all_now.len() => {
            let mut pairs = all_before.iter().zip(all_now).enumerate();
            pairs.find_map(|(index, (before, now))| {
                let difference = difference_of_json(before, now, tolerance)?;
                Some(match difference.strip_prefix("value ") {
                    Some(rest) => format!("{index} {rest}"),
                    None => format!("{index}.{difference}"),
                })
            })
        }
        _ if is_same(before, now, tolerance) => None,
        _ => Some(format!("value is {now}, recorded {before}")),
    }
}

/// Reads an element of some bytes.
type ElementReader = fn(&[u8]) -> Option<f64>;

fn difference_of_bytes(datatype: &str, before: &[u8], now: &[u8], tolerance: f64) -> Option<String> {
    if before == now {
        return None;
    }
    if datatype == "BYTES" {
        return Some(difference_of_texts(before, now));
    }
    if before.len() != now.len() {
        return Some(format!("{} bytes, recorded {}", now.len(), before.len()));
    }
    let (size, read): (usize, ElementReader) = match datatype {
        "BOOL" | "UINT8" => (1, |bytes| bytes.first().map(|&byte| f64::from(byte))),
        "INT8" => (1, |bytes| Some(f64::from(i8::from_le_bytes(*bytes.first_chunk()?)))),
        "UINT16" => (2, |bytes| Some(f64::from(u16::from_le_bytes(*bytes.first_chunk()?)))),
        "INT16" => (2, |bytes| Some(f64::from(i16::from_le_bytes(*bytes.first_chunk()?)))),
        "FP16" => (2, |bytes| Some(f64::from(f16::from_le_bytes(*bytes.first_chunk()?)))),
        "BF16" => (2, |bytes| Some(f64::from(bf16::from_le_bytes(*bytes.first_chunk()?)))),
        "UINT32" => (4, |bytes| Some(f64::from(u32::from_le_bytes(*bytes.first_chunk()?)))),
        "INT32" => (4, |bytes| Some(f64::from(i32::from_le_bytes(*bytes.first_chunk()?)))),
        "FP32" => (4, |bytes| Some(f64::from(f32::from_le_bytes(*bytes.first_chunk()?)))),
        "FP64" => (8, |bytes| Some(f64::from_le_bytes(*bytes.first_chunk()?))),
        // Doubles would not be exact, so the text shows more digits than there are.
        "UINT64" => (8, |bytes| Some(u64::from_le_bytes(*bytes.first_chunk()?) as f64)),
        "INT64" => (8, |bytes| Some(i64::from_le_bytes(*bytes.first_chunk()?) as f64)),
        _ => return Some("the bytes differ".to_owned()),
    };
    let mut pairs = before.chunks(size).zip(now.chunks(size)).enumerate();
    pairs.find_map(|(index, (before, now))| {
        if before == now {
            return None;
        }
        let (before, now) = (read(before)?, read(now)?);
        // Large integers can differ and be the same double.
        let is_exact = tolerance == 0.0 && before == now && size == 8 && datatype != "FP64";
        (is_exact || !is_close(before, now, tolerance))
            .then(|| format!("element {index} is {now}, recorded {before}"))
    })
}

fn difference_of_texts(before: &[u8], now: &[u8]) -> String {
    let (before, now) = (texts(before), texts(now));
    if before.len() != now.len() {
        return format!("{} elements, recorded {}", now.len(), before.len());
    }
    let shown = |text: &[u8]| -> String { String::from_utf8_lossy(text).chars().take(60).collect() };
    match before.iter().zip(&now).enumerate().find(|(_, (before, now))| before != now) {
        Some((index, (before, now))) => {
            format!("element {index} is {:?}, recorded {:?}", shown(now), shown(before))
        }
        None => "the bytes differ".to_owned(),
    }
}

/// The elements of a tensor of texts. Bytes that are no element end it.
fn texts(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut texts = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let Some((text, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else { break };
        texts.push(text);
        bytes = rest;
    }
    texts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bytes(datatype: &str, before: &[u8], now: &[u8], tolerance: f64) -> Option<String> {
        let values = |bytes: &[u8]| TensorValues::Bytes(Bytes::copy_from_slice(bytes));
        difference_of_values(datatype, &values(before), &values(now), tolerance)
    }

    #[test]
    fn the_first_element_that_differs_is_told() {
        let floats = |all: &[f32]| -> Vec<u8> { all.iter().flat_map(|value| value.to_le_bytes()).collect() };
        let (before, now) = (floats(&[1.0, 100.0, f32::NAN]), floats(&[1.0, 100.5, f32::NAN]));
        assert_eq!(bytes("FP32", &before, &now, 0.01), None, "relative to the size of the number");
        assert_eq!(bytes("FP32", &before, &now, 0.001).unwrap(), "element 1 is 100.5, recorded 100");
        assert_eq!(bytes("INT8", &[1, 255], &[1, 1], 0.0).unwrap(), "element 1 is 1, recorded -1");
        assert_eq!(bytes("INT8", &[1], &[1, 1], 0.0).unwrap(), "2 bytes, recorded 1");
    }

    #[test]
    fn large_integers_are_compared_exactly() {
        let of = |value: u64| value.to_le_bytes();
        assert!(bytes("UINT64", &of(u64::MAX), &of(u64::MAX - 1), 0.0).is_some());
        assert!(bytes("UINT64", &of(u64::MAX), &of(u64::MAX - 1), 1e-9).is_none());
    }

    #[test]
    fn texts_are_compared_by_element() {
        let found = bytes("BYTES", b"\x01\0\0\0a\x01\0\0\0b", b"\x01\0\0\0a\x02\0\0\0cc", 0.0).unwrap();
        assert_eq!(found, r#"element 1 is "cc", recorded "b""#);
        assert_eq!(bytes("BYTES", b"\x01\0\0\0a", b"", 0.0).unwrap(), "0 elements, recorded 1");
    }

    #[test]
    fn places_of_json_are_told() {
        let before = json!({"a": {"b": [1, 2.0]}, "c": "x"});
        assert_eq!(difference_of_json(&before, &json!({"a": {"b": [1.0, 2]}, "c": "x"}), 0.0), None);
        let found = difference_of_json(&before, &json!({"a": {"b": [1, 3]}, "c": "x"}), 0.0).unwrap();
        assert_eq!(found, "a.b.1 is 3, recorded 2.0");
        assert_eq!(difference_of_json(&before, &json!({"c": "x"}), 0.0).unwrap(), "a is missing");
        let more = json!({"a": {"b": [1, 2.0]}, "c": "x", "d": 1});
        assert_eq!(difference_of_json(&before, &more, 0.0).unwrap(), "d is not in the recording");
    }
}
