//! The bodies of requests and replies.
use serde_json::{Value, json};

use super::{explanation, fragments::reference};

/// The datatypes of the protocol.
const DATATYPES: [&str; 14] = [
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32",
    "FP64", "BYTES",
];

/// All schemas by name.
pub(super) fn all() -> Value {
    let mut all = json!({
        "Error": {
            "type": "object",
            "required": ["error"],
            "properties": { "error": { "type": "string", "description": "What is wrong, and the rule." } },
        },
        "Datatype": { "type": "string", "enum": DATATYPES },
        "Parameters": {
            "type": "object",
            "additionalProperties": { "type": ["string", "integer", "number", "boolean"] },
        },
    });
    let parts = [
        inference(),
        metadata(),
        model_list(),
        workload(),
        repository(),
        statistics(),
        observing(),
        shared_memory(),
        explanation::schemas(),
    ];
    for part in parts {
        if let (Value::Object(all), Value::Object(part)) = (&mut all, part) {
            all.extend(part);
        }
    }
    all
}

fn inference() -> Value {
    let shape = json!({ "type": "array", "items": { "type": "integer", "minimum": 0 } });
    let data = json!({
        "type": "array",
        "description": "The elements in row-major order, flat or nested as the shape. FP16 and BF16 have only the binary form.",
    });
    let parameters = reference("Parameters");
    let tensor = json!({
        "type": "object",
        "required": ["name", "datatype", "shape"],
        "properties": {
            "name": { "type": "string" },
            "datatype": reference("Datatype"),
            "shape": shape,
            "parameters": parameters,
            "data": data,
        },
    });
    json!({
        "Tensor": tensor,
        "RequestedOutput": {
            "type": "object",
            "required": ["name"],
            "properties": { "name": { "type": "string" }, "parameters": parameters },
        },
        "InferenceRequest": {
            "type": "object",
            "required": ["inputs"],
            "properties": {
                "id": { "type": "string" },
                "parameters": parameters,
                "inputs": { "type": "array", "items": reference("Tensor") },
                "outputs": { "type": "array", "items": reference("RequestedOutput") },
            },
        },
        "InferenceResponse": {
            "type": "object",
            "required": ["model_name", "model_version", "outputs"],
            "properties": {
                "id": { "type": "string" },
                "model_name": { "type": "string" },
                "model_version": { "type": "string" },
                "parameters": parameters,
                "outputs": { "type": "array", "items": reference("Tensor") },
            },
        },
        "GenerateRequest": {
            "type": "object",
            "description": "A member with the name of an input is that input: one value, or an array. Other members are parameters.",
            "properties": { "id": { "type": "string" }, "parameters": { "type": "object" } },
        },
        "GenerateResponse": {
            "type": "object",
            "description": "A member for each output: one value, or an array. Also the parameters of the response.",
            "required": ["model_name", "model_version"],
            "properties": { "model_name": { "type": "string" }, "model_version": { "type": "string" } },
        },
    })
}

fn metadata() -> Value {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    json!({
        "ServerMetadata": {
            "type": "object",
            "required": ["name", "version", "extensions"],
            "properties": {
                "name": { "type": "string" },
                "version": { "type": "string" },
                "extensions": texts,
            },
        },
        "TensorMetadata": {
            "type": "object",
            "required": ["name", "datatype", "shape"],
            "properties": {
                "name": { "type": "string" },
                "datatype": reference("Datatype"),
                "shape": {
                    "type": "array",
                    "description": "-1 stands for any size. The first one of a model with batches is the batch.",
                    "items": { "type": "integer", "minimum": -1 },
                },
            },
        },
        "ModelMetadata": {
            "type": "object",
            "required": ["name", "versions", "platform", "inputs", "outputs"],
            "properties": {
                "name": { "type": "string" },
                "versions": texts,
                "platform": { "type": "string" },
                "inputs": { "type": "array", "items": reference("TensorMetadata") },
                "outputs": { "type": "array", "items": reference("TensorMetadata") },
            },
        },
        "ModelConfig": { "type": "object", "description": "The JSON form of `config.pbtxt` (message `ModelConfig`)." },
        "NotReady": {
            "type": "object",
            "required": ["error"],
            "properties": {
                "error": { "type": "string" },
                "not_ready": { "type": "array", "items": reference("IndexEntry") },
            },
        },
    })
}

/// The states of a version.
const STATES: [&str; 4] = ["LOADING", "READY", "UNLOADING", "UNAVAILABLE"];

