//! An inference response in the form of HTTP: a JSON part, and after it the bytes of the binary outputs.
use bytes::Bytes;
use inference::Response;
use kserve::{
    json_text::{write_double, write_escaped, write_int, write_single, write_string, write_uint},
    long_write::{LongWrite, PIECE},
    output::{Placement, RequestedOutputs},
};
use smallvec::SmallVec;
use vocabulary::{DataType, Error, Name, Parameter, Tensor, bytes_elements};

use crate::chunks::Chunks;

/// The request and the model that a response belongs to.
#[derive(Debug, Clone, Copy)]
pub struct ResponseIdentity<'m> {
    /// The request's id. It is left out if empty.
    pub id: &'m Name,
    /// Model name.
    pub model: &'m Name,
    /// The version that ran.
    pub version: i64,
}

/// An encoded response.
#[derive(Debug)]
pub struct EncodedResponse {
    /// The JSON part.
    pub(super) json: Chunks,
    /// The bytes after the JSON part, shared with the tensors. No piece is empty.
    pub binary: SmallVec<[Bytes; 2]>,
}

/// The most elements that become text before others work.
const PIECE_ELEMENTS: usize = 4096;

/// The most bytes of the text of an element that is no string: a double with all its digits, and a comma.
const MOST_ELEMENT: usize = 26;

/// The most bytes of text that a byte of a string becomes: `\u0001`.
const MOST_ESCAPE: usize = 6;

/// Encodes a response whose outputs have the requested form.
///
/// # Errors
/// INVALID_ARG for FP16 and BF16 as JSON; UNSUPPORTED for a parameter of bytes; INTERNAL for an output whose bytes do
/// not match its shape.
pub fn encode(
    identity: ResponseIdentity<'_>,
    response: &Response,
    requested_outputs: &RequestedOutputs,
) -> Result<EncodedResponse, Error> {
    encode_in_pieces(identity, response, requested_outputs, None)
}

/// As [`encode`], in pieces if the response is long.
///
/// # Errors
/// As there, and what [`LongWrite::make_room`] refuses.
pub(super) fn encode_in_pieces(
    identity: ResponseIdentity<'_>,
    response: &Response,
    requested_outputs: &RequestedOutputs,
    mut long: Option<&mut LongWrite<'_>>,
) -> Result<EncodedResponse, Error> {
    let mut text = Vec::with_capacity(estimated_size(response));
    let mut binary = SmallVec::new();
    let json = &mut text;
    json.push(b'{');
    if !identity.id.is_empty() {
        json.extend_from_slice(b"\"id\":");
        write_string(json, identity.id.as_bytes());
        json.push(b',');
    }
    json.extend_from_slice(b"\"model_name\":");
    write_string(json, identity.model.as_bytes());
    json.extend_from_slice(b",\"model_version\":\"");
    write_int(json, identity.version);
    json.push(b'"');
    if !response.parameters.is_empty() {
        write_parameters(json, &response.parameters)?;
    }
    json.extend_from_slice(b",\"outputs\":[");
    for (index, output) in response.outputs.iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        let placement = requested_outputs.of(output.name()).placement;
        write_output(json, &mut binary, output, placement, long.as_deref_mut())?;
    }
    json.extend_from_slice(b"]}");
    Ok(EncodedResponse { json: complete(text, long), binary })
}

/// The text that ends with `end`, and is complete.
pub(super) fn complete(end: Vec<u8>, long: Option<&mut LongWrite<'_>>) -> Chunks {
    match long {
        None => Chunks::One(end.into()),
        Some(long) => long.keep_text(end).into_iter().collect(),
    }
}

/// An estimate of the length, in bytes: names and shapes, and up to twelve bytes for each element. It saves most
/// responses a second allocation.
pub(super) fn estimated_size(response: &Response) -> usize {
    let data: usize = response.outputs.iter().map(Tensor::byte_size).sum();
    256 + 128 * response.outputs.len() + (3 * data).min(1 << 20)
}

fn write_parameters(json: &mut Vec<u8>, parameters: &[(Name, Parameter)]) -> Result<(), Error> {
    json.extend_from_slice(b",\"parameters\":{");
    for (index, (name, value)) in parameters.iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        write_string(json, name.as_bytes());
        json.push(b':');
        write_parameter(json, value)?;
    }
    json.push(b'}');
    Ok(())
}

