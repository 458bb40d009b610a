//! The messages of a configuration as a reference lists them: names, types, defaults and comments.

use std::collections::{HashMap, HashSet, VecDeque};

use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};

use crate::descriptors::in_declared_order;
use crate::schema::comments;

/// A message of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentedMessage {
    /// The name without the package, such as `ModelDynamicBatching`.
    pub name: String,
    /// What the message is, in a sentence.
    pub text: String,
    /// The fields in the order of their declaration.
    pub fields: Vec<DocumentedField>,
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentedField {
    /// The name in a configuration.
    pub name: String,
    /// The type in words, such as `list of int64`.
    pub kind: String,
    /// The message that a value is, if it is one.
    pub message: Option<String>,
    /// The words that a value can be, if it is one of an enumeration. The first one is the default.
    pub words: Vec<String>,
    /// The value of a field that is not set, by the rules of protocol buffers. Empty: there is none.
    pub default: &'static str,
    /// The other fields of which only one can be set.
    pub excludes: Vec<String>,
    /// What the field is. Empty if its name says everything.
    pub text: String,
}

/// The messages of a configuration. `ModelConfig` is the first; each other one comes after a message that uses it.
pub fn documented_messages() -> Vec<DocumentedMessage> {
    let encoded = include_bytes!(concat!(env!("OUT_DIR"), "/model_config.documented.descriptors"));
    let pool = DescriptorPool::decode(encoded.as_slice()).expect("the build wrote these descriptors");
    let root = pool.get_message_by_name("inference.ModelConfig").expect("model_config.proto declares it");
    let comments = comments(&root);
    let mut known = HashSet::from([root.full_name().to_owned()]);
    let mut waiting = VecDeque::from([root]);
    let mut messages = Vec::new();
    while let Some(message) = waiting.pop_front() {
        let fields: Vec<_> = in_declared_order(&message).collect();
        let used = fields.iter().filter_map(message_of);
        waiting.extend(used.filter(|used| known.insert(used.full_name().to_owned())));
        messages.push(DocumentedMessage {
            name: short(message.full_name()),
            text: comments.get(message.path()).cloned().unwrap_or_default(),
            fields: fields.iter().map(|field| documented(field, &comments)).collect(),
        });
    }
    messages
}

fn documented(field: &FieldDescriptor, comments: &HashMap<Vec<i32>, String>) -> DocumentedField {
    let choice = field.containing_oneof();
    let others = choice.iter().flat_map(|choice| choice.fields().collect::<Vec<_>>());
    DocumentedField {
        name: field.name().to_owned(),
        kind: kind(field),
        message: message_of(field).map(|message| short(message.full_name())),
        words: words(field),
        default: default(field),
        excludes: others.filter(|other| other != field).map(|other| other.name().to_owned()).collect(),
        text: comments.get(field.path()).cloned().unwrap_or_default(),
    }
}

/// What a field has values of: for a map, its values.
fn value_kind(field: &FieldDescriptor) -> Kind {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
        kind => kind,
    }
}

fn message_of(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    match value_kind(field) {
        Kind::Message(message) => Some(message),
        _ => None,
    }
}

fn words(field: &FieldDescriptor) -> Vec<String> {
    match value_kind(field) {
        Kind::Enum(words) => words.values().map(|word| word.name().to_owned()).collect(),
        _ => Vec::new(),
    }
}

fn kind(field: &FieldDescriptor) -> String {
    let value = match value_kind(field) {
        Kind::Message(message) => short(message.full_name()),
        Kind::Enum(words) => short(words.full_name()),
        scalar => scalar_name(&scalar).to_owned(),
    };
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            format!("map of {} to {value}", scalar_name(&entry.map_entry_key_field().kind()))
        }
        _ if field.is_list() => format!("list of {value}"),
        _ => value,
    }
}

/// The name of a scalar type in a `.proto` file.
fn scalar_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Bool => "bool",
        Kind::Float => "float",
        Kind::Double => "double",
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "int32",
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => "int64",
        Kind::Uint32 | Kind::Fixed32 => "uint32",
        Kind::Uint64 | Kind::Fixed64 => "uint64",
        Kind::String | Kind::Bytes | Kind::Message(_) | Kind::Enum(_) => "string",
    }
}

fn default(field: &FieldDescriptor) -> &'static str {
    match field.kind() {
        _ if field.is_list() || field.is_map() || field.containing_oneof().is_some() => "",
        Kind::Message(_) | Kind::Enum(_) | Kind::String | Kind::Bytes => "",
        Kind::Bool => "false",
        _ => "0",
    }
}

/// The name without the package and the message that contains it.
fn short(full_name: &str) -> String {
    full_name.strip_prefix("inference.").unwrap_or(full_name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_types_defaults_and_comments() {
        let messages = documented_messages();
        assert_eq!(messages[0].name, "ModelConfig");
        let field = |name: &str| {
            let (message, field) = name.rsplit_once('.').unwrap();
            let message = messages.iter().find(|one| one.name == message).unwrap();
            message.fields.iter().find(|one| one.name == field).unwrap().clone()
        };
        assert_eq!(field("ModelConfig.input").kind, "list of ModelInput");
        assert_eq!(field("ModelConfig.parameters").kind, "map of string to ModelParameter");
        assert_eq!(field("ModelConfig.max_batch_size").default, "0");
        assert_eq!(field("ModelConfig.max_batch_size").text, "0 for a model without batch dimension.");
        assert_eq!(
            field("ModelConfig.dynamic_batching").excludes,
            ["sequence_batching", "ensemble_scheduling"]
        );
        assert_eq!(field("ModelQueuePolicy.timeout_action").words, ["REJECT", "DELAY"]);
        assert_eq!(field("ModelQueuePolicy.timeout_action").kind, "ModelQueuePolicy.TimeoutAction");
        assert_eq!(field("ModelSequenceBatching.InitialState.dims").kind, "list of int64");
    }

    #[test]
    fn each_message_that_a_field_has_is_listed_once() {
        let messages = documented_messages();
        let names: HashSet<_> = messages.iter().map(|message| message.name.as_str()).collect();
        assert_eq!(names.len(), messages.len());
        for field in messages.iter().flat_map(|message| &message.fields) {
            assert!(field.message.iter().all(|message| names.contains(message.as_str())), "{}", field.name);
        }
    }
}
