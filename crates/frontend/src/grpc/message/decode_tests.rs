//! Compares the decoder with the generated decoder: the results are equal for every message and every division into
//! frames.
use std::{cell::Cell, collections::BTreeMap};

use proptest::{collection, option, prelude::*};
use prost::Message;
use proto::{
    InferParameter, InferTensorContents, ModelInferRequest,
    infer_parameter::ParameterChoice,
    model_infer_request::{InferInputTensor, InferRequestedOutputTensor},
};
use vocabulary::ByteBudget;

use super::*;
use crate::grpc::message::contents::{self, ContentsRoom};

thread_local! {
    static DECODED: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn count_decoded() {
    DECODED.set(DECODED.get() + 1);
}

/// The number of messages that this thread has decoded.
pub(crate) fn decoded_here() -> usize {
    DECODED.get()
}

/// The result of the generated decoder, in the types of this decoder.
fn expected_parameters(parameters: &BTreeMap<String, InferParameter>) -> InferParameters<'_> {
    let choice = |parameter: &InferParameter| {
        Some(match parameter.parameter_choice.clone()? {
            ParameterChoice::BoolParam(value) => GrpcParameter::Bool(value),
            ParameterChoice::Int64Param(value) => GrpcParameter::Int64(value),
            ParameterChoice::StringParam(value) => GrpcParameter::String(Cow::Owned(value)),
            ParameterChoice::DoubleParam(value) => GrpcParameter::Double(value),
            ParameterChoice::Uint64Param(value) => GrpcParameter::Uint64(value),
        })
    };
    parameters.iter().map(|(key, value)| (Cow::Borrowed(key.as_str()), choice(value))).collect()
}

/// The bytes of the tensor; `None` if the contents are of another kind than the datatype, or of several kinds.
fn expected_bytes(contents: &InferTensorContents, datatype: DataType) -> Option<Vec<u8>> {
    let ints = |kept: usize| contents.int_contents.iter().flat_map(move |v| v.to_le_bytes()[..kept].to_vec());
    let uints =
        |kept: usize| contents.uint_contents.iter().flat_map(move |v| v.to_le_bytes()[..kept].to_vec());
    let byte_strings = contents
        .bytes_contents
        .iter()
        .flat_map(|element| [&u32::try_from(element.len()).unwrap().to_le_bytes()[..], element].concat());
    let present = [
        contents.bool_contents.len(),
        contents.int_contents.len(),
        contents.int64_contents.len(),
        contents.uint_contents.len(),
        contents.uint64_contents.len(),
        contents.fp32_contents.len(),
        contents.fp64_contents.len(),
        contents.bytes_contents.len(),
    ];
    let bytes: Vec<u8> = match datatype {
        DataType::Bool => contents.bool_contents.iter().map(|&value| u8::from(value)).collect(),
        DataType::Int8 => ints(1).collect(),
        DataType::Int16 => ints(2).collect(),
        DataType::Int32 => ints(4).collect(),
        DataType::Int64 => contents.int64_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DataType::Uint8 => uints(1).collect(),
        DataType::Uint16 => uints(2).collect(),
        DataType::Uint32 => uints(4).collect(),
        DataType::Uint64 => contents.uint64_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DataType::Fp32 => contents.fp32_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DataType::Fp64 => contents.fp64_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DataType::Bytes => byte_strings.collect(),
        DataType::Fp16 | DataType::Bf16 => Vec::new(),
    };
    let kinds = present.into_iter().filter(|&count| count > 0).count();
    (kinds == usize::from(!bytes.is_empty())).then_some(bytes)
}

