//! The JSON Schema of a configuration in its JSON form.

use std::collections::{BTreeMap, HashMap};

use prost_reflect::{DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};

use crate::descriptors::in_declared_order;

/// The JSON Schema (draft 2020-12) of a configuration, with the descriptions of the fields.
///
/// It describes the form that [`to_json`](crate::json::to_json) writes: snake_case names, enumerations by name. The
/// reader accepts more.
pub fn json_schema() -> Value {
    let encoded = include_bytes!(concat!(env!("OUT_DIR"), "/model_config.documented.descriptors"));
    let pool = DescriptorPool::decode(encoded.as_slice()).expect("the build wrote these descriptors");
    let root = pool.get_message_by_name("inference.ModelConfig").expect("model_config.proto declares it");
    let mut writer = SchemaWriter { comments: comments(&root), definitions: BTreeMap::new() };
    writer.message(&root);
    let definitions: Map<_, _> =
        writer.definitions.into_iter().filter_map(|(name, schema)| Some((name, schema?))).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of a model",
        "$ref": "#/$defs/ModelConfig",
        "$defs": definitions,
    })
}

/// The comments in the file of a message, by the path of what they describe.
pub(crate) fn comments(root: &MessageDescriptor) -> HashMap<Vec<i32>, String> {
    let file = root.parent_file();
    let locations = file.file_descriptor_proto().source_code_info.iter().flat_map(|info| &info.location);
    let described = locations.filter_map(|location| {
        let comment = location.leading_comments.as_ref().or(location.trailing_comments.as_ref())?;
        let words: Vec<_> = comment.split_whitespace().collect();
        Some((location.path.clone(), words.join(" ")))
    });
    described.collect()
}

/// The numbers that a configuration may have in a field, by the rules of the server.
#[derive(Clone, Copy)]
enum NumberRule {
    /// From this number on.
    Least(i64),
    /// A dim: from 1 on, or -1 for a variable one.
    Dim,
}

impl NumberRule {
    /// The rule of a field with numbers that may be negative; `None` if all numbers have a meaning.
    fn of(field: &FieldDescriptor) -> Option<Self> {
        match short(field.full_name()).as_str() {
            // A count of 0 is the default of the backend.
            "ModelConfig.max_batch_size"
            | "ModelInstanceGroup.count"
            | "ModelInstanceGroup.gpus"
            | "ModelWarmup.Input.dims" => Some(Self::Least(0)),
            "ModelDynamicBatching.preferred_batch_size"
            | "ModelSequenceBatching.StrategyOldest.preferred_batch_size" => Some(Self::Least(1)),
            "ModelEnsembling.Step.model_version" => Some(Self::Least(-1)),
            "ModelInput.dims" | "ModelOutput.dims" | "ModelTensorReshape.shape" => Some(Self::Dim),
            _ => None,
        }
    }

    /// The schema of a number, which may be a text if it is `long`.
    fn schema(self, long: bool) -> Value {
        let (mut number, text) = match self {
            Self::Least(least @ 0..) => (json!({"minimum": least}), "^[0-9]+$"),
            Self::Least(least) => (json!({"minimum": least}), "^(-1|[0-9]+)$"),
            Self::Dim => (json!({"minimum": -1, "not": {"const": 0}}), "^(-1|0*[1-9][0-9]*)$"),
        };
        number["type"] = json!("integer");
        if long {
            return json!({"anyOf": [number, {"type": "string", "pattern": text}]});
        }
        number["maximum"] = json!(i32::MAX);
        number
    }
}

struct SchemaWriter {
    comments: HashMap<Vec<i32>, String>,
    /// `None` while a definition is being made.
    definitions: BTreeMap<String, Option<Value>>,
}

impl SchemaWriter {
    /// The reference to a message.
    fn message(&mut self, message: &MessageDescriptor) -> Value {
        let name = short(message.full_name());
        if !self.definitions.contains_key(&name) {
            self.definitions.insert(name.clone(), None);
            let schema = self.object(message);
            self.definitions.insert(name.clone(), Some(schema));
        }
        json!({"$ref": format!("#/$defs/{name}")})
    }

    fn object(&mut self, message: &MessageDescriptor) -> Value {
        let mut properties = Map::new();
        for field in in_declared_order(message) {
            let mut schema = self.field(&field);
            if let Some(text) = self.comments.get(field.path()) {
                schema["description"] = json!(text);
            }
            properties.insert(field.name().to_owned(), schema);
        }
        let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
        if let Some(text) = self.comments.get(message.path()) {
            schema["description"] = json!(text);
        }
        let mut exclusions = Vec::new();
        for choice in message.oneofs() {
            let names: Vec<_> = choice.fields().map(|field| field.name().to_owned()).collect();
            for (position, one) in names.iter().enumerate() {
                for other in &names[position + 1..] {
                    exclusions.push(json!({"not": {"required": [one, other]}}));
                }
            }
        }
        if !exclusions.is_empty() {
            schema["allOf"] = json!(exclusions);
        }
        schema
    }

