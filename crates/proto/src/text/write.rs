//! Writes a configuration in the text form.
use std::fmt::Write;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};

use crate::{
    ModelConfig,
    descriptors::{in_declared_order, key_text, model_config},
};

/// One value of a configuration, and its path as in [`Fields`](crate::Fields). A list of scalars is one value. An entry
/// of a map has the path `parameters.<key>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigLeaf {
    /// Such as `input[0].dims`.
    pub path: String,
    /// The value in the text form, such as `[ 1, 2 ]`. `{}` for a message without fields.
    pub value: String,
}

/// The text form of a configuration without fields that have their default. `comment` may give a comment for the value
/// with a path.
pub fn write(config: &ModelConfig, comment: impl Fn(&str) -> Option<String>) -> String {
    let mut writer = TextWriter { text: String::new(), leaves: Vec::new(), comment: &comment };
    writer.message(&dynamic(config), "", 0);
    writer.text
}

/// The values of a configuration that differ from the defaults of the schema, in the order of the text form.
pub fn leaves(config: &ModelConfig) -> Vec<ConfigLeaf> {
    let mut writer = TextWriter { text: String::new(), leaves: Vec::new(), comment: &|_| None };
    writer.message(&dynamic(config), "", 0);
    writer.leaves
}

fn dynamic(config: &ModelConfig) -> DynamicMessage {
    let mut message = DynamicMessage::new(model_config());
    message.transcode_from(config).expect("a configuration has the form of its own descriptor");
    message
}

struct TextWriter<'a> {
    text: String,
    leaves: Vec<ConfigLeaf>,
    comment: &'a dyn Fn(&str) -> Option<String>,
}

impl TextWriter<'_> {
    fn message(&mut self, message: &DynamicMessage, path: &str, depth: usize) {
        let descriptor = message.descriptor();
        for field in in_declared_order(&descriptor).filter(|field| message.has_field(field)) {
            let separator = if path.is_empty() { "" } else { "." };
            let path = format!("{path}{separator}{}", field.name());
            self.field(&field, &message.get_field(&field), &path, depth);
        }
    }

    fn field(&mut self, field: &FieldDescriptor, value: &Value, path: &str, depth: usize) {
        let name = field.name();
        match value {
            Value::Message(inner) => self.block(name, inner, path, depth),
            Value::List(list) if matches!(field.kind(), Kind::Message(_)) => {
                for (position, value) in list.iter().enumerate() {
                    if let Value::Message(inner) = value {
                        self.block(name, inner, &format!("{path}[{position}]"), depth);
                    }
                }
            }
            Value::List(list) => {
                let values: Vec<_> = list.iter().map(|value| scalar(&field.kind(), value)).collect();
                self.line(&format!("{name}: [ {} ]", values.join(", ")), depth, path, name);
            }
            Value::Map(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                let Kind::Message(entry) = field.kind() else { return };
                let (key_kind, value_kind) =
                    (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
                for (key, value) in entries {
                    let path = format!("{path}.{}", key_text(key));
                    let key = scalar(&key_kind, &key_value(key));
                    self.entry((name, &key), (&value_kind, value), &path, depth);
                }
            }
            single => {
                let text = format!("{name}: {}", scalar(&field.kind(), single));
                self.line(&text, depth, path, name);
            }
        }
    }

    fn entry(&mut self, (name, key): (&str, &str), (kind, value): (&Kind, &Value), path: &str, depth: usize) {
        let Value::Message(inner) = value else {
            let text = format!("{name} {{ key: {key} value: {} }}", scalar(kind, value));
            return self.line(&text, depth, path, name);
        };
        let indent = INDENT.repeat(depth);
        let _ = writeln!(self.text, "{indent}{name} {{\n{indent}{INDENT}key: {key}");
        self.block("value", inner, path, depth + 1);
        let _ = writeln!(self.text, "{indent}}}");
    }

    fn block(&mut self, name: &str, message: &DynamicMessage, path: &str, depth: usize) {
        let descriptor = message.descriptor();
        if !descriptor.fields().any(|field| message.has_field(&field)) {
            return self.line(&format!("{name} {{}}"), depth, path, name);
        }
        let indent = INDENT.repeat(depth);
        let _ = writeln!(self.text, "{indent}{name} {{");
        self.message(message, path, depth + 1);
        let _ = writeln!(self.text, "{indent}}}");
    }

    fn line(&mut self, text: &str, depth: usize, path: &str, name: &str) {
        let value = text[name.len()..].trim_start_matches([':', ' ']).to_owned();
        self.leaves.push(ConfigLeaf { path: path.to_owned(), value });
        let comment = (self.comment)(path).map(|comment| format!("  # {comment}")).unwrap_or_default();
        let _ = writeln!(self.text, "{}{text}{comment}", INDENT.repeat(depth));
    }
}

const INDENT: &str = "  ";

fn key_value(key: &MapKey) -> Value {
    match key {
        MapKey::Bool(key) => Value::Bool(*key),
        MapKey::I32(key) => Value::I32(*key),
        MapKey::I64(key) => Value::I64(*key),
        MapKey::U32(key) => Value::U32(*key),
        MapKey::U64(key) => Value::U64(*key),
        MapKey::String(key) => Value::String(key.clone()),
    }
}

fn scalar(kind: &Kind, value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::I32(value) => value.to_string(),
        Value::U32(value) => value.to_string(),
        Value::I64(value) => value.to_string(),
        Value::U64(value) => value.to_string(),
        Value::F32(value) => float(f64::from(*value), value.to_string()),
        Value::F64(value) => float(*value, value.to_string()),
        Value::String(text) => quoted(text.as_bytes()),
        Value::Bytes(bytes) => quoted(bytes),
        Value::EnumNumber(number) => {
            let named = kind.as_enum().and_then(|values| values.get_value(*number));
            named.map_or_else(|| number.to_string(), |value| value.name().to_owned())
        }
        Value::Message(_) | Value::List(_) | Value::Map(_) => String::new(),
    }
}

fn float(value: f64, shortest: String) -> String {
    match value {
        value if value.is_nan() => "nan".to_owned(),
        value if value.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.to_owned(),
        _ => shortest,
    }
}

fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from('"');
    match std::str::from_utf8(bytes) {
        Ok(valid) => {
            for character in valid.chars() {
                match character {
                    '"' | '\\' => text.extend(['\\', character]),
                    '\n' => text.push_str("\\n"),
                    control if control.is_ascii_control() => {
                        let _ = write!(text, "\\{:03o}", u32::from(control));
                    }
                    other => text.push(other),
                }
            }
        }
        Err(_) => bytes.iter().for_each(|byte| {
            let _ = write!(text, "\\{byte:03o}");
        }),
    }
    text.push('"');
    text
}