/// The bytes of a tensor of that datatype with these contents.
fn bytes_of(parts: &[WireReader<'_>], datatype: DataType) -> Result<Vec<u8>, InvalidMessage> {
    let mut reservation = ByteBudget::new(usize::MAX).reservation();
    let mut room = ContentsRoom::new(&mut reservation);
    let bytes = contents::bytes(parts, Some(datatype), "IN", "m", &mut room)?;
    assert_eq!(reservation.bytes(), bytes.len());
    Ok(bytes.contiguous().to_vec())
}

fn assert_same_contents(ours: &[WireReader<'_>], theirs: Option<&InferTensorContents>) {
    assert_eq!(ours.is_empty(), theirs.is_none());
    let Some(theirs) = theirs else { return };
    for datatype in DataType::ALL {
        match (bytes_of(ours, datatype), expected_bytes(theirs, datatype)) {
            (Ok(ours), Some(theirs)) => assert_eq!(ours, theirs),
            (Err(InvalidMessage::Refused(_)), None) => {}
            other => panic!("{datatype:?}: {other:?}"),
        }
    }
}

/// Compares both results as text, so that NaN equals NaN.
fn assert_same(ours: &InferMessage<'_>, theirs: &ModelInferRequest) {
    assert_eq!(ours.model_name, theirs.model_name);
    assert_eq!(ours.model_version, theirs.model_version);
    assert_eq!(ours.id, theirs.id);
    assert_eq!(format!("{:?}", ours.parameters), format!("{:?}", expected_parameters(&theirs.parameters)));
    assert_eq!(ours.inputs.len(), theirs.inputs.len());
    for (ours, theirs) in ours.inputs.iter().zip(&theirs.inputs) {
        assert_eq!(ours.name, theirs.name);
        assert_eq!(ours.datatype, DataType::from_protocol_name(&theirs.datatype));
        assert_eq!(ours.shape.as_slice(), theirs.shape);
        assert_eq!(
            format!("{:?}", ours.parameters),
            format!("{:?}", expected_parameters(&theirs.parameters))
        );
        assert_same_contents(&ours.contents, theirs.contents.as_ref());
    }
    assert_eq!(ours.outputs.len(), theirs.outputs.len());
    for (ours, theirs) in ours.outputs.iter().zip(&theirs.outputs) {
        assert_eq!(ours.name, theirs.name);
        assert_eq!(
            format!("{:?}", ours.parameters),
            format!("{:?}", expected_parameters(&theirs.parameters))
        );
    }
    let raw: Vec<_> = ours.raw_contents.iter().map(TensorData::contiguous).collect();
    assert_eq!(raw, theirs.raw_input_contents);
}

/// If this decoder accepts a message, the generated decoder accepts it, too, with the same meaning. (The generated
/// decoder does not check the wire type of maps.)
fn assert_not_laxer(frames: &[Bytes], bytes: &[u8]) {
    let Ok(ours) = InferMessage::decode(frames) else { return };
    let any = |input: &InferInput<'_>, is: fn(&Result<Vec<u8>, InvalidMessage>) -> bool| {
        DataType::ALL.into_iter().any(|datatype| is(&bytes_of(&input.contents, datatype)))
    };
    let is_malformed = |input: &InferInput<'_>| any(input, |bytes| *bytes == Err(InvalidMessage::Malformed));
    match ModelInferRequest::decode(bytes) {
        Ok(_) if ours.inputs.iter().any(is_malformed) => {}
        Ok(theirs) => assert_same(&ours, &theirs),
        Err(error) => {
            let is_taken = ours.inputs.iter().all(|input| any(input, Result::is_ok));
            assert!(!is_taken, "only we take this: {error}");
        }
    }
}

/// Divides the message into frames that end at the given offsets.
fn cut(message: &[u8], places: &[prop::sample::Index]) -> Vec<Bytes> {
    let mut places: Vec<_> = places.iter().map(|place| place.index(message.len() + 1)).collect();
    places.push(message.len());
    places.sort_unstable();
    let mut start = 0;
    places
        .into_iter()
        .map(|end| Bytes::copy_from_slice(&message[std::mem::replace(&mut start, end)..end]))
        .collect()
}

fn parameters() -> impl Strategy<Value = BTreeMap<String, InferParameter>> {
    let choice = prop_oneof![
        any::<bool>().prop_map(ParameterChoice::BoolParam),
        any::<i64>().prop_map(ParameterChoice::Int64Param),
        any::<String>().prop_map(ParameterChoice::StringParam),
        any::<f64>().prop_map(ParameterChoice::DoubleParam),
        any::<u64>().prop_map(ParameterChoice::Uint64Param),
    ];
    let parameter = option::of(choice).prop_map(|parameter_choice| InferParameter { parameter_choice });
    collection::btree_map(".{0,8}", parameter, 0..4)
}

fn byte_string() -> impl Strategy<Value = Bytes> {
    collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

fn contents() -> impl Strategy<Value = InferTensorContents> {
    let numbers = (
        collection::vec(any::<bool>(), 0..4),
        collection::vec(any::<i32>(), 0..4),
        collection::vec(any::<i64>(), 0..4),
        collection::vec(any::<u32>(), 0..4),
        collection::vec(any::<u64>(), 0..4),
        collection::vec(any::<f32>(), 0..4),
        collection::vec(any::<f64>(), 0..4),
        collection::vec(byte_string(), 0..3),
    );
    numbers.prop_map(|numbers| InferTensorContents {
        bool_contents: numbers.0,
        int_contents: numbers.1,
        int64_contents: numbers.2,
        uint_contents: numbers.3,
        uint64_contents: numbers.4,
        fp32_contents: numbers.5,
        fp64_contents: numbers.6,
        bytes_contents: numbers.7,
    })
}

fn datatype() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(DataType::ALL.to_vec()).prop_map(|datatype| datatype.protocol_name().to_owned()),
        any::<String>(),
    ]
}