    fn field(&mut self, field: &FieldDescriptor) -> Value {
        if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
            let value = self.kind(&entry.map_entry_value_field().kind());
            return json!({"type": "object", "additionalProperties": value});
        }
        let value = match NumberRule::of(field) {
            Some(rule) => rule.schema(field.kind() == Kind::Int64),
            None => self.kind(&field.kind()),
        };
        if field.is_list() { json!({"type": "array", "items": value}) } else { value }
    }

    fn kind(&mut self, kind: &Kind) -> Value {
        let least = |least: i64| json!({"type": "integer", "minimum": least});
        match kind {
            Kind::Message(message) => self.message(message),
            Kind::Enum(values) => self.enumeration(values),
            Kind::Bool => json!({"type": "boolean"}),
            Kind::String | Kind::Bytes => json!({"type": "string"}),
            Kind::Float | Kind::Double => {
                json!({"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]})
            }
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                json!({"type": "integer", "minimum": i32::MIN, "maximum": i32::MAX})
            }
            Kind::Uint32 | Kind::Fixed32 => json!({"type": "integer", "minimum": 0, "maximum": u32::MAX}),
            // 64-bit integers may be texts.
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                json!({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}]})
            }
            Kind::Uint64 | Kind::Fixed64 => {
                json!({"anyOf": [least(0), {"type": "string", "pattern": "^[0-9]+$"}]})
            }
        }
    }

    fn enumeration(&mut self, values: &EnumDescriptor) -> Value {
        let name = short(values.full_name());
        if !self.definitions.contains_key(&name) {
            let names: Vec<_> = values.values().map(|value| value.name().to_owned()).collect();
            let mut schema = json!({"enum": names});
            if let Some(text) = self.comments.get(values.path()) {
                schema["description"] = json!(text);
            }
            self.definitions.insert(name.clone(), Some(schema));
        }
        json!({"$ref": format!("#/$defs/{name}")})
    }
}

/// The name without the package.
fn short(full_name: &str) -> String {
    full_name.strip_prefix("inference.").unwrap_or(full_name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_has_a_definition_and_fields_are_described() {
        let schema = json_schema();
        let text = schema.to_string();
        for part in text.split("\"#/$defs/").skip(1) {
            let name = part.split('"').next().unwrap_or_default();
            assert!(schema["$defs"][name].is_object(), "{name}");
        }
        let config = &schema["$defs"]["ModelConfig"];
        assert!(config["properties"]["max_batch_size"]["description"].is_string());
        assert_eq!(config["allOf"].as_array().map(Vec::len), Some(3), "three schedulers exclude each other");
        assert_eq!(schema["$defs"]["DataType"]["enum"][11], "TYPE_FP32");
    }

    #[test]
    fn numbers_have_the_limits_of_the_rules() {
        let schema = json_schema();
        let property = |message: &str, field: &str| schema["$defs"][message]["properties"][field].clone();
        let count = json!({"type": "integer", "minimum": 0, "maximum": i32::MAX});
        for (message, field) in [("ModelConfig", "max_batch_size"), ("ModelInstanceGroup", "count")] {
            let mut found = property(message, field);
            found["description"].take();
            let mut wanted = count.clone();
            wanted["description"] = Value::Null;
            assert_eq!(found, wanted, "{message}.{field}");
        }
        let dim = json!({"type": "integer", "minimum": -1, "not": {"const": 0}});
        for (message, field) in
            [("ModelInput", "dims"), ("ModelOutput", "dims"), ("ModelTensorReshape", "shape")]
        {
            assert_eq!(property(message, field)["items"]["anyOf"][0], dim, "{message}.{field}");
        }
        for message in ["ModelDynamicBatching", "ModelSequenceBatching.StrategyOldest"] {
            assert_eq!(property(message, "preferred_batch_size")["items"]["minimum"], 1, "{message}");
        }
        assert_eq!(property("ModelEnsembling.Step", "model_version")["anyOf"][0]["minimum"], -1);
        assert_eq!(property("ModelWarmup.Input", "dims")["items"]["anyOf"][0]["minimum"], 0);
        assert_eq!(property("ModelInstanceGroup", "gpus")["items"]["minimum"], 0);
        assert!(property("ModelSequenceBatching.State", "dims")["items"]["anyOf"][0]["minimum"].is_null());
    }
}
