//! How an operation of the HTTP endpoint is described: what a request carries, and what a reply.
use serde_json::{Value, json};

use super::fragments::{json_content, reference};

/// A method of a path.
pub(super) struct HttpOperation {
    pub(super) path: &'static str,
    /// In lower case.
    pub(super) method: &'static str,
    tag: &'static str,
    pub(super) id: &'static str,
    summary: &'static str,
    request: RequestBody,
    reply: ReplyBody,
}

/// What a request carries.
pub(super) enum RequestBody {
    Nothing,
    /// JSON with this schema.
    Json(&'static str),
    /// The same, but the request may carry nothing instead.
    MayBeJson(&'static str),
    /// JSON, and perhaps the bytes of tensors.
    Tensors,
}

/// What a successful reply carries.
pub(super) enum ReplyBody {
    Nothing,
    /// JSON with this schema.
    Json(&'static str),
    /// JSON, and perhaps the bytes of tensors.
    Tensors,
    /// Server-sent events.
    Events,
    /// The document itself.
    OpenApi,
    Html,
}

/// A GET.
pub(super) const fn get(
    path: &'static str,
    tag: &'static str,
    id: &'static str,
    summary: &'static str,
    reply: ReplyBody,
) -> HttpOperation {
    HttpOperation { path, method: "get", tag, id, summary, request: RequestBody::Nothing, reply }
}

impl HttpOperation {
    /// The same route, as a POST with this body.
    pub(super) const fn post(mut self, request: RequestBody) -> Self {
        self.method = "post";
        self.request = request;
        self
    }
}

/// The parts of a path that stand in braces.
pub(super) fn parameters(path: &str) -> impl Iterator<Item = Value> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).map(|name| {
        let schema = match name {
            "version" => json!({ "type": "string", "pattern": "^[0-9]+$", "examples": ["1"] }),
            _ => json!({ "type": "string", "minLength": 1 }),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    })
}

impl HttpOperation {
    /// The operation with this name.
    pub(super) fn describe(&self, id: &str) -> Value {
        let mut operation = json!({
            "operationId": id,
            "tags": [self.tag],
            "summary": self.summary,
            "responses": replies(&self.reply.describe()),
        });
        if let Some(body) = self.request.describe() {
            operation["requestBody"] = body;
        }
        if matches!(self.request, RequestBody::Tensors) {
            operation["parameters"] = header_length();
        }
        if self.id == "explain" {
            operation["parameters"] = json!([{
                "name": "name",
                "in": "query",
                "description": "Only models whose names contain this, in upper or lower case.",
                "schema": { "type": "string" },
            }]);
        }
        if self.id == "ready" {
            operation["responses"]["400"] = json!({
                "description": "The server is not ready. The reply names models that keep it from being ready.",
                "content": json_content(&reference("NotReady")),
            });
        }
        operation
    }
}

/// The replies of an operation: the successful one, and errors.
pub(super) fn replies(success: &Value) -> Value {
    let failed = |description: &str| json!({ "description": description, "content": json_content(&reference("Error")) });
    json!({
        "200": success,
        "4XX": failed("The request is wrong, or the server refuses it."),
        "5XX": failed("The server or the model has failed, cannot do this, or has no room for the request."),
    })
}

/// The header that precedes binary tensors.
pub(super) fn header_length() -> Value {
    json!([{
        "name": "Inference-Header-Content-Length",
        "in": "header",
        "description": "The length of the JSON part in bytes. Without it, the whole body is JSON.",
        "schema": { "type": "integer", "minimum": 0 },
    }])
}

/// A body that is JSON of this schema, or JSON and the bytes of tensors.
pub(super) fn tensors(schema: &Value) -> Value {
    let mut content = json_content(schema);
    content["application/octet-stream"] = json!({ "schema": { "type": "string", "format": "binary" } });
    content
}

impl RequestBody {
    fn describe(&self) -> Option<Value> {
        let json = |schema: &str, is_required: bool| {
            Some(json!({ "required": is_required, "content": json_content(&reference(schema)) }))
        };
        match self {
            Self::Nothing => None,
            Self::Json(schema) => json(schema, true),
            Self::MayBeJson(schema) => json(schema, false),
            // The only input of a model may have no bytes.
            Self::Tensors => Some(json!({ "content": tensors(&reference("InferenceRequest")) })),
        }
    }
}

impl ReplyBody {
    fn describe(&self) -> Value {
        let text = "Success.";
        let with = |content: Value| json!({ "description": text, "content": content });
        match self {
            Self::Nothing => json!({ "description": text }),
            Self::Json(schema) => with(json_content(&reference(schema))),
            Self::Tensors => with(tensors(&reference("InferenceResponse"))),
            Self::Events => events(&reference("GenerateResponse")),
            Self::OpenApi => with(json_content(&json!({ "type": "object" }))),
            Self::Html => with(json!({ "text/html": { "schema": { "type": "string" } } })),
        }
    }
}

/// A reply with an event for each response.
pub(super) fn events(schema: &Value) -> Value {
    json!({
        "description": "Server-sent events. The data of each event is a response, or an error after the beginning.",
        "content": { "text/event-stream": { "x-event-data": schema } },
    })
}
