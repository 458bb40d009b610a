//! The paths of one model, described by its configuration.
use config::{InputSpec, ModelConfig};
use engine::Model;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use vocabulary::DataType;

use super::{
    fragments::{Paths, json_content, reference},
    operations,
};

/// What a part of a path does not encode.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Examples have at most so many elements.
const MOST_ELEMENTS: i64 = 32;

/// A tensor in the form of clients.
struct ClientTensor<'c> {
    name: &'c str,
    datatype: DataType,
    /// -1 is any size.
    shape: Vec<i64>,
    /// The most rows of a batch, if the first dimension is the batch.
    rows: Option<u32>,
}

/// What clients may send to a model. `version` is the version that the paths name, if they do.
pub(super) fn paths(model: &Model, version: Option<i64>) -> Paths {
    let config = model.config();
    let name = &config.name;
    let mut root = format!("/v2/models/{}", utf8_percent_encode(name, PLAIN));
    let mut suffix = name.to_string();
    if let Some(version) = version {
        root = format!("{root}/versions/{version}");
        suffix = format!("{name}_{version}");
    }
    let operation = |verb: &str, summary: &str, request: Value, success: Value| {
        json!({ "post": {
            "operationId": format!("{verb}_{suffix}"),
            "tags": [format!("Model {name}")],
            "summary": summary,
            "requestBody": { "content": request },
            "responses": operations::replies(&success),
        } })
    };
    let reply = |content: Value| json!({ "description": "Success.", "content": content });
    let mut paths = Paths::new();
    let (request_schema, response_schema) = (generate_request(config), generate_response(config));
    if !config.decoupled {
        let request = operations::tensors(&inference_request(config));
        let answer = operations::tensors(&inference_response(config));
        let mut infer = operation("infer", &format!("Runs {name} on tensors."), request, reply(answer));
        infer["post"]["parameters"] = operations::header_length();
        paths.insert(format!("{root}/infer"), infer);
        let summary = format!("Runs {name} on plain JSON, for one response.");
        let generate = operation(
            "generate",
            &summary,
            json_content(&request_schema),
            reply(json_content(&response_schema)),
        );
        paths.insert(format!("{root}/generate"), generate);
    }
    let summary = format!("Runs {name} on plain JSON, for any number of responses.");
    let stream = operation(
        "generate_stream",
        &summary,
        json_content(&request_schema),
        operations::events(&response_schema),
    );
    paths.insert(format!("{root}/generate_stream"), stream);
    paths
}

fn inputs(config: &ModelConfig) -> impl Iterator<Item = (&InputSpec, ClientTensor<'_>)> {
    config.inputs.iter().map(|input| {
        let tensor =
            ClientTensor::new(config, &input.name, input.datatype, &input.dims, input.is_shape_tensor);
        (input, tensor)
    })
}

fn outputs(config: &ModelConfig) -> impl Iterator<Item = ClientTensor<'_>> {
    config.outputs.iter().map(|output| {
        ClientTensor::new(config, &output.name, output.datatype, &output.dims, output.is_shape_tensor)
    })
}

fn inference_request(config: &ModelConfig) -> Value {
    let tensors: Vec<_> = inputs(config).map(|(_, tensor)| tensor.describe()).collect();
    let required = config.inputs.iter().filter(|input| !input.optional).count();
    let names: Vec<&str> = config.outputs.iter().map(|output| &*output.name).collect();
    let mut schema = json!({
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": { "type": "string" },
            "parameters": parameters(config),
            "inputs": {
                "type": "array", "minItems": required, "maxItems": tensors.len(), "items": any_of(tensors),
            },
            "outputs": {
                "type": "array",
                "description": "Without it, all outputs.",
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": { "type": "string", "enum": names }, "parameters": reference("Parameters"),
                    },
                },
            },
        },
    });
    let examples: Option<Vec<_>> =
        inputs(config).filter(|(input, _)| !input.optional).map(|(_, tensor)| tensor.example()).collect();
    if let Some(inputs) = examples {
        let mut example = json!({ "inputs": inputs });
        if config.has_sequences {
            example["parameters"] = json!({ "sequence_id": 1, "sequence_start": true, "sequence_end": true });
        }
        schema["examples"] = json!([example]);
    }
    schema
}

fn inference_response(config: &ModelConfig) -> Value {
    let tensors: Vec<_> = outputs(config).map(|tensor| tensor.describe_output()).collect();
    json!({
        "type": "object",
        "required": ["model_name", "model_version", "outputs"],
        "properties": {
            "id": { "type": "string" },
            "model_name": { "type": "string" },
            "model_version": { "type": "string" },
            "parameters": reference("Parameters"),
            "outputs": { "type": "array", "items": any_of(tensors) },
        },
    })
}

fn generate_request(config: &ModelConfig) -> Value {
    let mut schema = json!({
        "type": "object",
        "required": config.inputs.iter().filter(|input| !input.optional).map(|input| &*input.name).collect::<Vec<_>>(),
        "properties": { "id": { "type": "string" }, "parameters": { "type": "object" } },
    });
    let mut example = json!({});
    for (input, tensor) in inputs(config) {
        schema["properties"][tensor.name] = tensor.one_or_many();
        if !input.optional {
            example[tensor.name] = tensor.zero();
        }
    }
    schema["examples"] = json!([example]);
    schema
}

fn generate_response(config: &ModelConfig) -> Value {
    let mut schema = json!({
        "type": "object",
        "required": ["model_name", "model_version"],
        "properties": { "model_name": { "type": "string" }, "model_version": { "type": "string" } },
    });
    for tensor in outputs(config) {
        schema["properties"][tensor.name] = tensor.one_or_many();
    }
    schema
}