fn input() -> impl Strategy<Value = InferInputTensor> {
    (any::<String>(), datatype(), collection::vec(any::<i64>(), 0..8), parameters(), option::of(contents()))
        .prop_map(|(name, datatype, shape, parameters, contents)| InferInputTensor {
            name,
            datatype,
            shape,
            parameters,
            contents,
        })
}

fn output() -> impl Strategy<Value = InferRequestedOutputTensor> {
    (any::<String>(), parameters())
        .prop_map(|(name, parameters)| InferRequestedOutputTensor { name, parameters })
}

fn message() -> impl Strategy<Value = ModelInferRequest> {
    (
        (any::<String>(), any::<String>(), any::<String>()),
        parameters(),
        collection::vec(input(), 0..4),
        collection::vec(output(), 0..4),
        collection::vec(byte_string(), 0..4),
    )
        .prop_map(
            |((model_name, model_version, id), parameters, inputs, outputs, raw_input_contents)| {
                ModelInferRequest {
                    model_name,
                    model_version,
                    id,
                    parameters,
                    inputs,
                    outputs,
                    raw_input_contents,
                }
            },
        )
}

proptest! {
    #[test]
    fn a_message_means_the_same_to_both_decoders_however_it_is_cut(
        message in message(),
        places in collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let frames = cut(&message.encode_to_vec(), &places);
        assert_same(&InferMessage::decode(&frames).unwrap(), &message);
    }

    #[test]
    fn a_damaged_message_is_refused_or_means_the_same(
        message in message(),
        damage in collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in option::of(any::<prop::sample::Index>()),
        places in collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut bytes = message.encode_to_vec();
        prop_assume!(!bytes.is_empty());
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        bytes.truncate(end.map_or(bytes.len(), |end| end.index(bytes.len() + 1)));
        let frames = cut(&bytes, &places);
        assert_not_laxer(&frames, &bytes);
    }

    #[test]
    fn random_bytes_are_refused_or_mean_the_same(
        bytes in collection::vec(any::<u8>(), 0..64),
        places in collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let frames = cut(&bytes, &places);
        assert_not_laxer(&frames, &bytes);
    }
}

/// The numbers of a repeated field may come one by one. A message may come twice, and so may a key.
#[test]
fn repeated_fields_follow_the_schema() {
    let once = InferInputTensor {
        contents: Some(InferTensorContents { int_contents: vec![1, 2], ..Default::default() }),
        ..Default::default()
    };
    let mut input = once.encode_to_vec();
    input.extend(once.encode_to_vec());
    input.extend([0x2a, 0x02, 0x10, 0x07]); // contents { int_contents: 7 }, not packed
    input.extend([0x18, 0x05]); // shape: 5, not packed
    let mut bytes = vec![0x2a, u8::try_from(input.len()).unwrap()];
    bytes.extend(input);
    for value in ["old", "new"] {
        let parameter =
            InferParameter { parameter_choice: Some(ParameterChoice::StringParam(value.to_owned())) };
        let entry = ModelInferRequest {
            parameters: BTreeMap::from([("key".to_owned(), parameter)]),
            ..ModelInferRequest::default()
        };
        bytes.extend(entry.encode_to_vec());
    }
    let frames = [Bytes::from(bytes.clone())];
    let message = InferMessage::decode(&frames).unwrap();
    assert_eq!(bytes_of(&message.inputs[0].contents, DataType::Int8), Ok(vec![1, 2, 1, 2, 7]));
    assert_eq!(message.inputs[0].shape.as_slice(), [5]);
    assert_eq!(message.parameters, [("key".into(), Some(GrpcParameter::String("new".into())))]);
    assert_same(&message, &ModelInferRequest::decode(bytes.as_slice()).unwrap());
}

#[test]
fn a_tensor_in_several_frames_is_not_copied() {
    let message = ModelInferRequest {
        raw_input_contents: vec![Bytes::from(vec![7; 100])],
        ..ModelInferRequest::default()
    };
    let bytes = Bytes::from(message.encode_to_vec());
    let frames = [bytes.slice(..40), bytes.slice(40..)];
    let decoded = InferMessage::decode(&frames).unwrap();
    let pieces = decoded.raw_contents[0].pieces();
    assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [38, 62]);
    assert_eq!(pieces[1].as_ptr(), frames[1].as_ptr());
}

