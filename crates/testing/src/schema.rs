//! Converts protobuf messages from and to their JSON form, with the descriptors of the protocol.
//!
//! The form is that of the recordings: names as in the schema, 64-bit integers as strings, bytes as base64, defaults
//! left out.
use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::Value;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(proto::FILE_DESCRIPTOR_SET)
        .expect("the protocol's own descriptors are well formed")
});

/// The names of the request and the response of a method, given as `/package.Service/Method`; `None` if the protocol
/// has no such method.
pub fn method(path: &str) -> Option<(String, String)> {
    let (service, name) = path.strip_prefix('/')?.split_once('/')?;
    let service = POOL.get_service_by_name(service)?;
    let method = service.methods().find(|method| method.name() == name)?;
    Some((method.input().full_name().to_owned(), method.output().full_name().to_owned()))
}

fn descriptor(message: &str) -> Result<MessageDescriptor, String> {
    POOL.get_message_by_name(message).ok_or_else(|| format!("the protocol has no message '{message}'"))
}

/// Encodes a message of that name.
///
/// # Errors
/// The protocol has no such message, or the JSON does not fit it.
pub fn encode(message: &str, json: &Value) -> Result<Vec<u8>, String> {
    let read = DynamicMessage::deserialize(descriptor(message)?, json);
    read.map(|message| message.encode_to_vec()).map_err(|error| format!("{message}: {error}"))
}

/// Decodes a message of that name.
///
/// # Errors
/// The protocol has no such message, or the bytes are not one.
pub fn decode(message: &str, bytes: &[u8]) -> Result<Value, String> {
    let read =
        DynamicMessage::decode(descriptor(message)?, bytes).map_err(|error| format!("{message}: {error}"))?;
    let options = SerializeOptions::new().use_proto_field_name(true);
    read.serialize_with_options(serde_json::value::Serializer, &options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_unchanged_after_encoding_and_decoding() {
        let (request, response) = method("/inference.GRPCInferenceService/ModelInfer").unwrap();
        assert_eq!(response, "inference.ModelInferResponse");
        let json = json!({
            "model_name": "simple",
            "parameters": {"b": {"bool_param": false}},
            "inputs": [{"name": "IN", "shape": ["1", "16"], "contents": {"fp32_contents": [1.5]}}],
            "raw_input_contents": ["AQI="]
        });
        assert_eq!(decode(&request, &encode(&request, &json).unwrap()).unwrap(), json);
        assert!(encode(&request, &json!({"nope": 1})).is_err());
        assert_eq!(method("/inference.GRPCInferenceService/Nope"), None);
    }
}