/// Appends the value of a parameter.
pub(super) fn write_parameter(json: &mut Vec<u8>, value: &Parameter) -> Result<(), Error> {
    match value {
        Parameter::String(text) => write_string(json, text.as_bytes()),
        Parameter::Int(value) => write_int(json, *value),
        Parameter::Bool(value) => write_bool(json, *value),
        Parameter::Double(value) => write_double(json, *value),
        Parameter::Bytes(_) => {
            return Err(Error::unsupported(
                "Response parameter of type 'TRITONSERVER_PARAMETER_BYTES' is not currently supported",
            ));
        }
    }
    Ok(())
}

fn write_bool(json: &mut Vec<u8>, value: bool) {
    json.extend_from_slice(if value { b"true" } else { b"false" });
}

fn write_output(
    json: &mut Vec<u8>,
    binary: &mut SmallVec<[Bytes; 2]>,
    output: &Tensor,
    placement: Placement,
    long: Option<&mut LongWrite<'_>>,
) -> Result<(), Error> {
    json.extend_from_slice(b"{\"name\":");
    write_string(json, output.name().as_bytes());
    json.extend_from_slice(b",\"datatype\":\"");
    json.extend_from_slice(output.datatype().protocol_name().as_bytes());
    json.extend_from_slice(b"\",\"shape\":[");
    for (index, dim) in output.shape().iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        write_int(json, *dim);
    }
    json.push(b']');
    match placement {
        Placement::Binary => {
            json.extend_from_slice(b",\"parameters\":{\"binary_data_size\":");
            let data = output.host()?;
            write_uint(json, data.len() as u64);
            json.extend_from_slice(b"}}");
            binary.extend(data.pieces().iter().cloned());
        }
        // The bytes are in the region already.
        Placement::Region => json.push(b'}'),
        Placement::Json => {
            json.extend_from_slice(b",\"data\":[");
            write_data(json, output, NotUtf8::Refused, long)?;
            json.extend_from_slice(b"]}");
        }
    }
    Ok(())
}

/// How the encoder treats a byte string that is not UTF-8. JSON cannot contain such bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotUtf8 {
    /// The encoder returns an error. The client can ask for binary data instead.
    Refused,
    /// The encoder replaces invalid bytes by U+FFFD. The generate endpoints have no binary data, and a model may cut
    /// its generated text within a character.
    Replaced,
}

/// Appends the elements of an output, separated by commas. Of a long text, `json` has the end only: [`complete`] joins it
/// with what `long` has.
pub(super) fn write_data(
    json: &mut Vec<u8>,
    output: &Tensor,
    not_utf8: NotUtf8,
    long: Option<&mut LongWrite<'_>>,
) -> Result<(), Error> {
    let data = output.host()?.contiguous();
    let mismatch = |what: &str| {
        let name = output.name();
        Error::internal(format!("{what}output tensor shape does not match size of output for '{name}'"))
    };
    // A shape without dimensions has one element.
    let count =
        output.shape().iter().try_fold(1, |count: usize, &dim| count.checked_mul(usize::try_from(dim).ok()?));
    if let Some(size) = output.datatype().byte_size()
        && count.and_then(|count| count.checked_mul(size)) != Some(data.len())
        && !matches!(output.datatype(), DataType::Fp16 | DataType::Bf16)
    {
        return Err(mismatch("Failed to write 'data' field: "));
    }
    match output.datatype() {
        DataType::Bool => write_elements(json, &data, long, |json, [byte]| write_bool(json, byte != 0)),
        DataType::Uint8 => write_elements(json, &data, long, |json, [byte]| write_uint(json, byte.into())),
        DataType::Uint16 => {
            write_elements(json, &data, long, |json, le| write_uint(json, u16::from_le_bytes(le).into()))
        }
        DataType::Uint32 => {
            write_elements(json, &data, long, |json, le| write_uint(json, u32::from_le_bytes(le).into()))
        }
        DataType::Uint64 => {
            write_elements(json, &data, long, |json, le| write_uint(json, u64::from_le_bytes(le)))
        }
        DataType::Int8 => {
            write_elements(json, &data, long, |json, le| write_int(json, i8::from_le_bytes(le).into()))
        }
        DataType::Int16 => {
            write_elements(json, &data, long, |json, le| write_int(json, i16::from_le_bytes(le).into()))
        }
        DataType::Int32 => {
            write_elements(json, &data, long, |json, le| write_int(json, i32::from_le_bytes(le).into()))
        }
        DataType::Int64 => {
            write_elements(json, &data, long, |json, le| write_int(json, i64::from_le_bytes(le)))
        }
        DataType::Fp32 => {
            write_elements(json, &data, long, |json, le| write_single(json, f32::from_le_bytes(le)))
        }
        DataType::Fp64 => {
            write_elements(json, &data, long, |json, le| write_double(json, f64::from_le_bytes(le)))
        }
        DataType::Fp16 | DataType::Bf16 => Err(Error::invalid(format!(
            "sending {} data via JSON is not supported. Please use the binary data format for output",
            output.datatype().protocol_name()
        ))),
        DataType::Bytes => {
            let elements = bytes_elements(&data).take(count.unwrap_or(0));
            let written = write_texts(json, elements, (output.name(), not_utf8), long)?;
            if written == count.unwrap_or(0) { Ok(()) } else { Err(mismatch("")) }
        }
    }
}

