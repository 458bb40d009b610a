//! The schemas of `/v2/explain`.
use serde_json::{Value, json};

use super::fragments::reference;

/// The schemas by name.
pub(super) fn schemas() -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let text = json!({ "type": "string" });
    let seconds = json!({ "type": "number", "minimum": 0, "description": "Seconds." });
    let maybe =
        json!({ "type": ["number", "null"], "minimum": 0, "description": "Seconds; null if unknown." });
    let list = |of: &str| json!({ "type": "array", "items": reference(of) });
    let counts = |names: &[&str]| -> Value {
        names.iter().map(|name| ((*name).to_owned(), count.clone())).collect::<serde_json::Map<_, _>>().into()
    };
    json!({
        "Explanation": {
            "type": "object",
            "required": ["server", "models", "models_left_out"],
            "properties": {
                "server": { "type": "object", "properties": {
                    "name": text, "version": text, "held_bytes": count, "held_bytes_limit": count,
                } },
                "models": list("ExplainedModel"),
                "models_left_out": count,
                "cache": { "type": "object", "properties": counts(&["entries", "used_bytes", "limit_bytes", "evictions"]) },
                "rate_limiter": { "type": "object" },
                "model_memory": { "type": "object", "properties": {
                    "budget_bytes": count, "used_bytes": count, "loads": count, "unloads": count, "refusals": count,
                    "models": list("ModelInMemory"), "models_left_out": count,
                } },
                "log": list("LogLine"),
            },
        },
        "ModelInMemory": model_in_memory(),
        "LogLine": {
            "type": "object",
            "required": ["level", "text"],
            "properties": { "level": { "type": "string", "enum": ["error", "warning", "info", "verbose"] }, "text": text },
        },
        "Finding": {
            "type": "object",
            "required": ["about", "fact"],
            "properties": { "about": text, "fact": text, "advice": text },
        },
        "ExplainedModel": {
            "type": "object",
            "required": ["name", "findings"],
            "properties": {
                "name": text, "namespace": text, "version": text, "state": text, "reason": text,
                "findings": list("Finding"),
                "generation": { "type": "integer", "description": "Increases with each load of any model." },
                "load_seconds": seconds,
                "backend": text,
                "max_batch_size": { "type": ["integer", "null"] },
                "scheduler": { "type": "object" },
                "in_flight": count,
                "queue": { "type": "object", "properties": {
                    "requests": count, "bytes": count, "oldest_seconds": maybe, "work_seconds": maybe,
                } },
                "instances": { "type": "object", "properties": counts(&["count", "busy", "left_out"]) },
                "requests": { "type": "object", "additionalProperties": count },
                "times": { "type": "object" },
                "batches": { "type": "object", "properties": counts(&["executed", "rows"]) },
                "sequences": { "type": "object", "properties": counts(&["slots_per_instance", "slots_left_out", "backlog"]) },
                "cache": { "type": "object", "properties": counts(&["hits", "misses"]) },
                "process_restarts": count,
                "steps": { "type": "array", "items": { "type": "object" } },
                "memory": { "type": "array", "items": { "type": "object" } },
            },
        },
    })
}

/// A model that is loaded on demand.
fn model_in_memory() -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "required": ["name", "place", "why"],
        "properties": {
            "name": text,
            "place": { "type": "string", "enum": ["in", "loading", "waiting", "unloading", "out"] },
            "why": text, "bytes": count, "measured": { "type": "boolean" }, "pinned": { "type": "boolean" },
            "priority": count, "load_seconds": { "type": "number", "minimum": 0 },
        },
    })
}
