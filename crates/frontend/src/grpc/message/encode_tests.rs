//! The generated decoder reads the messages that the encoder writes.
use bytes::{Buf, Bytes};
use proptest::{collection, option, prelude::*};
use prost::Message;
use proto::{
    InferParameter, ModelInferResponse, ModelStreamInferResponse, infer_parameter::ParameterChoice,
    model_infer_response::InferOutputTensor,
};
use vocabulary::{DataType, Shape, TensorData};

use super::*;

fn parameter() -> impl Strategy<Value = Parameter> {
    prop_oneof![
        any::<bool>().prop_map(Parameter::Bool),
        any::<i64>().prop_map(Parameter::Int),
        "[^\0]{0,20}".prop_map(|text| Parameter::String(Name::new(&text))),
        (-1e300..1e300).prop_map(Parameter::Double),
    ]
}

fn parameters() -> impl Strategy<Value = Vec<(Name, Parameter)>> {
    collection::btree_map("[a-z]{0,5}", parameter(), 0..4)
        .prop_map(|map| map.into_iter().map(|(key, value)| (Name::new(&key), value)).collect())
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let data = collection::vec(collection::vec(any::<u8>(), 0..2000), 0..3)
        .prop_map(|pieces| TensorData::from_pieces(pieces.into_iter().map(Bytes::from)));
    (
        "[a-zA-Z0-9_]{0,200}",
        prop::sample::select(DataType::ALL.to_vec()),
        collection::vec(any::<i64>(), 0..4),
        data,
    )
        .prop_map(|(name, datatype, shape, data)| {
            Tensor::new(Name::new(&name), datatype, Shape::from_vec(shape), data)
        })
}

/// The message after the prefix. Checks that the prefix states its length.
fn content(mut chunks: Chunks) -> Bytes {
    let mut bytes = chunks.copy_to_bytes(chunks.remaining());
    assert_eq!(bytes.get_u8(), 0);
    assert_eq!(usize::try_from(bytes.get_u32()).unwrap(), bytes.len());
    bytes
}

fn expected(response: &InferResponse<'_>) -> ModelInferResponse {
    let choice = |value: &Parameter| match value {
        Parameter::Bool(value) => ParameterChoice::BoolParam(*value),
        Parameter::Int(value) => ParameterChoice::Int64Param(*value),
        Parameter::String(value) => ParameterChoice::StringParam(value.to_string()),
        Parameter::Double(value) => ParameterChoice::DoubleParam(*value),
        Parameter::Bytes(_) => unreachable!("not generated"),
    };
    let last = response.last.map(|last| (Name::new("triton_final_response"), Parameter::Bool(last)));
    ModelInferResponse {
        model_name: response.model_name.to_owned(),
        model_version: response.model_version.to_owned(),
        id: response.id.to_owned(),
        parameters: response
            .parameters
            .iter()
            .chain(&last)
            .map(|(key, value)| (key.to_string(), InferParameter { parameter_choice: Some(choice(value)) }))
            .collect(),
        outputs: response
            .outputs
            .iter()
            .map(|output| InferOutputTensor {
                name: output.name().to_string(),
                datatype: output.datatype().protocol_name().to_owned(),
                shape: output.shape().to_vec(),
                ..InferOutputTensor::default()
            })
            .collect(),
        raw_output_contents: response
            .outputs
            .iter()
            .map(|output| output.host().unwrap().contiguous())
            .collect(),
    }
}

proptest! {
    #[test]
    fn the_generated_decoder_reads_the_encoded_response(
        texts in (".{0,200}", ".{0,3}", ".{0,20}"),
        parameters in parameters(),
        last in option::of(any::<bool>()),
        outputs in collection::vec(tensor(), 0..4),
        error in ".{0,50}",
    ) {
        let response = InferResponse {
            model_name: &texts.0,
            model_version: &texts.1,
            id: &texts.2,
            parameters: &parameters,
            last,
            outputs: &outputs,
        };
        let unary = ModelInferResponse::decode(content(response.unary().unwrap())).unwrap();
        prop_assert_eq!(&unary, &expected(&response));
        let streamed = ModelStreamInferResponse::decode(content(response.streamed(&error, MAX_MESSAGE))).unwrap();
        prop_assert_eq!(streamed.error_message, error);
        prop_assert_eq!(streamed.infer_response, Some(unary));
    }
}

#[test]
fn a_large_tensor_is_not_copied() {
    let data = Bytes::from(vec![1; COPIED + 1]);
    let outputs = [Tensor::new(
        Name::new("OUT"),
        DataType::Uint8,
        Shape::from_slice(&[1025]),
        TensorData::from(data.clone()),
    )];
    let chunks = InferResponse { outputs: &outputs, ..InferResponse::default() }.unary().unwrap();
    assert!(chunks.ranges().any(|range| range.as_ptr() == data.as_ptr()));
}

#[test]
fn a_response_beyond_the_limit_is_refused_by_its_size() {
    // All pieces share the same bytes: the encoder counts them and does not copy them.
    let piece = Bytes::from(vec![0; 1 << 20]);
    let data = TensorData::from_pieces(std::iter::repeat_n(piece, 2048));
    let outputs = [Tensor::new(Name::new("OUT"), DataType::Uint8, Shape::new(), data)];
    let error = InferResponse { outputs: &outputs, ..InferResponse::default() }.unary().unwrap_err();
    assert_eq!(
        error.message,
        "Response has byte size 2147483668 which exceeds gRPC's byte size limit 2147483647."
    );
}

#[test]
fn a_parameter_of_bytes_cannot_be_sent() {
    let parameters = [(Name::new("key"), Parameter::Bytes(Bytes::new()))];
    let refused = InferResponse { parameters: &parameters, ..InferResponse::default() }.unary().unwrap_err();
    assert_eq!(refused.code, vocabulary::ErrorCode::Unsupported);
}

#[test]
fn a_response_that_exceeds_the_message_size_becomes_an_error() {
    const LIMIT: usize = 200;
    let read = |response: InferResponse<'_>, error: &str| {
        let message = response.streamed(error, LIMIT);
        assert!(message.remaining() <= PREFIX + LIMIT);
        let message = ModelStreamInferResponse::decode(content(message)).unwrap();
        (message.error_message, message.infer_response.unwrap().id)
    };
    let text =
        |len: usize| format!("Response has byte size {len} which exceeds gRPC's byte size limit {LIMIT}.");
    let short = InferResponse { id: "7", ..InferResponse::default() };
    assert_eq!(read(short, "why"), ("why".to_owned(), "7".to_owned()));
    let output = Tensor::new("OUT".into(), DataType::Uint8, [300].as_slice().into(), vec![0; 300]);
    let (error, id) = read(InferResponse { outputs: &[output], ..short }, "");
    assert!(error.starts_with("Response has byte size 3") && id == "7", "{error}");
    // The answer contains neither a long id nor a long text.
    let long = "x".repeat(300);
    for (response, error) in [(InferResponse { id: &long, ..short }, "why"), (short, &*long)] {
        let (error, id) = read(response, error);
        assert!(error.starts_with("Response has byte size 3") || id == "7", "{error}");
    }
    assert_eq!(read(InferResponse { id: &long, ..InferResponse::default() }, ""), (text(306), String::new()));
}
