//! The bytes of an input with typed contents, and the shared-memory region that an input names.
use std::borrow::Cow;

use inference::{DataType, Error, TensorData};

use super::decode::{Choice, Contents, InferParameters};
use crate::kserve::shared_memory::RegionRange;

/// How error texts name an unknown datatype.
pub(crate) const INVALID: &str = "<invalid>";

/// A kind of contents: a check whether the message has such contents, and the datatypes that the kind serves. Refusals
/// name the first datatype.
type ContentsKind = (fn(&Contents) -> bool, &'static [DataType]);

/// The kinds in the order in which the reference looks for them.
const KINDS: [ContentsKind; 8] = [
    (|contents| !contents.bools.is_empty(), &[DataType::Bool]),
    (|contents| !contents.ints.is_empty(), &[DataType::Int32, DataType::Int16, DataType::Int8]),
    (|contents| !contents.int64s.is_empty(), &[DataType::Int64]),
    (|contents| !contents.uints.is_empty(), &[DataType::Uint32, DataType::Uint16, DataType::Uint8]),
    (|contents| !contents.uint64s.is_empty(), &[DataType::Uint64]),
    (|contents| !contents.fp32s.is_empty(), &[DataType::Fp32]),
    (|contents| !contents.fp64s.is_empty(), &[DataType::Fp64]),
    (|contents| !contents.byte_strings.is_empty(), &[DataType::Bytes]),
];

/// The tensor's bytes. An input without contents is an empty tensor. Integers wider than the datatype lose their upper
/// bytes.
///
/// # Errors
/// INVALID_ARG for contents of another kind than the datatype, or of several kinds. As Triton: infer_handler.cc,
/// InferGRPCToInput.
pub(crate) fn bytes(
    contents: Contents,
    datatype: Option<DataType>,
    input: &str,
    model: &str,
) -> Result<TensorData, Error> {
    let mut supplied = false;
    for (is_there, served) in KINDS {
        if !is_there(&contents) {
            continue;
        }
        let kind = datatype.filter(|datatype| served.contains(datatype)).unwrap_or(served[0]);
        let refused = |why: &str| {
            Error::invalid(format!(
                "unexpected explicit tensor data for input tensor '{input}' for model '{model}' of type '{}', {why}",
                kind.protocol_name()
            ))
        };
        if supplied {
            return Err(refused("binary data was already supplied."));
        }
        if datatype != Some(kind) {
            let expected = datatype.map_or(INVALID, DataType::protocol_name);
            return Err(refused(&format!("expected datatype '{expected}'")));
        }
        supplied = true;
    }
    Ok(datatype.map(|datatype| serialize(contents, datatype)).unwrap_or_default().into())
}

/// The contents of the kind that serves `datatype`, little endian.
fn serialize(contents: Contents, datatype: DataType) -> Vec<u8> {
    match datatype {
        DataType::Bool => contents.bools,
        DataType::Int8 => low_bytes(1, contents.ints.into_iter().map(i32::to_le_bytes)),
        DataType::Int16 => low_bytes(2, contents.ints.into_iter().map(i32::to_le_bytes)),
        DataType::Int32 => low_bytes(4, contents.ints.into_iter().map(i32::to_le_bytes)),
        DataType::Int64 => low_bytes(8, contents.int64s.into_iter().map(i64::to_le_bytes)),
        DataType::Uint8 => low_bytes(1, contents.uints.into_iter().map(u32::to_le_bytes)),
        DataType::Uint16 => low_bytes(2, contents.uints.into_iter().map(u32::to_le_bytes)),
        DataType::Uint32 => low_bytes(4, contents.uints.into_iter().map(u32::to_le_bytes)),
        DataType::Uint64 => low_bytes(8, contents.uint64s.into_iter().map(u64::to_le_bytes)),
        DataType::Fp32 => contents.fp32s,
        DataType::Fp64 => contents.fp64s,
        DataType::Bytes => contents.byte_strings,
        // The schema has no contents for these datatypes.
        DataType::Fp16 | DataType::Bf16 => Vec::new(),
    }
}

/// The first `kept` bytes of each value.
fn low_bytes<const N: usize>(kept: usize, values: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.size_hint().0 * kept);
    values.for_each(|value| bytes.extend_from_slice(&value[..kept]));
    bytes
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
        Some(Some(Choice::String(region))) => Some(&**region),
        Some(_) => return Err(wrong_type("shared_memory_region", "string_param")),
    };
    let number = |key: &str| match find(key) {
        None => Ok(None),
        Some(_) if region.is_none() => Err(Error::invalid(format!(
            "'{key}' can not be specified without 'shared_memory_region' parameter for tensor '{tensor}'"
        ))),
        // A negative number counts as a huge one, as in the reference. The rules for ranges refuse that.
        Some(Some(Choice::Int64(number))) => Ok(Some(number.cast_unsigned())),
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
    use super::*;

    fn of(contents: Contents, datatype: DataType) -> Result<Vec<u8>, String> {
        let bytes = bytes(contents, Some(datatype), "IN", "m");
        bytes.map(|data| data.contiguous().to_vec()).map_err(|error| error.message.into_owned())
    }

    fn ints(values: &[i32]) -> Contents {
        Contents { ints: values.to_vec(), ..Contents::default() }
    }

    #[test]
    fn integers_are_truncated_to_their_datatype() {
        assert_eq!(of(ints(&[300, -1]), DataType::Int8), Ok(vec![44, 0xff]));
        assert_eq!(of(ints(&[300]), DataType::Int16), Ok(vec![44, 1]));
        assert_eq!(of(ints(&[300]), DataType::Int32), Ok(vec![44, 1, 0, 0]));
        let uints = Contents { uints: vec![0x0102_0304], ..Contents::default() };
        assert_eq!(of(uints, DataType::Uint16), Ok(vec![4, 3]));
    }

    #[test]
    fn contents_of_another_kind_are_refused_by_name() {
        let floats = Contents { fp32s: vec![0; 4], ..Contents::default() };
        let expected = "unexpected explicit tensor data for input tensor 'IN' for model 'm' of type 'FP32', \
                        expected datatype 'FP16'";
        assert_eq!(of(floats, DataType::Fp16), Err(expected.to_owned()));
        let refused = bytes(ints(&[1]), None, "IN", "m").unwrap_err();
        assert!(refused.message.ends_with("of type 'INT32', expected datatype '<invalid>'"), "{refused}");
    }

    #[test]
    fn contents_of_two_kinds_are_refused() {
        let both = Contents { fp64s: vec![0; 8], ..ints(&[1]) };
        let refused = of(both, DataType::Int8).unwrap_err();
        assert!(refused.ends_with("of type 'FP64', binary data was already supplied."), "{refused}");
    }

    #[test]
    fn no_contents_are_an_empty_tensor() {
        for datatype in DataType::ALL {
            assert_eq!(of(Contents::default(), datatype), Ok(Vec::new()));
        }
    }

    fn region_of(
        parameters: &[(&'static str, Choice<'static>)],
    ) -> Result<Option<(String, u64, u64)>, String> {
        let parameters =
            parameters.iter().map(|(key, choice)| ((*key).into(), Some(choice.clone()))).collect::<Vec<_>>();
        let region = region(&parameters, "X");
        let region = region.map_err(|error| error.message.into_owned())?;
        Ok(region.map(|range| (range.region.into_owned(), range.offset, range.byte_size)))
    }

    #[test]
    fn a_negative_number_is_a_huge_one() {
        let named = ("shared_memory_region", Choice::String("r".into()));
        let size = ("shared_memory_byte_size", Choice::Int64(-2));
        let offset = ("shared_memory_offset", Choice::Int64(-1));
        let expected = ("r".to_owned(), u64::MAX, u64::MAX - 1);
        assert_eq!(region_of(&[named, size, offset]), Ok(Some(expected)));
    }

    #[test]
    fn a_region_comes_with_its_size() {
        let named = ("shared_memory_region", Choice::String("r".into()));
        let size = ("shared_memory_byte_size", Choice::Int64(4));
        let offset = ("shared_memory_offset", Choice::Int64(8));
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
                vec![("shared_memory_region", Choice::Int64(1))],
                "invalid value type for 'shared_memory_region' parameter for tensor 'X', expected string_param.",
            ),
            (
                vec![named, ("shared_memory_byte_size", Choice::Uint64(4))],
                "invalid value type for 'shared_memory_byte_size' parameter for tensor 'X', expected int64_param.",
            ),
        ];
        for (parameters, text) in expected {
            assert_eq!(region_of(&parameters), Err(text.to_owned()));
        }
    }
}
