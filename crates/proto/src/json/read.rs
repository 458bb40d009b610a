//! Converts a JSON document into a message, as the descriptor of the message defines.

use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};

use super::document::Json;
use super::error::JsonError;
use super::keys;
use crate::descriptors::{model_config, rival};
use crate::suggest::{unknown_field, unknown_value};
use crate::{Fields, Parsed};

/// The most bytes of memory that [`parse`] takes for a byte of its source: an empty message of three bytes has all fields of
/// its type, first as values and then as a type.
pub const MOST_FOR_A_BYTE: usize = 1024;

/// Reads a configuration from its JSON form; `{}` is an empty configuration.
///
/// Field names may be snake_case or camelCase. Integers may be numbers or strings. Enumerations may be numbers, or
/// names in any case. `null` means that the field is absent. A list of one may be its only value.
///
/// # Errors
/// The first mistake in the source.
pub fn parse(source: &str) -> Result<Parsed, JsonError> {
    let document: Json = serde_json::from_str(&keys::quoted(source))
        .map_err(|error| JsonError { path: String::new(), message: format!("invalid JSON: {error}") })?;
    let mut reader = ConfigReader { path: String::new(), fields: Fields::default() };
    let message = reader.message(&model_config(), document)?;
    let config = message.transcode_to().map_err(|error| reader.wrong(error.to_string()))?;
    Ok(Parsed { config, fields: reader.fields })
}

struct ConfigReader {
    /// The reader's position in the configuration, in the form of [`Fields`].
    path: String,
    fields: Fields,
}

impl ConfigReader {
    fn wrong(&self, message: impl Into<String>) -> JsonError {
        JsonError { path: self.path.clone(), message: message.into() }
    }

    fn expected<T>(&self, what: &str, found: &Json) -> Result<T, JsonError> {
        Err(self.wrong(format!("expected {what}, found {found}")))
    }

    /// Runs a closure one level deeper in the document.
    fn below<T>(
        &mut self,
        step: &str,
        read: impl FnOnce(&mut Self) -> Result<T, JsonError>,
    ) -> Result<T, JsonError> {
        let length = self.path.len();
        if length > 0 && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        let result = read(self);
        self.path.truncate(length);
        result
    }

    fn message(&mut self, descriptor: &MessageDescriptor, json: Json) -> Result<DynamicMessage, JsonError> {
        let Json::Object(members) = json else { return self.expected("an object", &json) };
        let mut message = DynamicMessage::new(descriptor.clone());
        let mut seen: Vec<u32> = Vec::new();
        for (name, value) in members {
            let found =
                descriptor.get_field_by_name(&name).or_else(|| descriptor.get_field_by_json_name(&name));
            let Some(field) = found else { return Err(self.wrong(unknown_field(&name, descriptor).0)) };
            if matches!(value, Json::Null) {
                continue;
            }
            if seen.contains(&field.number()) {
                return Err(self.wrong(format!("'{}' is given twice, in both spellings", field.name())));
            }
            if let Some((choice, other)) = rival(&field, |other| seen.contains(&other.number())) {
                let (name, other, choice) = (field.name(), other.name(), choice.name().replace('_', " "));
                return Err(self.wrong(format!("'{name}' excludes '{other}': only one {choice} may be set")));
            }
            seen.push(field.number());
            self.below(field.name(), |reader| reader.field(&field, value, &mut message))?;
        }
        Ok(message)
    }

