//! The descriptors of the configuration messages. With them the text and JSON forms treat all fields alike.
//!
//! The descriptors contain only `model_config.proto`. They are decoded at the first use, so that they do not delay
//! the start of the program.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, FieldDescriptor, MapKey, MessageDescriptor, OneofDescriptor};

/// Encoded `google.protobuf.FileDescriptorSet` with all files of the protocol, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/all.descriptors"));

static MODEL_CONFIG: LazyLock<MessageDescriptor> = LazyLock::new(|| {
    let encoded = include_bytes!(concat!(env!("OUT_DIR"), "/model_config.descriptors"));
    let pool = DescriptorPool::decode(encoded.as_slice()).expect("the build wrote these descriptors");
    pool.get_message_by_name("inference.ModelConfig").expect("model_config.proto declares it")
});

/// The descriptor of `ModelConfig`.
pub(crate) fn model_config() -> MessageDescriptor {
    MODEL_CONFIG.clone()
}

/// The fields of `message` in the order of their declaration. The descriptor itself sorts them by number.
pub(crate) fn in_declared_order(message: &MessageDescriptor) -> impl Iterator<Item = FieldDescriptor> + '_ {
    message
        .descriptor_proto()
        .field
        .iter()
        .filter_map(|field| message.get_field(field.number().unsigned_abs()))
}

/// Another member of the oneof of `field` for which `set` returns true, if there is one.
pub(crate) fn rival(
    field: &FieldDescriptor,
    set: impl Fn(&FieldDescriptor) -> bool,
) -> Option<(OneofDescriptor, FieldDescriptor)> {
    let choice = field.containing_oneof()?;
    let other = choice.fields().find(|other| other.number() != field.number() && set(other))?;
    Some((choice, other))
}

/// The key of a map entry, as paths and the JSON form have it.
pub(crate) fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::Kind;

    /// The readers recurse along the schema, not along the source, and so need no depth limit.
    #[test]
    fn no_message_of_the_schema_contains_itself() {
        fn visit(message: &MessageDescriptor, outer: &mut Vec<MessageDescriptor>) {
            assert!(!outer.contains(message), "{} is recursive", message.full_name());
            outer.push(message.clone());
            for field in message.fields() {
                if let Kind::Message(inner) = field.kind() {
                    visit(&inner, outer);
                }
            }
            outer.pop();
        }
        visit(&model_config(), &mut Vec::new());
    }

    #[test]
    fn fields_come_in_the_order_of_the_file() {
        let names: Vec<_> =
            in_declared_order(&model_config()).map(|field| field.name().to_owned()).take(6).collect();
        assert_eq!(names, ["name", "platform", "backend", "runtime", "version_policy", "max_batch_size"]);
    }
}
