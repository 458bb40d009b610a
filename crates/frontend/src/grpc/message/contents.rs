//! The bytes of an input with typed contents, and the shared-memory region that an input names.
use std::borrow::Cow;

use kserve::shared_memory::RegionRange;
use vocabulary::{ByteReservation, DataType, Error, TensorData};

use super::{
    decode::{GrpcParameter, InferParameters, InvalidMessage},
    wire::{Malformed, WireReader, WireType},
};

/// How error texts name an unknown datatype.
pub(crate) const INVALID: &str = "<invalid>";

/// The datatypes that each kind of contents serves, in the order of the schema, in which the reference looks for them.
/// Refusals name the first datatype. The number of a kind's field is its place in this list, counted from one.
const KINDS: [&[DataType]; 8] = [
    &[DataType::Bool],
    &[DataType::Int32, DataType::Int16, DataType::Int8],
    &[DataType::Int64],
    &[DataType::Uint32, DataType::Uint16, DataType::Uint8],
    &[DataType::Uint64],
    &[DataType::Fp32],
    &[DataType::Fp64],
    &[DataType::Bytes],
];

/// The most bytes of the typed contents of a request, as they are written, and as tensors. Contents of numbers may be
/// eight times longer as tensors than they are written. Raw contents have no such limit.
const MAX_CONTENTS: usize = 64 << 20;

/// Room for the typed contents of one request. No byte is decoded before it is reserved.
pub(crate) struct ContentsRoom<'r> {
    reservation: &'r mut ByteReservation,
    /// Bytes of contents so far, as they are written.
    written: usize,
    /// Bytes of contents so far, as tensors.
    decoded: usize,
}

impl<'r> ContentsRoom<'r> {
    /// Room within `reservation`, which holds the bytes of the message.
    pub(crate) fn new(reservation: &'r mut ByteReservation) -> Self {
        Self { reservation, written: 0, decoded: 0 }
    }

    /// Releases the bytes of the contents as they are written. No tensor uses them.
    pub(crate) fn release_written(self) {
        if self.written > 0 {
            self.reservation.shrink_to(self.reservation.bytes().saturating_sub(self.written));
        }
    }

    fn written(&mut self, bytes: usize, input: &str, model: &str) -> Result<(), Error> {
        self.written += bytes;
        if self.written > MAX_CONTENTS { Err(too_long(input, model)) } else { Ok(()) }
    }

    fn decoded(&mut self, bytes: usize, input: &str, model: &str) -> Result<(), Error> {
        self.decoded = self.decoded.saturating_add(bytes);
        if self.decoded > MAX_CONTENTS {
            return Err(too_long(input, model));
        }
        Ok(self.reservation.grow(bytes)?)
    }
}

#[cold]
fn too_long(input: &str, model: &str) -> Error {
    Error::invalid(format!(
        "the typed contents of a request may have {MAX_CONTENTS} bytes, and input '{input}' for model '{model}' exceeds \
         that. Use raw_input_contents for large tensors"
    ))
}