    fn field(
        &mut self,
        field: &FieldDescriptor,
        json: Json,
        message: &mut DynamicMessage,
    ) -> Result<(), JsonError> {
        self.fields.note(&self.path, None);
        let kind = field.kind();
        let value = match (&kind, json) {
            (Kind::Message(entry), Json::Object(members)) if field.is_map() => {
                let (key_kind, kind) =
                    (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
                let mut map = std::collections::HashMap::new();
                for (position, (key, value)) in members.into_iter().enumerate() {
                    let key = self.key(&key_kind, key)?;
                    let value = self.below(&format!("[{position}]"), |reader| reader.item(&kind, value))?;
                    map.insert(key, value);
                }
                Value::Map(map)
            }
            (_, other) if field.is_map() => return self.expected("an object", &other),
            (kind, Json::List(items)) if field.is_list() => {
                let mut list = Vec::with_capacity(items.len());
                for (position, item) in items.into_iter().enumerate() {
                    list.push(self.below(&format!("[{position}]"), |reader| reader.item(kind, item))?);
                }
                Value::List(list)
            }
            // As protobuf: one value is a list of one.
            (kind, only) if field.is_list() => {
                Value::List(vec![self.below("[0]", |reader| reader.item(kind, only))?])
            }
            (kind, single) => self.value(kind, single)?,
        };
        message.set_field(field, value);
        Ok(())
    }

    fn item(&mut self, kind: &Kind, json: Json) -> Result<Value, JsonError> {
        self.fields.note(&self.path, None);
        self.value(kind, json)
    }

    fn key(&self, kind: &Kind, key: String) -> Result<MapKey, JsonError> {
        match self.scalar(kind, &Json::Text(key))?.into_map_key() {
            Some(key) => Ok(key),
            None => Err(self.wrong("has keys of an unknown kind")),
        }
    }

    fn value(&mut self, kind: &Kind, json: Json) -> Result<Value, JsonError> {
        match kind {
            Kind::Message(descriptor) => self.message(descriptor, json).map(Value::Message),
            scalar => self.scalar(scalar, &json),
        }
    }

    fn scalar(&self, kind: &Kind, json: &Json) -> Result<Value, JsonError> {
        match kind {
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                self.whole(json, "a 32-bit integer").map(Value::I32)
            }
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                self.whole(json, "a 64-bit integer").map(Value::I64)
            }
            Kind::Uint32 | Kind::Fixed32 => {
                self.whole(json, "a 32-bit integer that is not negative").map(Value::U32)
            }
            Kind::Uint64 | Kind::Fixed64 => {
                self.whole(json, "a 64-bit integer that is not negative").map(Value::U64)
            }
            Kind::Float => self.float(json).map(|value| {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "a float field keeps what a float can hold"
                )]
                Value::F32(value as f32)
            }),
            Kind::Double => self.float(json).map(Value::F64),
            Kind::Bool => match json {
                Json::Bool(value) => Ok(Value::Bool(*value)),
                other => self.expected("true or false", other),
            },
            Kind::String => match json {
                Json::Text(text) => Ok(Value::String(text.clone())),
                other => self.expected("a string", other),
            },
            Kind::Enum(values) => self.named(values, json).map(Value::EnumNumber),
            Kind::Bytes | Kind::Message(_) => self.expected("a value that a configuration can hold", json),
        }
    }

    fn whole<T: TryFrom<i128>>(&self, json: &Json, what: &str) -> Result<T, JsonError> {
        let value = match json {
            Json::Integer(value) => Some(*value),
            #[expect(clippy::cast_possible_truncation, reason = "whole and small enough, by the condition")]
            Json::Float(value) if value.fract() == 0.0 && value.abs() < 1e20 => Some(*value as i128),
            // Only digits: `parse` alone would accept a plus sign.
            Json::Text(text) if !text.starts_with('+') => text.parse().ok(),
            _ => None,
        };
        match value.and_then(|value| T::try_from(value).ok()) {
            Some(value) => Ok(value),
            None => self.expected(what, json),
        }
    }

    fn float(&self, json: &Json) -> Result<f64, JsonError> {
        match json {
            Json::Float(value) => Ok(*value),
            #[expect(clippy::cast_precision_loss, reason = "a float field keeps what a float can hold")]
            Json::Integer(value) => Ok(*value as f64),
            Json::Text(text) => match text.as_str() {
                "NaN" => Ok(f64::NAN),
                "Infinity" => Ok(f64::INFINITY),
                "-Infinity" => Ok(f64::NEG_INFINITY),
                digits if digits.ends_with(|c: char| c.is_ascii_digit() || c == '.') => {
                    digits.parse().or_else(|_| self.expected("a number", json))
                }
                _ => self.expected("a number", json),
            },
            other => self.expected("a number", other),
        }
    }

    fn named(&self, values: &EnumDescriptor, json: &Json) -> Result<i32, JsonError> {
        let Json::Text(name) = json else {
            return self.whole(json, &format!("a value of {}", values.name()));
        };
        if let Some(value) = values.values().find(|value| value.name().eq_ignore_ascii_case(name)) {
            return Ok(value.number());
        }
        Err(self.wrong(unknown_value(name, values).0))
    }
}
