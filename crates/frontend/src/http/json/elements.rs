//! The `data` of a tensor: a nested JSON array whose elements become little-endian bytes while the reader reads them.
//!
//! The reader only records an invalid element and goes on. There are two reasons. An error in the grammar further on
//! takes precedence. And the shape, which may come later, determines whether the element counts at all.
use std::{borrow::Cow, fmt::Display};

use vocabulary::{DataType, Error, Shape, element_count, shape_text};

use super::{
    long_read::JsonText,
    reader::{Container, JsonReader, JsonVisitor, Scalar, SyntaxOnly},
    syntax::{JsonSyntaxError, Number, access},
};

/// The nesting of elements must be less deep than this. As Triton: common.h, HTTP_MAX_JSON_NESTING_DEPTH.
pub(super) const MAX_DEPTH: usize = 100;

/// The elements of a tensor.
#[derive(Debug)]
pub(crate) enum TensorElements {
    /// Text at this offset. The datatype is not known yet. The grammar has been checked.
    Unread(usize),
    /// Bytes, up to the first element that is not of this datatype.
    Read(ReadElements),
}

/// Elements in the form of bytes.
#[derive(Debug)]
pub(crate) struct ReadElements {
    datatype: DataType,
    bytes: Vec<u8>,
    count: usize,
    /// The error of element number `count`.
    failure: Option<ElementFailure>,
    arrays: usize,
    objects: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementFailure {
    /// The element is this, and its datatype is not.
    Type(&'static str),
    Depth,
}

/// What an element of another type is.
mod given {
    pub(super) const NUMBER: &str = "a number of another kind";
    pub(super) const OBJECT: &str = "an object";
}

/// Why an array is not the data of its tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ElementsError {
    /// An element has another type than the tensor.
    Type {
        /// Triton's text.
        text: &'static str,
        /// What the element is.
        given: &'static str,
        /// The number of elements before it.
        at: usize,
    },
    /// An element is nested too deeply.
    Depth,
    /// More elements than the shape has: so many, unless the reading ended at one of another type.
    TooMany(Option<usize>),
    /// Fewer elements than the shape has: so many.
    TooFew(usize),
}

impl TensorElements {
    /// Elements that have not been read.
    pub(super) fn unread(at: usize) -> Self {
        Self::Unread(at)
    }

    /// Reads the array that begins at `reader`, or skips it if its datatype is unknown or not supported in JSON.
    /// `count` elements are expected. Memory for them is taken from `reservable`, in bytes, as far as that suffices.
    pub(super) fn read(
        reader: &mut JsonReader<'_>,
        datatype: Option<DataType>,
        count: usize,
        reservable: &mut usize,
    ) -> Result<Self, JsonSyntaxError> {
        let Some(datatype) = datatype.filter(|datatype| !matches!(datatype, DataType::Fp16 | DataType::Bf16))
        else {
            let at = reader.at();
            reader.walk(&mut SyntaxOnly)?;
            return Ok(Self::Unread(at));
        };
        // An element takes at least two bytes of text, so a shape that claims too much reserves little.
        let room = count.min(reader.left() / 2 + 1).saturating_mul(datatype.byte_size().unwrap_or(8));
        let room = room.min(*reservable);
        *reservable -= room;
        let mut read = ReadElements::new(datatype, room);
        reader.walk(&mut read)?;
        reader.keep(read.bytes.len());
        Ok(Self::Read(read))
    }

    /// The memory that the elements take, in bytes.
    #[cfg(test)]
    pub(super) fn reserved(&self) -> usize {
        match self {
            Self::Unread(_) => 0,
            Self::Read(read) => read.bytes.capacity(),
        }
    }

    /// The same elements, read as `datatype`.
    pub(super) fn read_as(self, datatype: DataType, text: JsonText<'_>) -> Result<Self, JsonSyntaxError> {
        match self {
            Self::Read(read) if read.datatype == datatype => Ok(Self::Read(read)),
            Self::Read(_) => unreachable!("the first datatype of a tensor counts, before its data or behind"),
            Self::Unread(at) => Self::read(&mut JsonReader::back_at(text, at), Some(datatype), 0, &mut 0),
        }
    }