/// Decodes the typed contents of an input, which lie in `parts`, to the bytes of its tensor. An input without contents is
/// an empty tensor. Integers wider than the datatype lose their upper bytes.
///
/// # Errors
/// INVALID_ARG for contents of another kind than the datatype, or of several kinds. As Triton: infer_handler.cc,
/// InferGRPCToInput. Also if the contents are too long, or if there is no room for them.
pub(crate) fn bytes(
    parts: &[WireReader<'_>],
    datatype: Option<DataType>,
    input: &str,
    model: &str,
    room: &mut ContentsRoom<'_>,
) -> Result<TensorData, InvalidMessage> {
    room.written(parts.iter().map(WireReader::left).sum(), input, model)?;
    let counts = count(parts)?;
    let mut supplied = false;
    for (served, &count) in KINDS.iter().zip(&counts) {
        if count == 0 {
            continue;
        }
        let kind = datatype.filter(|datatype| served.contains(datatype)).unwrap_or(served[0]);
        let refused = |why: &str| {
            Error::invalid(format!(
                "unexpected explicit tensor data for input tensor '{input}' for model '{model}'{why}"
            ))
        };
        if supplied {
            return Err(refused(", binary data was already supplied.").into());
        }
        if datatype != Some(kind) {
            let (given, expected) = (kind.protocol_name(), datatype.map_or(INVALID, DataType::protocol_name));
            return Err(refused(&format!(" of type '{given}', expected datatype '{expected}'")).into());
        }
        supplied = true;
    }
    let kind = KINDS.iter().position(|served| datatype.is_some_and(|datatype| served.contains(&datatype)));
    // The schema has no contents for some datatypes.
    let (Some(datatype), Some(kind)) = (datatype, kind) else { return Ok(TensorData::default()) };
    let length = counts[kind].saturating_mul(datatype.byte_size().unwrap_or(1));
    room.decoded(length, input, model)?;
    let mut bytes = Vec::with_capacity(length);
    decode(parts, kind, datatype, &mut bytes)?;
    debug_assert!(bytes.len() == length, "the elements were counted");
    Ok(bytes.into())
}

/// The number of elements of each kind. Of byte strings, the number of bytes in the tensor.
fn count(parts: &[WireReader<'_>]) -> Result<[usize; KINDS.len()], Malformed> {
    let mut counts = [0; KINDS.len()];
    for part in parts {
        part.clone().fields(|reader, number, wire| {
            let count = match number {
                1..=5 => reader.count_varints(wire)?,
                6 => reader.count_fixed(wire, WireType::Fixed32, 4)?,
                7 => reader.count_fixed(wire, WireType::Fixed64, 8)?,
                8 => size_of::<u32>() + reader.skip_bytes(wire)?,
                _ => return reader.skip(number, wire),
            };
            counts[number as usize - 1] += count;
            Ok(())
        })?;
    }
    Ok(counts)
}

/// Appends the elements of the kind at that place in [`KINDS`], little endian. Other kinds have no elements.
fn decode(
    parts: &[WireReader<'_>],
    kind: usize,
    datatype: DataType,
    bytes: &mut Vec<u8>,
) -> Result<(), Malformed> {
    for part in parts {
        part.clone().fields(|reader, number, wire| {
            if number as usize != kind + 1 {
                return reader.skip(number, wire);
            }
            match datatype {
                DataType::Bool => reader.repeated(wire, WireType::Varint, |reader| {
                    bytes.push(u8::from(reader.varint()? != 0));
                    Ok(())
                }),
                DataType::Int8 | DataType::Uint8 => low_bytes::<1>(reader, wire, bytes),
                DataType::Int16 | DataType::Uint16 => low_bytes::<2>(reader, wire, bytes),
                DataType::Int32 | DataType::Uint32 => low_bytes::<4>(reader, wire, bytes),
                DataType::Int64 | DataType::Uint64 => low_bytes::<8>(reader, wire, bytes),
                DataType::Fp32 => reader.copy_fixed(wire, WireType::Fixed32, 4, bytes),
                DataType::Fp64 => reader.copy_fixed(wire, WireType::Fixed64, 8, bytes),
                DataType::Bytes => reader.copy_bytes(wire, bytes),
                DataType::Fp16 | DataType::Bf16 => reader.skip(number, wire),
            }
        })?;
    }
    Ok(())
}

/// Appends the first `N` bytes of each number of a repeated field: a narrower field keeps the low part of any value that
/// the client writes.
fn low_bytes<const N: usize>(
    reader: &mut WireReader<'_>,
    wire: WireType,
    bytes: &mut Vec<u8>,
) -> Result<(), Malformed> {
    reader.repeated(wire, WireType::Varint, |reader| {
        bytes.extend_from_slice(&reader.varint()?.to_le_bytes()[..N]);
        Ok(())
    })
}

/// The part of a shared memory region that a tensor names. `None` if the tensor names none.
///
/// # Errors
/// INVALID_ARG for parameters that contradict each other or the schema.
pub(crate) fn region<'p>(
    parameters: &'p InferParameters<'_>,
    tensor: &str,
) -> Result<Option<RegionRange<'p>>, Error> {
    let find = |key: &str| parameters.iter().find(|(name, _)| name == key).map(|(_, choice)| choice);
    let wrong_type = |key: &str, expected: &str| {
        Error::invalid(format!(
            "invalid value type for '{key}' parameter for tensor '{tensor}', expected {expected}."
        ))
    };
    let region = match find("shared_memory_region") {
        None => None,
        Some(Some(GrpcParameter::String(region))) => Some(&**region),
        Some(_) => return Err(wrong_type("shared_memory_region", "string_param")),
    };
    let number = |key: &str| match find(key) {
        None => Ok(None),
        Some(_) if region.is_none() => Err(Error::invalid(format!(
            "'{key}' can not be specified without 'shared_memory_region' parameter for tensor '{tensor}'"
        ))),
        // A negative number counts as a huge one, as in the reference. The rules for ranges refuse that.
        Some(Some(GrpcParameter::Int64(number))) => Ok(Some(number.cast_unsigned())),
        Some(_) => Err(wrong_type(key, "int64_param")),
    };
    let offset = number("shared_memory_offset")?.unwrap_or(0);
    let byte_size = number("shared_memory_byte_size")?;
    match (region, byte_size) {
        (None, _) => Ok(None),
        (Some(region), Some(byte_size)) => {
            Ok(Some(RegionRange { region: Cow::Borrowed(region), offset, byte_size }))
        }
        (Some(_), None) => Err(Error::invalid(format!(
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor '{tensor}'"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use proto::InferTensorContents;
    use vocabulary::ByteBudget;

    use super::*;

    fn in_room(
        contents: &InferTensorContents,
        datatype: Option<DataType>,
        reservation: &mut ByteReservation,
    ) -> Result<Vec<u8>, String> {
        let frames = [contents.encode_to_vec().into()];
        let mut room = ContentsRoom::new(reservation);
        let decoded = bytes(&[WireReader::new(&frames)], datatype, "IN", "m", &mut room);
        decoded.map(|data| data.contiguous().to_vec()).map_err(|invalid| match invalid {
            InvalidMessage::Malformed => panic!("the test encodes well"),
            InvalidMessage::Refused(error) => error.message.into_owned(),
        })
    }

    fn of(contents: &InferTensorContents, datatype: DataType) -> Result<Vec<u8>, String> {
        in_room(contents, Some(datatype), &mut ByteBudget::new(1 << 20).reservation())
    }

    fn ints(values: &[i32]) -> InferTensorContents {
        InferTensorContents { int_contents: values.to_vec(), ..InferTensorContents::default() }
    }

    #[test]
    fn integers_are_truncated_to_their_datatype() {
        assert_eq!(of(&ints(&[300, -1]), DataType::Int8), Ok(vec![44, 0xff]));
        assert_eq!(of(&ints(&[300]), DataType::Int16), Ok(vec![44, 1]));
        assert_eq!(of(&ints(&[300]), DataType::Int32), Ok(vec![44, 1, 0, 0]));
        let uints =
            InferTensorContents { uint_contents: vec![0x0102_0304], ..InferTensorContents::default() };
        assert_eq!(of(&uints, DataType::Uint16), Ok(vec![4, 3]));
    }

    #[test]
    fn contents_of_another_kind_are_refused_by_name() {
        let floats = InferTensorContents { fp32_contents: vec![0.0], ..InferTensorContents::default() };
        let expected = "unexpected explicit tensor data for input tensor 'IN' for model 'm' of type 'FP32', \
                        expected datatype 'FP16'";
        assert_eq!(of(&floats, DataType::Fp16), Err(expected.to_owned()));
        let refused = in_room(&ints(&[1]), None, &mut ByteBudget::new(100).reservation()).unwrap_err();
        assert!(refused.ends_with("of type 'INT32', expected datatype '<invalid>'"), "{refused}");
    }

    #[test]
    fn contents_of_two_kinds_are_refused() {
        let both = InferTensorContents { fp64_contents: vec![0.0], ..ints(&[1]) };
        let refused = of(&both, DataType::Int8).unwrap_err();
        assert!(refused.ends_with("', binary data was already supplied."), "{refused}");
    }

    #[test]
    fn no_contents_are_an_empty_tensor() {
        for datatype in DataType::ALL {
            assert_eq!(of(&InferTensorContents::default(), datatype), Ok(Vec::new()));
        }
    }

    #[test]
    fn a_tensor_is_reserved_before_it_is_decoded() {
        let budget = ByteBudget::new(8000);
        let longs = |count| InferTensorContents { int64_contents: vec![1; count], ..Default::default() };
        let mut reservation = budget.reserve(1000).unwrap();
        let refused = in_room(&longs(1000), Some(DataType::Int64), &mut reservation).unwrap_err();
        assert!(refused.starts_with("the server has no room for 8000 more bytes of requests"), "{refused}");
        assert_eq!((reservation.bytes(), budget.used()), (1000, 1000));
        assert_eq!(
            in_room(&longs(875), Some(DataType::Int64), &mut reservation).map(|bytes| bytes.len()),
            Ok(7000)
        );
        assert_eq!(budget.used(), 8000);
    }

    #[test]
    fn contents_as_they_are_written_are_released_after_all_inputs() {
        let budget = ByteBudget::new(1 << 20);
        let mut reservation = budget.reserve(200).unwrap();
        let frames = [ints(&[1; 90]).encode_to_vec().into()];
        let mut room = ContentsRoom::new(&mut reservation);
        for _ in 0..2 {
            bytes(&[WireReader::new(&frames)], Some(DataType::Int16), "IN", "m", &mut room).unwrap();
        }
        room.release_written();
        assert_eq!(budget.used(), 200 - 2 * 92 + 2 * 180);
    }

    #[test]
    fn typed_contents_have_a_limit_as_they_are_written_and_as_tensors() {
        let budget = ByteBudget::new(usize::MAX);
        let doubles =
            InferTensorContents { fp64_contents: vec![1.0; MAX_CONTENTS / 8 - 1], ..Default::default() };
        let mut reservation = budget.reservation();
        let taken = in_room(&doubles, Some(DataType::Fp64), &mut reservation).map(|bytes| bytes.len());
        assert_eq!(taken, Ok(MAX_CONTENTS - 8));
        let expected = "the typed contents of a request may have 67108864 bytes, and input 'IN' for model 'm' exceeds \
                        that. Use raw_input_contents for large tensors";
        let longs =
            InferTensorContents { int64_contents: vec![1; MAX_CONTENTS / 8 + 1], ..Default::default() };
        let mut reservation = budget.reservation();
        let refused = in_room(&longs, Some(DataType::Int64), &mut reservation);
        assert_eq!(refused, Err(expected.to_owned()));
        let bytes = InferTensorContents {
            bytes_contents: vec![vec![0; MAX_CONTENTS].into()],
            ..InferTensorContents::default()
        };
        assert_eq!(of(&bytes, DataType::Fp16), Err(expected.to_owned()));
        assert_eq!(reservation.bytes(), 0);
    }

    fn region_of(
        parameters: &[(&'static str, GrpcParameter<'static>)],
    ) -> Result<Option<(String, u64, u64)>, String> {
        let parameters =
            parameters.iter().map(|(key, choice)| ((*key).into(), Some(choice.clone()))).collect::<Vec<_>>();
        let region = region(&parameters, "X");
        let region = region.map_err(|error| error.message.into_owned())?;
        Ok(region.map(|range| (range.region.into_owned(), range.offset, range.byte_size)))
    }

    #[test]
    fn a_negative_number_is_a_huge_one() {
        let named = ("shared_memory_region", GrpcParameter::String("r".into()));
        let size = ("shared_memory_byte_size", GrpcParameter::Int64(-2));
        let offset = ("shared_memory_offset", GrpcParameter::Int64(-1));
        let expected = ("r".to_owned(), u64::MAX, u64::MAX - 1);
        assert_eq!(region_of(&[named, size, offset]), Ok(Some(expected)));
    }

    #[test]
    fn a_region_comes_with_its_size() {
        let named = ("shared_memory_region", GrpcParameter::String("r".into()));
        let size = ("shared_memory_byte_size", GrpcParameter::Int64(4));
        let offset = ("shared_memory_offset", GrpcParameter::Int64(8));
        assert_eq!(region_of(&[]), Ok(None));
        assert_eq!(region_of(&[named.clone(), size.clone()]), Ok(Some(("r".to_owned(), 0, 4))));
        let all = [named.clone(), size.clone(), offset.clone()];
        assert_eq!(region_of(&all), Ok(Some(("r".to_owned(), 8, 4))));
        let expected = [
            (
                vec![named.clone()],
                "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor 'X'",
            ),
            (
                vec![offset],
                "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter for tensor 'X'",
            ),
            (
                vec![size],
                "'shared_memory_byte_size' can not be specified without 'shared_memory_region' parameter for tensor 'X'",
            ),
            (
                vec![("shared_memory_region", GrpcParameter::Int64(1))],
                "invalid value type for 'shared_memory_region' parameter for tensor 'X', expected string_param.",
            ),
            (
                vec![named, ("shared_memory_byte_size", GrpcParameter::Uint64(4))],
                "invalid value type for 'shared_memory_byte_size' parameter for tensor 'X', expected int64_param.",
            ),
        ];
        for (parameters, text) in expected {
            assert_eq!(region_of(&parameters), Err(text.to_owned()));
        }
    }
}
