//! Parts that occur in many places of a document.
use serde_json::{Map, Value, json};

/// The paths of a document, as OpenAPI's "paths object".
pub(super) type Paths = Map<String, Value>;

/// A reference to a schema of the document.
pub(super) fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// A body of JSON.
pub(super) fn json_content(schema: &Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}