fn model_list() -> Value {
    json!({
        "ModelList": {
            "type": "object",
            "required": ["models"],
            "properties": {
                "models": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "versions"],
                        "properties": {
                            "name": { "type": "string" },
                            "namespace": { "type": "string" },
                            "versions": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "required": ["version", "state"],
                                    "properties": {
                                        "version": { "type": "string" },
                                        "state": { "type": "string", "enum": STATES },
                                        "reason": { "type": "string" },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    })
}

fn workload() -> Value {
    let count = |description: &str| json!({ "type": "integer", "minimum": 0, "description": description });
    let number = |description: &str| json!({ "type": "number", "minimum": 0, "description": description });
    let in_flight = count(
        "Requests that were accepted and have not ended. A step of an ensemble counts at its model, too.",
    );
    let waiting = count("Those of them that wait for an instance.");
    json!({
        "Load": {
            "type": "object",
            "required": [
                "requests_in_flight", "requests_waiting", "queued_work_seconds", "instance_busy_ratio",
                "live_sequences", "models",
            ],
            "properties": {
                "requests_in_flight": in_flight,
                "requests_waiting": waiting,
                "queued_work_seconds": number("The longest time that the instances of a model need for what waits there."),
                "instance_busy_ratio": number("The highest share of the last 5 to 10 seconds in which the instances of a \
                                               model ran batches."),
                "live_sequences": count("Sequences that may still get requests."),
                "models": {
                    "type": "array",
                    "description": "The versions that are not idle.",
                    "items": {
                        "type": "object",
                        "required": ["name", "version", "requests_in_flight", "requests_waiting"],
                        "properties": {
                            "name": { "type": "string" },
                            "version": { "type": "string" },
                            "requests_in_flight": in_flight,
                            "requests_waiting": waiting,
                            "queued_work_seconds": { "type": "number", "minimum": 0 },
                            "instance_busy_ratio": { "type": "number", "minimum": 0 },
                        },
                    },
                },
            },
        },
    })
}

fn repository() -> Value {
    json!({
        "IndexEntry": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": { "type": "string" },
                "namespace": { "type": "string" },
                "version": { "type": "string" },
                "state": { "type": "string", "enum": STATES },
                "reason": { "type": "string", "description": "Why the version is not ready." },
            },
        },
        "Index": { "type": "array", "items": reference("IndexEntry") },
        "IndexRequest": {
            "type": "object",
            "properties": { "ready": { "type": "boolean", "description": "Only versions that are ready." } },
        },
        "LoadRequest": {
            "type": "object",
            "properties": {
                "parameters": {
                    "type": "object",
                    "properties": {
                        "config": { "type": "string", "description": "The configuration as JSON, instead of that of the repository." },
                    },
                    "patternProperties": {
                        "^file:": { "type": "string", "contentEncoding": "base64", "description": "A file of the model." },
                    },
                },
            },
        },
        "UnloadRequest": {
            "type": "object",
            "properties": {
                "parameters": {
                    "type": "object",
                    "properties": {
                        "unload_dependents": { "type": "boolean", "description": "Also the members of an ensemble." },
                    },
                },
            },
        },
        "EmptiedCache": {
            "type": "object",
            "required": ["removed"],
            "properties": { "removed": { "type": "integer", "minimum": 0 } },
        },
    })
}

fn statistics() -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let durations = |names: &[&str]| -> Value {
        names.iter().map(|name| ((*name).to_owned(), reference("Duration"))).collect()
    };
    json!({
        "Duration": {
            "type": "object",
            "required": ["count", "ns"],
            "properties": { "count": count, "ns": { "type": "integer", "minimum": 0, "description": "Nanoseconds." } },
        },
        "Statistics": {
            "type": "object",
            "required": ["model_stats"],
            "properties": { "model_stats": { "type": "array", "items": reference("ModelStatistics") } },
        },
        "ModelStatistics": {
            "type": "object",
            "required": ["name", "version", "inference_count", "execution_count", "inference_stats"],
            "properties": {
                "name": { "type": "string" },
                "version": { "type": "string" },
                "last_inference": { "type": "integer", "description": "Milliseconds since 1970." },
                "inference_count": count,
                "execution_count": count,
                "inference_stats": {
                    "type": "object",
                    "properties": durations(&[
                        "success", "fail", "queue", "compute_input", "compute_infer", "compute_output",
                        "cache_hit", "cache_miss",
                    ]),
                },
                "response_stats": { "type": "object" },
                "batch_stats": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": durations(&["compute_input", "compute_infer", "compute_output"]),
                    },
                },
                "memory_usage": { "type": "array", "items": { "type": "object" } },
            },
        },
    })
}

fn observing() -> Value {
    let text = json!({ "type": "string" });
    let levels =
        json!({ "type": "array", "items": { "type": "string", "enum": ["OFF", "TIMESTAMPS", "TENSORS"] } });
    let nullable = json!({ "type": ["string", "null"] });
    let log = json!({
        "log_info": { "type": "boolean" },
        "log_warning": { "type": "boolean" },
        "log_error": { "type": "boolean" },
        "log_verbose_level": { "type": "integer", "minimum": 0 },
        "log_format": text,
    });
    let mut shown = log.clone();
    shown["log_file"] = text.clone();
    json!({
        "TraceSettings": {
            "type": "object",
            "properties": {
                "trace_level": levels, "trace_rate": text, "trace_count": text, "log_frequency": text,
                "trace_file": text, "trace_mode": text,
            },
        },
        "TraceSettingsUpdate": {
            "type": "object",
            "description": "`null` clears a setting.",
            "properties": {
                "trace_level": { "anyOf": [levels, { "type": "null" }] },
                "trace_rate": nullable, "trace_count": nullable, "log_frequency": nullable,
            },
        },
        "LogSettings": { "type": "object", "properties": shown },
        "LogSettingsUpdate": { "type": "object", "properties": log },
    })
}

fn shared_memory() -> Value {
    let size = json!({ "type": "integer", "minimum": 0 });
    json!({
        "SystemRegions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "key", "offset", "byte_size"],
                "properties": {
                    "name": { "type": "string" }, "key": { "type": "string" }, "offset": size, "byte_size": size,
                },
            },
        },
        "SystemRegionRequest": {
            "type": "object",
            "required": ["key", "byte_size"],
            "properties": { "key": { "type": "string" }, "offset": size, "byte_size": size },
        },
        "CudaRegions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "device_id", "byte_size"],
                "properties": { "name": { "type": "string" }, "device_id": size, "byte_size": size },
            },
        },
        "CudaRegionRequest": {
            "type": "object",
            "required": ["raw_handle", "byte_size", "device_id"],
            "properties": {
                "raw_handle": {
                    "type": "object",
                    "required": ["b64"],
                    "properties": { "b64": { "type": "string", "contentEncoding": "base64" } },
                },
                "byte_size": size,
                "device_id": size,
            },
        },
    })
}
