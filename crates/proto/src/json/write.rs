//! Writes messages as JSON text, in the order and notation that clients know.
//!
//! As Triton: model_config_utils.cc, ModelConfigToJson.

use std::fmt::Write;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage, Value};

use crate::ModelConfig;
use crate::descriptors::{in_declared_order, key_text, model_config};

/// 64-bit integers are numbers, except in these fields (message and name), where clients expect strings.
const TEXTUAL_INTEGERS: [(&str, &str); 3] = [
    ("inference.ModelSequenceBatching.InitialState", "dims"),
    ("inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape", "dim"),
    ("inference.ModelInstanceGroup.SecondaryDevice", "device_id"),
];

/// The JSON form of a configuration, in one line.
///
/// The text contains scalars, lists and maps even if they have their default, and messages and choices only if they
/// are set. Enumerations are names, or numbers without a name. Maps are sorted by key.
#[must_use]
pub fn to_json(config: &ModelConfig) -> String {
    let mut message = DynamicMessage::new(model_config());
    message.transcode_from(config).expect("a configuration has the form of its own descriptor");
    let mut json = String::with_capacity(2048);
    write_message(&mut json, &message);
    json
}

fn write_message(json: &mut String, message: &DynamicMessage) {
    let descriptor = message.descriptor();
    // A scalar member of a oneof follows all other fields. A message member stays at its position.
    let (in_place, chosen): (Vec<_>, Vec<_>) = in_declared_order(&descriptor)
        .filter(|field| !field.supports_presence() || message.has_field(field))
        .partition(|field| field.containing_oneof().is_none() || matches!(field.kind(), Kind::Message(_)));
    json.push('{');
    for (position, field) in in_place.iter().chain(&chosen).enumerate() {
        if position > 0 {
            json.push(',');
        }
        write_text(json, field.name());
        json.push(':');
        write_field(json, &descriptor, field, &message.get_field(field));
    }
    json.push('}');
}

fn write_field(json: &mut String, owner: &MessageDescriptor, field: &FieldDescriptor, value: &Value) {
    let textual = TEXTUAL_INTEGERS.contains(&(owner.full_name(), field.name()));
    match value {
        Value::List(list) => {
            json.push('[');
            for (position, value) in list.iter().enumerate() {
                if position > 0 {
                    json.push(',');
                }
                write_value(json, &field.kind(), value, textual);
            }
            json.push(']');
        }
        Value::Map(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            let kind = match field.kind() {
                Kind::Message(entry) => entry.map_entry_value_field().kind(),
                other => other,
            };
            json.push('{');
            for (position, (key, value)) in entries.into_iter().enumerate() {
                if position > 0 {
                    json.push(',');
                }
                write_text(json, &key_text(key));
                json.push(':');
                write_value(json, &kind, value, false);
            }
            json.push('}');
        }
        single => write_value(json, &field.kind(), single, textual),
    }
}

fn write_value(json: &mut String, kind: &Kind, value: &Value, textual: bool) {
    match value {
        Value::Bool(value) => write_display(json, value),
        Value::I32(value) => write_display(json, value),
        Value::U32(value) => write_display(json, value),
        Value::I64(value) if textual => write_text(json, &value.to_string()),
        Value::U64(value) if textual => write_text(json, &value.to_string()),
        Value::I64(value) => write_display(json, value),
        Value::U64(value) => write_display(json, value),
        Value::F32(value) => write_float(json, f64::from(*value), value),
        Value::F64(value) => write_float(json, *value, value),
        Value::String(text) => write_text(json, text),
        Value::Bytes(bytes) => write_text(json, &String::from_utf8_lossy(bytes)),
        Value::EnumNumber(number) => {
            let named = kind.as_enum().and_then(|values| values.get_value(*number));
            match named {
                Some(value) => write_text(json, value.name()),
                None => write_display(json, number),
            }
        }
        Value::Message(message) => write_message(json, message),
        Value::List(_) | Value::Map(_) => debug_assert!(false, "lists and maps hold single values"),
    }
}

/// The shortest text that reads back as the same value. For a float it is shorter than for the equal double.
fn write_float(json: &mut String, value: f64, own: &(impl std::fmt::Display + std::fmt::LowerExp)) {
    let size = value.abs();
    if value.is_nan() {
        json.push_str("\"NaN\"");
    } else if value.is_infinite() {
        json.push_str(if value > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" });
    } else if size == 0.0 || (1e-5..1e15).contains(&size) {
        write_display(json, own);
    } else {
        write!(json, "{own:e}").expect("strings take everything");
    }
}

fn write_display(json: &mut String, value: &impl std::fmt::Display) {
    write!(json, "{value}").expect("strings take everything");
}

fn write_text(json: &mut String, text: &str) {
    json.push_str(&serde_json::to_string(text).expect("every string has a JSON form"));
}