/// The parameters of a request, as far as the configuration gives them a meaning.
fn parameters(config: &ModelConfig) -> Value {
    if !config.has_sequences {
        return reference("Parameters");
    }
    json!({
        "type": "object",
        "required": ["sequence_id"],
        "properties": {
            "sequence_id": { "type": ["integer", "string"], "description": "Requests with this id belong together." },
            "sequence_start": { "type": "boolean" },
            "sequence_end": { "type": "boolean" },
        },
        "additionalProperties": { "type": ["string", "integer", "number", "boolean"] },
    })
}

/// What is one of these.
fn any_of(mut schemas: Vec<Value>) -> Value {
    match schemas.len() {
        0 => json!({}),
        1 => schemas.remove(0),
        _ => json!({ "anyOf": schemas }),
    }
}

impl<'c> ClientTensor<'c> {
    fn new(
        config: &ModelConfig,
        name: &'c str,
        datatype: DataType,
        dims: &[i64],
        is_shape_tensor: bool,
    ) -> Self {
        if is_shape_tensor {
            return Self { name, datatype, shape: dims.to_vec(), rows: None };
        }
        let rows = config.max_batch_size.map(std::num::NonZeroU32::get);
        Self { name, datatype, shape: config.client_dims(dims).to_vec(), rows }
    }

    fn describe(&self) -> Value {
        let dims = self.shape.iter().enumerate().map(|(index, &dim)| match (index, self.rows, dim) {
            (0, Some(rows), _) => json!({ "type": "integer", "minimum": 1, "maximum": rows }),
            (_, _, ..0) => json!({ "type": "integer", "minimum": 0 }),
            (_, _, dim) => json!({ "type": "integer", "const": dim }),
        });
        let dims: Vec<_> = dims.collect();
        let mut shape = json!({ "type": "array", "minItems": dims.len(), "maxItems": dims.len() });
        if !dims.is_empty() {
            shape["prefixItems"] = dims.into();
        }
        let mut tensor = json!({
            "type": "object",
            "required": ["name", "datatype", "shape"],
            "properties": {
                "name": { "type": "string", "const": self.name },
                "datatype": { "type": "string", "const": self.datatype.protocol_name() },
                "shape": shape,
                "parameters": reference("Parameters"),
            },
        });
        match self.element() {
            Some(element) => {
                tensor["properties"]["data"] = json!({
                    "type": "array",
                    "description": "The elements in row-major order, flat or nested as the shape.",
                    "items": { "anyOf": [element, { "type": "array" }] },
                });
            }
            None => {
                tensor["description"] = json!("This datatype has only the binary form.");
            }
        }
        tensor
    }

    /// An output may also come as classes, which are text.
    fn describe_output(&self) -> Value {
        let mut tensor = self.describe();
        let classes = json!({ "type": "string", "enum": [self.datatype.protocol_name(), "BYTES"] });
        tensor["properties"]["datatype"] = classes;
        tensor["properties"]["shape"] =
            json!({ "type": "array", "items": { "type": "integer", "minimum": 0 } });
        if let Some(data) = tensor["properties"].get_mut("data") {
            data["items"] = json!({});
        }
        tensor
    }

    /// The form of `generate`.
    fn one_or_many(&self) -> Value {
        match self.element() {
            Some(element) => json!({ "anyOf": [element, { "type": "array", "items": element }] }),
            None => json!({ "not": {} }),
        }
    }

    /// An element in JSON, if it has that form.
    fn element(&self) -> Option<Value> {
        let integer = |minimum: i64, maximum: u64| {
            Some(json!({ "type": "integer", "minimum": minimum, "maximum": maximum }))
        };
        match self.datatype {
            DataType::Bool => Some(json!({ "type": "boolean" })),
            DataType::Uint8 => integer(0, u8::MAX.into()),
            DataType::Uint16 => integer(0, u16::MAX.into()),
            DataType::Uint32 => integer(0, u32::MAX.into()),
            DataType::Uint64 => integer(0, u64::MAX),
            DataType::Int8 => integer(i8::MIN.into(), i8::MAX as u64),
            DataType::Int16 => integer(i16::MIN.into(), i16::MAX as u64),
            DataType::Int32 => integer(i32::MIN.into(), i32::MAX as u64),
            DataType::Int64 => integer(i64::MIN, i64::MAX as u64),
            DataType::Fp32 | DataType::Fp64 => Some(json!({ "type": "number" })),
            DataType::Bytes => Some(json!({ "type": "string" })),
            DataType::Fp16 | DataType::Bf16 => None,
        }
    }

    fn zero(&self) -> Value {
        match self.datatype {
            DataType::Bool => json!(false),
            DataType::Bytes => json!("text"),
            _ => json!(0),
        }
    }

    /// A small tensor of this form, if there is one in JSON. Dimensions of any size are 1.
    fn example(&self) -> Option<Value> {
        self.element()?;
        let shape: Vec<i64> = self.shape.iter().map(|dim| dim.abs()).collect();
        let elements = shape.iter().try_fold(1_i64, |product, dim| product.checked_mul(*dim))?;
        let data = usize::try_from(elements).ok().filter(|_| elements <= MOST_ELEMENTS)?;
        Some(json!({
            "name": self.name,
            "datatype": self.datatype.protocol_name(),
            "shape": shape,
            "data": vec![self.zero(); data],
        }))
    }
}