/// Appends strings of an output up to the first that is incomplete. Returns their number.
fn write_texts<'e, E>(
    json: &mut Vec<u8>,
    elements: impl Iterator<Item = Result<&'e [u8], E>>,
    (output, not_utf8): (&str, NotUtf8),
    mut long: Option<&mut LongWrite<'_>>,
) -> Result<usize, Error> {
    let mut count = 0;
    for element in elements.map_while(Result::ok) {
        if count > 0 {
            json.push(b',');
        }
        match (std::str::from_utf8(element), not_utf8) {
            (Ok(_), _) => write_text(json, element, long.as_deref_mut())?,
            (Err(_), NotUtf8::Replaced) => {
                write_text(json, String::from_utf8_lossy(element).as_bytes(), long.as_deref_mut())?;
            }
            (Err(_), NotUtf8::Refused) => {
                return Err(Error::invalid(format!(
                    "sending BYTES data that is not UTF-8 via JSON is not supported. Please use the binary data format \
                     for output '{output}'"
                )));
            }
        }
        count += 1;
    }
    Ok(count)
}

fn write_elements<const N: usize>(
    json: &mut Vec<u8>,
    data: &[u8],
    mut long: Option<&mut LongWrite<'_>>,
    write: impl Fn(&mut Vec<u8>, [u8; N]),
) -> Result<(), Error> {
    let (elements, _) = data.as_chunks::<N>();
    for (piece, elements) in elements.chunks(PIECE_ELEMENTS).enumerate() {
        if let Some(long) = &mut long {
            long.make_room_in(json, MOST_ELEMENT * elements.len())?;
        }
        for (index, element) in elements.iter().enumerate() {
            if piece > 0 || index > 0 {
                json.push(b',');
            }
            write(json, *element);
        }
    }
    Ok(())
}