    /// The bytes of a tensor of `count` elements. This function does not check the number of BYTES elements: each
    /// string has its own length, and the check against the model counts the strings.
    pub(crate) fn into_bytes(self, datatype: DataType, count: usize) -> Result<Vec<u8>, ElementsError> {
        let Self::Read(read) = self else { unreachable!("elements are read before they are taken") };
        let too_many = datatype != DataType::Bytes && read.count > count;
        match read.failure {
            failure if too_many => Err(ElementsError::TooMany(failure.is_none().then_some(read.count))),
            Some(ElementFailure::Depth) => Err(ElementsError::Depth),
            // The type of elements beyond the shape does not matter.
            Some(ElementFailure::Type(_)) if datatype != DataType::Bytes && read.count == count => {
                Err(ElementsError::TooMany(None))
            }
            Some(ElementFailure::Type(given)) => Err(ElementsError::of_type(datatype, given, read.count)),
            None if datatype != DataType::Bytes && read.count < count => {
                Err(ElementsError::TooFew(read.count))
            }
            None => Ok(read.bytes),
        }
    }
}

/// Appends the number as an element. Returns false if the number has another type. Integers wrap around, as in the
/// reference (P-W4).
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "narrow integers keep their low bits"
)]
fn push_number(datatype: DataType, bytes: &mut Vec<u8>, number: Number) -> bool {
    // An integer that fits neither 64-bit type was read as a double.
    let signed = || if let Number::Int(value) = number { Some(value as u64) } else { None };
    let unsigned = || match number {
        Number::Int(value) => u64::try_from(value).ok(),
        Number::Uint(value) => Some(value),
        Number::Double(_) => None,
    };
    let bits = match datatype {
        DataType::Fp32 => Some(u64::from((number.as_double() as f32).to_bits())),
        DataType::Fp64 => Some(number.as_double().to_bits()),
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 | DataType::Uint64 => unsigned(),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => signed(),
        DataType::Bool | DataType::Fp16 | DataType::Bf16 | DataType::Bytes => None,
    };
    let Some(bits) = bits else { return false };
    match datatype {
        DataType::Uint8 | DataType::Int8 => bytes.push(bits as u8),
        DataType::Uint16 | DataType::Int16 => bytes.extend_from_slice(&(bits as u16).to_le_bytes()),
        DataType::Uint32 | DataType::Int32 | DataType::Fp32 => {
            bytes.extend_from_slice(&(bits as u32).to_le_bytes());
        }
        _ => bytes.extend_from_slice(&bits.to_le_bytes()),
    }
    true
}

/// The error text of Triton's accessor for this datatype when the element has another type.
fn expected(datatype: DataType) -> &'static str {
    match datatype {
        DataType::Bool => access::BOOLEAN,
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 | DataType::Uint64 => access::UNSIGNED,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => access::SIGNED,
        DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64 => access::NUMBER,
        DataType::Bytes => access::STRING,
    }
}

impl ElementsError {
    fn of_type(datatype: DataType, given: &'static str, at: usize) -> Self {
        Self::Type { text: expected(datatype), given, at }
    }

    /// The error of the input `name` with this shape, which is empty if only the data tell it. As Triton: http_server.cc,
    /// ReadDataFromJson and JsonBytesArrayByteSize. Behind Triton's text stands what is needed, and what is given.
    pub(crate) fn explain(&self, datatype: DataType, name: &str, shape: &[i64]) -> Error {
        let needed = || {
            let count = element_count(shape).unwrap_or_default();
            format!("input '{name}' of shape {} needs {count} values", shape_text(shape))
        };
        match (self, datatype) {
            (Self::Type { text, given, at }, datatype) => {
                let action = match datatype {
                    DataType::Bytes => "Unable to parse JSON bytes array",
                    _ => "Unable to parse 'data'",
                };
                let (place, datatype) = (shape_text(&index_of(*at, shape)), datatype.protocol_name());
                Error::internal(format!(
                    "{action}: {text}: input '{name}' has {given} at {place}, where {datatype} is needed"
                ))
            }
            (Self::Depth, DataType::Bytes) => Error::invalid(too_deep()),
            (Self::Depth, _) => Error::invalid(format!("Unable to parse 'data': {}", too_deep())),
            (Self::TooMany(given), _) => {
                unlike_shape(&needed(), given.as_ref().map_or(&"more", |given| given))
            }
            (Self::TooFew(given), _) => unlike_shape(&needed(), given),
        }
    }
}