#[test]
fn a_message_of_nothing_but_empty_tensors_does_not_fill_the_memory() {
    let frames = [Bytes::from([0x2a, 0x00].repeat(MAX_ITEMS))];
    assert_eq!(InferMessage::decode(&frames).unwrap().inputs.len(), MAX_ITEMS);
    let frames = [Bytes::from([0x2a, 0x00].repeat(MAX_ITEMS + 1))];
    assert_eq!(refusal(&frames), TOO_MANY);
}

const TOO_MANY: &str = "a request may have 16384 tensors and parameters, and this one has more";

fn refusal(frames: &[Bytes]) -> String {
    match InferMessage::decode(frames).unwrap_err() {
        InvalidMessage::Refused(error) => error.to_string(),
        InvalidMessage::Malformed => "malformed".to_owned(),
    }
}

#[test]
fn only_raw_contents_may_be_long_in_a_brief_message() {
    let raw = |count: usize, length: usize| ModelInferRequest {
        raw_input_contents: vec![vec![1; length].into(); count],
        ..ModelInferRequest::default()
    };
    let typed = |count: usize| {
        let contents = InferTensorContents { fp32_contents: vec![1.0; count], ..Default::default() };
        let input = InferInputTensor { contents: Some(contents), ..InferInputTensor::default() };
        ModelInferRequest { inputs: vec![input], ..raw(3, BRIEF) }
    };
    let brief = |message: &ModelInferRequest| {
        let mut bytes = Bytes::from(message.encode_to_vec());
        let frames: Vec<_> =
            std::iter::from_fn(|| (!bytes.is_empty()).then(|| bytes.split_to(bytes.len().min(1000))))
                .collect();
        is_brief(&frames)
    };
    assert!(brief(&raw(0, 0)) && brief(&raw(1, 10 * BRIEF)) && brief(&raw(100, BRIEF)));
    assert!(brief(&typed(BRIEF / 4 - 20)));
    assert!(!brief(&typed(BRIEF / 4)));
    assert!(!brief(&raw(BRIEF + 1, 2)), "the decoder visits each of the contents");
    let group = [&[0x1b][..], &[0x10; 2 * BRIEF][..], &[0x1c][..]].concat();
    assert!(!is_brief(&[group.into()]), "a group is read up to its end");
}

#[test]
fn a_long_shape_is_kept_up_to_one_dimension_too_many() {
    let input = InferInputTensor { shape: vec![1; 100_000], ..InferInputTensor::default() };
    let message = ModelInferRequest { inputs: vec![input], ..ModelInferRequest::default() };
    let frames = [Bytes::from(message.encode_to_vec())];
    assert_eq!(InferMessage::decode(&frames).unwrap().inputs[0].shape.len(), MAX_DIMS + 1);
    let input = InferInputTensor { shape: vec![1; MAX_DIMS], ..InferInputTensor::default() };
    let message = ModelInferRequest { inputs: vec![input; MAX_ITEMS / 100], ..ModelInferRequest::default() };
    let frames = [Bytes::from(message.encode_to_vec())];
    assert_eq!(refusal(&frames), TOO_MANY, "the dimensions are items");
}

#[test]
fn what_a_decoder_may_copy_is_known_before() {
    let input = InferInputTensor {
        name: "IN".to_owned(),
        contents: Some(InferTensorContents { fp32_contents: vec![1.0; 1000], ..Default::default() }),
        ..InferInputTensor::default()
    };
    let message = ModelInferRequest {
        id: "i".repeat(500),
        inputs: vec![input],
        raw_input_contents: vec![vec![1; 1000].into()],
        ..ModelInferRequest::default()
    };
    let besides = bytes_besides_contents(&[Bytes::from(message.encode_to_vec())]);
    assert_eq!(besides, 502 + 3, "the id and the name, each after its length");
}

#[test]
fn an_id_that_is_too_long_is_not_read_ahead() {
    let id = |length: usize| {
        let message = ModelInferRequest { id: "i".repeat(length), ..ModelInferRequest::default() };
        leading_id(&[Bytes::from(message.encode_to_vec())]).len()
    };
    assert_eq!((id(lengths::MAX_ID), id(lengths::MAX_ID + 1)), (lengths::MAX_ID, 0));
}