fn write_text(json: &mut Vec<u8>, text: &[u8], long: Option<&mut LongWrite<'_>>) -> Result<(), Error> {
    let Some(long) = long else {
        write_string(json, text);
        return Ok(());
    };
    // The quotation marks, and the comma that stands before.
    long.make_room_in(json, 3)?;
    json.push(b'"');
    for piece in text.chunks(PIECE) {
        long.make_room_in(json, MOST_ESCAPE * piece.len())?;
        write_escaped(json, piece);
    }
    json.push(b'"');
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, num::NonZeroU64};

    use kserve::output::RequestedOutput;
    use vocabulary::ByteBudget;

    use super::*;

    fn output(name: &str, datatype: DataType, shape: &[i64], bytes: Vec<u8>) -> Tensor {
        Tensor::new(name.into(), datatype, shape.into(), bytes)
    }

    fn text(id: &str, response: &Response, requested_outputs: &RequestedOutputs) -> Result<String, Error> {
        let (id, model) = (Name::new(id), Name::new("m"));
        let encoded =
            encode(ResponseIdentity { id: &id, model: &model, version: 1 }, response, requested_outputs)?;
        let mut bytes = whole(&encoded);
        encoded.binary.iter().for_each(|piece| bytes.extend_from_slice(piece));
        Ok(bytes.escape_ascii().to_string().replace("\\\"", "\""))
    }

    fn whole(encoded: &EncodedResponse) -> Vec<u8> {
        encoded.json.ranges().flat_map(|range| range.iter().copied()).collect()
    }

    fn data(datatype: DataType, shape: &[i64], bytes: &[u8]) -> Result<String, Error> {
        let text = text(
            "",
            &Response::of(vec![output("OUT", datatype, shape, bytes.to_vec())]),
            &RequestedOutputs::default(),
        )?;
        Ok(text.split_once("\"data\":").unwrap().1.trim_end_matches("}]}").to_owned())
    }

    #[test]
    fn json_and_binary_outputs_stand_in_the_order_of_the_response() {
        let response = Response::of(vec![
            output("OUTPUT0", DataType::Int32, &[1, 2], vec![1, 0, 0, 0, 255, 255, 255, 255]),
            output("OUTPUT1", DataType::Uint8, &[1, 2], vec![b'a', b'b']),
            output("OUTPUT2", DataType::Uint8, &[0], vec![]),
        ]);
        let mut requested_outputs = RequestedOutputs::all(Placement::Binary);
        requested_outputs.add("OUTPUT0".into(), RequestedOutput::default());
        let expected = concat!(
            r#"{"id":"42","model_name":"m","model_version":"1","outputs":["#,
            r#"{"name":"OUTPUT0","datatype":"INT32","shape":[1,2],"data":[1,-1]},"#,
            r#"{"name":"OUTPUT1","datatype":"UINT8","shape":[1,2],"parameters":{"binary_data_size":2}},"#,
            r#"{"name":"OUTPUT2","datatype":"UINT8","shape":[0],"parameters":{"binary_data_size":0}}]}ab"#,
        );
        assert_eq!(text("42", &response, &requested_outputs).unwrap(), expected);
    }

    #[test]
    fn each_datatype_has_its_text() {
        assert_eq!(data(DataType::Bool, &[2], &[2, 0]).unwrap(), "[true,false]");
        assert_eq!(data(DataType::Uint64, &[1], &[255; 8]).unwrap(), "[18446744073709551615]");
        assert_eq!(data(DataType::Int8, &[1], &[128]).unwrap(), "[-128]");
        let singles: Vec<u8> =
            [1.0, 0.1, f32::NAN, f32::INFINITY].into_iter().flat_map(f32::to_le_bytes).collect();
        assert_eq!(data(DataType::Fp32, &[2, 2], &singles).unwrap(), "[1.0,0.1,NaN,Infinity]");
        assert_eq!(
            data(DataType::Bytes, &[2], b"\x01\0\0\0a\x02\0\0\0\"\x7f").unwrap(),
            r#"["a","\\"\x7f"]"#
        );
        assert_eq!(data(DataType::Fp64, &[], &1e-7_f64.to_le_bytes()).unwrap(), "[1e-7]");
    }

    #[test]
    fn what_is_written_in_pieces_is_the_same_and_reserved() {
        let bytes: Vec<u8> =
            (0..200_000_u32).flat_map(|index| index.wrapping_mul(77_777).to_le_bytes()).collect();
        let texts = [0, 1, 70_000, 3].into_iter().cycle().take(400).flat_map(|len: u32| {
            let text = (0..len).map(|index| (index % 120) as u8);
            len.to_le_bytes().into_iter().chain(text).collect::<Vec<u8>>()
        });
        let texts: Vec<u8> = texts.collect();
        let of = |datatype: DataType| {
            let size = datatype.byte_size().unwrap();
            (datatype, bytes.len() / size, bytes.clone())
        };
        use DataType::*;
        let mut cases =
            [Bool, Uint8, Uint16, Uint32, Uint64, Int8, Int16, Int32, Int64, Fp32, Fp64].map(of).to_vec();
        cases.push((Bytes, 400, texts));
        for (datatype, count, bytes) in cases {
            let response =
                Response::of(vec![output("OUT", datatype, &[i64::try_from(count).unwrap()], bytes)]);
            let (id, model) = (Name::new("i"), Name::new("m"));
            let identity = ResponseIdentity { id: &id, model: &model, version: 1 };
            let requested = RequestedOutputs::default();
            let expected = whole(&encode(identity, &response, &requested).unwrap());
            let budget = ByteBudget::new(usize::MAX);
            let pieces = Cell::new(0);
            let goes_on = || {
                pieces.set(pieces.get() + 1);
                true
            };
            let mut long = LongWrite::new(budget.reservation(), &goes_on);
            let encoded = encode_in_pieces(identity, &response, &requested, Some(&mut long)).unwrap();
            assert!(whole(&encoded) == expected, "{datatype:?}");
            assert_eq!(long.into_reservation().bytes(), expected.len());
            assert!(pieces.get() >= expected.len() / (8 * PIECE), "{datatype:?}: {} pieces", pieces.get());

            let goes_on = || true;
            let little = ByteBudget::new(expected.len() / 2);
            let mut long = LongWrite::new(little.reservation(), &goes_on);
            let refused = encode_in_pieces(identity, &response, &requested, Some(&mut long)).unwrap_err();
            assert!(refused.message.contains("--max-inflight-bytes"), "{datatype:?}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_need_binary() {
        let expected = "sending BYTES data that is not UTF-8 via JSON is not supported. Please use the binary data format \
                        for output 'OUT'";
        for element in [&b"\x01\0\0\0\xff"[..], b"\x02\0\0\0\xc3\x28", b"\x03\0\0\0\xed\xa0\x80"] {
            assert_eq!(data(DataType::Bytes, &[1], element), Err(Error::invalid(expected)));
        }
        let output = output("OUT", DataType::Bytes, &[1], b"\x02\0\0\0a\xff".to_vec());
        let mut json = Vec::new();
        write_data(&mut json, &output, NotUtf8::Replaced, None).unwrap();
        assert_eq!(String::from_utf8(json).unwrap(), "\"a\u{fffd}\"");
    }

    #[test]
    fn halves_need_binary() {
        for datatype in [DataType::Fp16, DataType::Bf16] {
            let expected = format!(
                "sending {} data via JSON is not supported. Please use the binary data format for output",
                datatype.protocol_name()
            );
            assert_eq!(data(datatype, &[1], &[0, 0]), Err(Error::invalid(expected)));
        }
    }

    #[test]
    fn bytes_that_do_not_fit_the_shape_are_an_error() {
        let text =
            "Failed to write 'data' field: output tensor shape does not match size of output for 'OUT'";
        assert_eq!(data(DataType::Int32, &[2], &[0; 4]), Err(Error::internal(text)));
        assert_eq!(data(DataType::Int32, &[i64::MAX, 8], &[0; 4]), Err(Error::internal(text)));
        let text = "output tensor shape does not match size of output for 'OUT'";
        assert_eq!(data(DataType::Bytes, &[2], b"\x01\0\0\0a"), Err(Error::internal(text)));
        assert_eq!(data(DataType::Bytes, &[1], b"\x09\0\0\0a"), Err(Error::internal(text)));
    }

    #[test]
    fn parameters_stand_before_the_outputs() {
        let mut response = Response::of(vec![]);
        response.parameters = vec![
            ("sequence_id".into(), Parameter::Int(0)),
            ("b".into(), Parameter::Bool(true)),
            ("d".into(), Parameter::Double(1.5)),
            ("s".into(), Parameter::String("x\"".into())),
        ];
        let expected = concat!(
            r#"{"model_name":"m","model_version":"1","parameters":{"sequence_id":0,"b":true,"d":1.5,"s":"x\\""},"#,
            r#""outputs":[]}"#,
        );
        assert_eq!(text("", &response, &RequestedOutputs::default()).unwrap(), expected);
        response.parameters = vec![("b".into(), Parameter::Bytes(Bytes::new()))];
        let error = text("", &response, &RequestedOutputs::default()).unwrap_err();
        assert_eq!(
            error.with_code(),
            "Unsupported: Response parameter of type 'TRITONSERVER_PARAMETER_BYTES' is not currently supported"
        );
    }

    #[test]
    fn classes_replace_the_elements() {
        let bytes: Vec<u8> = [5_i32, 7].into_iter().flat_map(i32::to_le_bytes).collect();
        let mut response = Response::of(vec![output("OUT", DataType::Int32, &[1, 2], bytes)]);
        let mut requested_outputs = RequestedOutputs::default();
        requested_outputs
            .add("OUT".into(), RequestedOutput { placement: Placement::Json, classes: NonZeroU64::new(1) });
        let labels = ["cat".to_owned(), "dog".to_owned()];
        requested_outputs.classify(&mut response.outputs, true, |_| &labels, None).unwrap();
        let text = text("", &response, &requested_outputs).unwrap();
        assert!(text.ends_with(r#""datatype":"BYTES","shape":[1,1],"data":["7:1:dog"]}]}"#), "{text}");
    }
}