fn unlike_shape(needed: &str, given: &dyn Display) -> Error {
    Error::internal(format!(
        "Unable to parse 'data': Shape does not match true shape of 'data' field: {needed}, {given} are given"
    ))
}

/// The place of element number `at` in a tensor of this shape. If the shape has no such element, its number.
fn index_of(at: usize, shape: &[i64]) -> Shape {
    let number = i64::try_from(at).unwrap_or(i64::MAX);
    let mut index = Shape::from(shape);
    let mut rest = number;
    for place in index.iter_mut().rev() {
        (rest, *place) = (rest.checked_div(*place).unwrap_or(1), rest.checked_rem(*place).unwrap_or(0));
    }
    if rest == 0 && !shape.is_empty() { index } else { [number][..].into() }
}

fn too_deep() -> String {
    format!("JSON nesting depth exceeds maximum allowed limit ({MAX_DEPTH})")
}

impl ReadElements {
    /// No elements yet, with memory for this many bytes.
    pub(super) fn new(datatype: DataType, room: usize) -> Self {
        let bytes = Vec::with_capacity(room);
        Self { datatype, bytes, count: 0, failure: None, arrays: 0, objects: 0 }
    }

    /// The number of elements read so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The bytes of all elements, whatever their number.
    pub(super) fn all(self) -> Result<Vec<u8>, ElementsError> {
        match self.failure {
            Some(ElementFailure::Depth) => Err(ElementsError::Depth),
            Some(ElementFailure::Type(given)) => {
                Err(ElementsError::of_type(self.datatype, given, self.count))
            }
            None => Ok(self.bytes),
        }
    }

    fn element(&mut self) -> bool {
        if self.objects > 0 || self.failure.is_some() {
            return false;
        }
        if self.arrays >= MAX_DEPTH {
            self.failure = Some(ElementFailure::Depth);
        }
        self.failure.is_none()
    }

    /// Reads numbers while `push` returns true. If it returns false, a number has the wrong type. Later numbers are not
    /// elements any more.
    fn run<const SINGLE: bool>(
        &mut self,
        reader: &mut JsonReader<'_>,
        push: impl Fn(&mut Vec<u8>, Number) -> bool,
    ) -> Result<(), JsonSyntaxError> {
        let (mut count, mut fits) = (0, true);
        reader.number_run::<SINGLE>(|number| {
            fits = fits && push(&mut self.bytes, number);
            count += usize::from(fits);
        })?;
        self.count += count;
        if !fits {
            self.failure = Some(ElementFailure::Type(given::NUMBER));
        }
        Ok(())
    }

    fn push_text(&mut self, text: &[u8]) -> bool {
        let Ok(len) = u32::try_from(text.len()) else { return false };
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(text);
        true
    }
}

impl<'a> JsonVisitor<'a> for ReadElements {
    fn scalar(&mut self, scalar: Scalar<'a>) {
        if !self.element() {
            return;
        }
        let fits = match (self.datatype, &scalar) {
            (datatype, Scalar::Number(number)) => push_number(datatype, &mut self.bytes, *number),
            (DataType::Bool, Scalar::Bool(value)) => {
                self.bytes.push((*value).into());
                true
            }
            (DataType::Bytes, Scalar::Text(text)) => self.push_text(text),
            _ => false,
        };
        if fits {
            self.count += 1;
        } else {
            self.failure = Some(ElementFailure::Type(match scalar {
                Scalar::Null => "null",
                Scalar::Bool(_) => "a boolean",
                Scalar::Number(_) => given::NUMBER,
                Scalar::Text(_) => "a string",
            }));
        }
    }

