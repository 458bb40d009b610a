//! The readers of HTTP requests, as entrances for fuzzers.
use bytes::Bytes;
use config::InputSpec;
use shared_memory::ClientRegions;
use vocabulary::{DataType, TensorData};

use super::{generate, json, request, router::Route};

/// The limit on inputs, in bytes.
const MAX_INPUT: usize = 1 << 20;

/// Decodes an infer request with its JSON part and its binary part. Returns the steps of the JSON reader.
pub fn infer(json: &[u8], binary: &Bytes) -> usize {
    let regions = ClientRegions::forbidden();
    let context =
        request::DecodeContext { model: "m", max_input_size: MAX_INPUT, inputs: &[], regions: &regions };
    let binary = TensorData::from(binary.clone());
    json::steps_of(|| request::decode(json, &binary, context)).0
}

/// Decodes a generate request for a model with an input of integers, one of floats and one of texts. Returns the steps
/// of the JSON reader.
pub fn generate(json: &[u8], batched: bool) -> usize {
    let inputs = [("A", DataType::Int32, -1), ("B", DataType::Fp32, 3), ("T", DataType::Bytes, 1)];
    let inputs = inputs.map(|(name, datatype, dim)| InputSpec {
        name: name.into(),
        datatype,
        dims: [dim].as_slice().into(),
        reshape: None,
        optional: true,
        allow_ragged_batch: false,
        is_shape_tensor: false,
    });
    let schema = generate::Schema { inputs: &inputs, batched, max_input_size: MAX_INPUT };
    json::steps_of(|| generate::decode(json, schema)).0
}

/// Finds the route of a path.
pub fn route(path: &str) {
    let _ = Route::of(path);
}