    fn numbers(&mut self, reader: &mut JsonReader<'a>) -> Result<(), JsonSyntaxError> {
        // A number in an object is not an element, and a key follows its comma.
        if self.objects > 0 {
            return reader.number().map(|_| ());
        }
        if !self.element() {
            return reader.number_run::<true>(|_| {});
        }
        // Each datatype has its own loop.
        macro_rules! run {
            ($($datatype:ident),*) => {
                match self.datatype {
                    $(DataType::$datatype => {
                        self.run::<{ matches!(DataType::$datatype, DataType::Fp32) }>(reader, |bytes, number| {
                            push_number(DataType::$datatype, bytes, number)
                        })
                    })*
                }
            };
        }
        run!(Bool, Uint8, Uint16, Uint32, Uint64, Int8, Int16, Int32, Int64, Fp16, Bf16, Fp32, Fp64, Bytes)
    }

    fn key(&mut self, _: Cow<'a, [u8]>) {}

    fn open(&mut self, container: Container) {
        match container {
            Container::Array => {
                if self.arrays > 0 {
                    self.element();
                }
                self.arrays += 1;
            }
            Container::Object => {
                if self.element() {
                    self.failure = Some(ElementFailure::Type(given::OBJECT));
                }
                self.objects += 1;
            }
        }
    }

    fn close(&mut self, container: Container) {
        match container {
            Container::Array => self.arrays -= 1,
            Container::Object => self.objects -= 1,
        }
    }

    fn held(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &str, datatype: DataType, count: usize) -> Result<Vec<u8>, ElementsError> {
        let mut reader = JsonReader::new(source.as_bytes());
        TensorElements::read(&mut reader, Some(datatype), count, &mut 1000)
            .unwrap()
            .into_bytes(datatype, count)
    }

    fn text(source: &str, datatype: DataType, count: usize) -> (u16, String) {
        let len = i64::try_from(count).unwrap();
        let shape = if len % 2 == 0 { vec![2, len / 2] } else { vec![len] };
        let error = read(source, datatype, count).unwrap_err().explain(datatype, "IN", &shape);
        (crate::error::status(error.code).as_u16(), error.message.into_owned())
    }

    #[test]
    fn numbers_become_little_endian_bytes() {
        assert_eq!(read("[true, false]", DataType::Bool, 2), Ok(vec![1, 0]));
        assert_eq!(read("[256, 300]", DataType::Uint8, 2), Ok(vec![0, 44]));
        assert_eq!(read("[128]", DataType::Int8, 1), Ok(vec![128]));
        assert_eq!(read("[-2]", DataType::Int16, 1), Ok(vec![254, 255]));
        assert_eq!(read("[18446744073709551615]", DataType::Uint64, 1), Ok(vec![255; 8]));
        assert_eq!(read("[1e39]", DataType::Fp32, 1), Ok(f32::INFINITY.to_le_bytes().to_vec()));
        assert_eq!(
            read("[18446744073709551615]", DataType::Fp64, 1),
            Ok(1.844_674_407_370_955_2e19_f64.to_le_bytes().to_vec())
        );
        assert_eq!(
            read(r#"[["a","b"],["\u0000"]]"#, DataType::Bytes, 3),
            Ok(b"\x01\0\0\0a\x01\0\0\0b\x01\0\0\0\0".to_vec())
        );
    }

    #[test]
    fn elements_of_another_type_are_refused_with_the_text_of_their_datatype() {
        for (source, datatype, expected, given) in [
            ("[1,0]", DataType::Bool, access::BOOLEAN, given::NUMBER),
            ("[-1]", DataType::Uint8, access::UNSIGNED, given::NUMBER),
            ("[1.0]", DataType::Int32, access::SIGNED, given::NUMBER),
            ("[9223372036854775808]", DataType::Int64, access::SIGNED, given::NUMBER),
            (r#"["1"]"#, DataType::Int32, access::SIGNED, "a string"),
            (r#"["NaN"]"#, DataType::Fp32, access::NUMBER, "a string"),
            ("[true]", DataType::Fp32, access::NUMBER, "a boolean"),
            ("[null]", DataType::Fp64, access::NUMBER, "null"),
            ("[{}]", DataType::Fp32, access::NUMBER, given::OBJECT),
        ] {
            let datatype_name = datatype.protocol_name();
            let expected = format!(
                "Unable to parse 'data': {expected}: input 'IN' has {given} at [0], where {datatype_name} is needed"
            );
            assert_eq!(text(source, datatype, 1), (500, expected), "{source}");
        }
        let strings = |given, place| {
            let access = access::STRING;
            let text = "Unable to parse JSON bytes array";
            (500, format!("{text}: {access}: input 'IN' has {given} at {place}, where BYTES is needed"))
        };
        assert_eq!(text("[1]", DataType::Bytes, 1), strings(given::NUMBER, "[0]"));
        assert_eq!(text(r#"["a",{"x":"y"}]"#, DataType::Bytes, 2), strings(given::OBJECT, "[1,0]"));
    }

    #[test]
    fn an_element_of_another_type_is_told_with_its_place() {
        let place = |source, count| {
            let (_, text) = text(source, DataType::Int32, count);
            text.split_once(" at ").unwrap().1.split_once(", where").unwrap().0.to_owned()
        };
        assert_eq!(place(r#"[0,1,2,3,"x",5]"#, 6), "[1,1]");
        assert_eq!(place("[[0,1,2],[3,null,5]]", 6), "[1,1]");
        assert_eq!(place("[0,1.5,2]", 3), "[1]");
        for (at, shape, index) in [(7, &[2, 3][..], [7]), (7, &[], [7]), (0, &[0], [0])] {
            assert_eq!(index_of(at, shape)[..], index);
        }
    }

    #[test]
    fn the_number_of_elements_must_be_that_of_the_shape() {
        let many = |given| {
            let text = "Unable to parse 'data': Shape does not match true shape of 'data' field";
            (500, format!("{text}: input 'IN' of shape [2,1] needs 2 values, {given} are given"))
        };
        assert_eq!(text("[1,2,3]", DataType::Int32, 2), many("3"));
        assert_eq!(
            text(r#"[1,2,"x"]"#, DataType::Int32, 2),
            many("more"),
            "nobody looks at what is beyond the shape"
        );
        assert_eq!(text(r#"[1,2,3,"x"]"#, DataType::Int32, 2), many("more"));
        assert_eq!(text("[1]", DataType::Int32, 2), many("1"));
        assert!(
            read(r#"["a"]"#, DataType::Bytes, 2).is_ok(),
            "strings are counted by the check against the model"
        );
    }

    #[test]
    fn what_is_no_element_still_follows_the_grammar() {
        let mut reader = JsonReader::new(br#"[1,{"a":1,2}]"#);
        let error = TensorElements::read(&mut reader, Some(DataType::Int32), 1, &mut 0).unwrap_err();
        assert_eq!((error.reason, error.at), (super::super::syntax::reason::MISSING_NAME, 10));
        assert_eq!(read("[1, 2,3 ,4,[5],-6]", DataType::Int8, 6), Ok(vec![1, 2, 3, 4, 5, 250]));
        let mut reader = JsonReader::new(b"[1,x]");
        assert_eq!(TensorElements::read(&mut reader, Some(DataType::Int8), 1, &mut 0).unwrap_err().at, 3);
    }

    #[test]
    fn a_hundred_levels_are_too_deep() {
        let nested =
            |depth: usize, inner: &str| ["[".repeat(depth), inner.into(), "]".repeat(depth)].concat();
        let limit = "JSON nesting depth exceeds maximum allowed limit (100)";
        assert_eq!(read(&nested(99, "1"), DataType::Int8, 1), Ok(vec![1]));
        assert_eq!(
            text(&nested(100, "1"), DataType::Int8, 1),
            (400, format!("Unable to parse 'data': {limit}"))
        );
        assert_eq!(text(&nested(100, r#""a""#), DataType::Bytes, 1), (400, limit.to_owned()));
        assert_eq!(read(&nested(100, ""), DataType::Int8, 0), Ok(vec![]));
        assert_eq!(
            text(&nested(101, ""), DataType::Int8, 0),
            (400, format!("Unable to parse 'data': {limit}"))
        );
    }
}
