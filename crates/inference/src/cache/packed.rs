//! An answer in one buffer, for caches that store bytes. The answer is written in place. A reader copies its tensors, or
//! shares the buffer with them.
//!
//! Numbers are little-endian. A size precedes each part that has no fixed size. The buffer contains the time of the
//! answer and its responses: of each, the name, datatype, shape and bytes of each output, and then the parameters.
//! Zeros precede the bytes of an output, so that they begin at a multiple of [`ALIGNMENT`]. The layout may change with
//! each version of the server, as the keys may. The reader checks every value, because the buffer may have been damaged
//! or come from a store that others can write. A tensor has as many bytes as its shape and its type need: readers of
//! tensors rely on that.
use std::{mem::MaybeUninit, time::Duration};

use bytes::Bytes;
use vocabulary::{
    DataType, Error, Name, Parameter, Shape, Tensor, bytes_elements, element_count, initialise,
};

use super::CachedAnswer;
use crate::Response;

/// Bytes that [`write()`] needs.
///
/// # Errors
/// UNSUPPORTED if the host cannot read an output.
pub fn size(answer: &CachedAnswer) -> Result<usize, Error> {
    let mut size = 0;
    each_part(answer, |part| size += part.len())?;
    Ok(size)
}

/// Packs an answer into a buffer of its [`size`].
///
/// # Errors
/// As [`size`]. INTERNAL if the bytes of an output do not fit its shape, because [`read`] refuses such an output.
///
/// # Panics
/// If the buffer has another size.
pub fn write(answer: &CachedAnswer, buffer: &mut [u8]) -> Result<(), Error> {
    check(answer)?;
    let mut rest = buffer;
    each_part(answer, |part| {
        let (place, after) = std::mem::take(&mut rest).split_at_mut(part.len());
        place.copy_from_slice(part);
        rest = after;
    })?;
    assert!(rest.is_empty(), "the buffer is as large as the answer");
    Ok(())
}

/// As [`write()`], into memory that nobody has written yet. All of it is initialised afterwards, unless an error is
/// returned.
///
/// # Errors
/// As [`write()`].
///
/// # Panics
/// If the buffer has another size.
pub fn write_uninit(answer: &CachedAnswer, buffer: &mut [MaybeUninit<u8>]) -> Result<(), Error> {
    check(answer)?;
    let mut rest = buffer;
    each_part(answer, |part| {
        let (place, after) = std::mem::take(&mut rest).split_at_mut(part.len());
        initialise(place, part);
        rest = after;
    })?;
    assert!(rest.is_empty(), "the buffer is as large as the answer");
    Ok(())
}

/// Packs an answer into a buffer of its own.
///
/// # Errors
/// As [`write()`].
pub fn packed(answer: &CachedAnswer) -> Result<Vec<u8>, Error> {
    check(answer)?;
    let mut buffer = Vec::with_capacity(size(answer)?);
    each_part(answer, |part| buffer.extend_from_slice(part))?;
    Ok(buffer)
}

/// Unpacks the output of [`write()`]. Each tensor gets memory of its own.
///
/// # Errors
/// INTERNAL if the buffer contains anything else.
pub fn read(buffer: &[u8]) -> Result<CachedAnswer, Error> {
    unpack(buffer, Bytes::copy_from_slice)
}

/// Unpacks the output of [`write()`]. The tensors share the memory of the buffer. They are aligned for computations if the
/// buffer is.
///
/// # Errors
/// As [`read`].
pub fn read_shared(buffer: &Bytes) -> Result<CachedAnswer, Error> {
    unpack(buffer, |data| buffer.slice_ref(data))
}

fn unpack(buffer: &[u8], data: impl Fn(&[u8]) -> Bytes) -> Result<CachedAnswer, Error> {
    let mut reader = Reader { rest: buffer, whole: buffer.len() };
    let answer = reader.answer(&data).filter(|_| reader.rest.is_empty());
    answer.ok_or_else(|| Error::internal("the cached response is damaged"))
}

/// Requires that each output can be read again.
fn check(answer: &CachedAnswer) -> Result<(), Error> {
    for output in answer.responses.iter().flat_map(|response| &response.outputs) {
        let elements = match output.datatype().byte_size() {
            Some(size) => elements_of_size(size, output.byte_size()),
            None => strings(&output.host()?.contiguous()),
        };
        if !fits(output.shape(), elements) {
            let text = format!(
                "the {} bytes of output '{}' do not fit its shape",
                output.byte_size(),
                output.name()
            );
            return Err(Error::internal(text));
        }
    }
    Ok(())
}

/// Whether a tensor of this shape has so many elements. The tensor of a shape without dimensions is empty, as in
/// Triton, or has one element. `None`: the bytes of the tensor are no elements.
fn fits(shape: &[i64], elements: Option<usize>) -> bool {
    let expected = element_count(shape).ok().and_then(|count| usize::try_from(count).ok());
    elements.is_some() && (elements == expected || (shape.is_empty() && elements == Some(1)))
}

/// The number of elements of `size` bytes in so many bytes. `None` if the last one is incomplete.
fn elements_of_size(size: usize, bytes: usize) -> Option<usize> {
    bytes.is_multiple_of(size).then(|| bytes / size)
}

/// The number of length-prefixed elements. `None` if the last one is incomplete.
fn strings(data: &[u8]) -> Option<usize> {
    bytes_elements(data).try_fold(0, |count, element| element.ok().map(|_| count + 1))
}

/// The bytes of a tensor begin at a multiple of so many bytes.
pub const ALIGNMENT: usize = 16;

/// Defines the layout for writing: `size` and `write` both use it.
fn each_part(answer: &CachedAnswer, mut part: impl FnMut(&[u8])) -> Result<(), Error> {
    let mut offset = 0;
    let mut put = |bytes: &[u8]| {
        offset += bytes.len();
        part(bytes);
        offset
    };
    put(&u64::try_from(answer.computed.as_millis()).unwrap_or(u64::MAX).to_le_bytes());
    put(&count(answer.responses.len()));
    answer.responses.iter().try_for_each(|response| each_part_of_response(response, &mut put))
}

fn each_part_of_response(response: &Response, mut put: impl FnMut(&[u8]) -> usize) -> Result<(), Error> {
    put(&count(response.outputs.len()));
    for output in &response.outputs {
        put_text(&mut put, output.name());
        put_text(&mut put, output.datatype().protocol_name());
        put(&count(output.shape().len()));
        output.shape().iter().for_each(|dim| _ = put(&dim.to_le_bytes()));
        let data = output.host()?;
        let offset = put(&count(data.len()));
        put(&[0; ALIGNMENT][..padding(offset)]);
        data.pieces().iter().for_each(|piece| _ = put(piece));
    }
    put(&count(response.parameters.len()));
    for (name, value) in &response.parameters {
        put_text(&mut put, name);
        match value {
            Parameter::String(text) => {
                put(&[STRING]);
                put_text(&mut put, text);
            }
            Parameter::Int(number) => {
                put(&[INT]);
                put(&number.to_le_bytes());
            }
            Parameter::Bool(truth) => _ = put(&[BOOL, u8::from(*truth)]),
            Parameter::Double(number) => {
                put(&[DOUBLE]);
                put(&number.to_le_bytes());
            }
            Parameter::Bytes(bytes) => {
                put(&[BYTES]);
                put(&count(bytes.len()));
                put(bytes);
            }
        }
    }
    Ok(())
}

const STRING: u8 = 0;
const INT: u8 = 1;
const BOOL: u8 = 2;
const DOUBLE: u8 = 3;
const BYTES: u8 = 4;

/// The zeros after so many bytes.
fn padding(offset: usize) -> usize {
    offset.wrapping_neg() % ALIGNMENT
}

fn count(count: usize) -> [u8; 8] {
    (count as u64).to_le_bytes()
}

fn put_text(put: &mut impl FnMut(&[u8]) -> usize, text: &str) {
    put(&count(text.len()));
    put(text.as_bytes());
}

/// Reads values from the front of a buffer. Returns `None` if the buffer is too short or a value is invalid.
struct Reader<'b> {
    rest: &'b [u8],
    /// Bytes of the whole buffer.
    whole: usize,
}

impl<'b> Reader<'b> {
    fn answer(&mut self, data: &impl Fn(&[u8]) -> Bytes) -> Option<CachedAnswer> {
        let computed = self.array().map(u64::from_le_bytes).map(Duration::from_millis)?;
        let responses = self.several(|reader| reader.response(data))?;
        Some(CachedAnswer { responses, computed })
    }

    fn response(&mut self, data: &impl Fn(&[u8]) -> Bytes) -> Option<Response> {
        let outputs = self.several(|reader| reader.output(data))?;
        let parameters = self.several(Self::parameter)?;
        Some(Response { outputs, parameters })
    }

    fn output(&mut self, data: &impl Fn(&[u8]) -> Bytes) -> Option<Tensor> {
        let name = Name::new(self.text()?);
        let datatype = DataType::from_protocol_name(self.text()?)?;
        let shape: Shape = self.several(|reader| reader.array().map(i64::from_le_bytes))?;
        let len = self.count()?;
        let zeros = self.take(padding(self.whole - self.rest.len()))?;
        let bytes = self.take(len)?;
        let elements = match datatype.byte_size() {
            Some(size) => elements_of_size(size, len),
            None => strings(bytes),
        };
        let is_valid = zeros.iter().all(|&zero| zero == 0) && fits(&shape, elements);
        is_valid.then(|| Tensor::new(name, datatype, shape, data(bytes)))
    }

    fn parameter(&mut self) -> Option<(Name, Parameter)> {
        let name = Name::new(self.text()?);
        let [kind] = self.array()?;
        let value = match kind {
            STRING => Parameter::String(Name::new(self.text()?)),
            INT => Parameter::Int(i64::from_le_bytes(self.array()?)),
            BOOL => Parameter::Bool(self.array()? != [0]),
            DOUBLE => Parameter::Double(f64::from_le_bytes(self.array()?)),
            BYTES => Parameter::Bytes(Bytes::copy_from_slice(self.bytes()?)),
            _ => return None,
        };
        Some((name, value))
    }

    /// Reads a count, and then as many values.
    fn several<T, C: FromIterator<T>>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<C> {
        let count = self.count()?;
        (0..count).map(|_| one(self)).collect()
    }

    fn text(&mut self) -> Option<&'b str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let len = self.count()?;
        self.take(len)
    }

    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.array()?)).ok()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*array)
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::TensorData;

    use super::*;

    fn packed(answer: &CachedAnswer) -> Vec<u8> {
        let mut buffer = vec![0xAA; size(answer).unwrap()];
        write(answer, &mut buffer).unwrap();
        buffer
    }

    /// Two responses, computed at a time.
    fn two() -> CachedAnswer {
        CachedAnswer {
            responses: [rich(), Response::default()].into_iter().collect(),
            computed: Duration::from_millis(12_345),
        }
    }

    /// A response with at least one value of each kind.
    fn rich() -> Response {
        let pieces = TensorData::from_pieces([Bytes::from_static(b"\x01\0\0\0"), Bytes::from_static(b"x")]);
        let outputs = vec![
            Tensor::new("A".into(), DataType::Bytes, [1, 1][..].into(), pieces),
            Tensor::new("ü".into(), DataType::Fp64, [][..].into(), Bytes::new()),
            Tensor::new("".into(), DataType::Uint8, [1, 1][..].into(), vec![7]),
        ];
        let parameters = [
            ("s", Parameter::String("text".into())),
            ("i", Parameter::Int(-3)),
            ("b", Parameter::Bool(true)),
            ("d", Parameter::Double(-0.5)),
            ("x", Parameter::Bytes(Bytes::from_static(b"\0\xff"))),
            ("b", Parameter::Bool(false)),
        ];
        Response { outputs, parameters: parameters.map(|(name, value)| (name.into(), value)).to_vec() }
    }

    #[test]
    fn a_packed_response_unpacks_unchanged() {
        let back = read(&packed(&two())).unwrap();
        assert_eq!((back.computed.as_millis(), back.responses.len()), (12_345, 2));
        let [back, empty] = &back.responses[..] else { unreachable!() };
        assert!(empty.outputs.is_empty() && empty.parameters.is_empty());
        assert_eq!(back.parameters, rich().parameters);
        assert_eq!(back.outputs.len(), 3);
        for (ours, theirs) in back.outputs.iter().zip(&rich().outputs) {
            assert_eq!((ours.name(), ours.datatype()), (theirs.name(), theirs.datatype()));
            assert_eq!(ours.shape(), theirs.shape());
            assert_eq!(ours.host().unwrap().contiguous(), theirs.host().unwrap().contiguous());
        }
    }

    #[test]
    fn tensors_may_share_the_buffer_and_are_aligned() {
        let buffer = Bytes::from(packed(&two()));
        let back = read_shared(&buffer).unwrap();
        for (ours, theirs) in back.responses[0].outputs.iter().zip(&rich().outputs) {
            let (ours, theirs) = (ours.host().unwrap().contiguous(), theirs.host().unwrap().contiguous());
            assert_eq!(ours, theirs);
            let offset = ours.as_ptr().addr().wrapping_sub(buffer.as_ptr().addr());
            assert!(ours.is_empty() || (offset < buffer.len() && offset.is_multiple_of(ALIGNMENT)));
        }
        assert!(!buffer.is_unique(), "the tensors have no copy");
    }

    #[test]
    fn an_answer_without_responses_is_an_answer() {
        assert!(read(&packed(&CachedAnswer::default())).unwrap().responses.is_empty());
    }

    #[test]
    fn missing_and_extra_bytes_are_detected() {
        let whole = packed(&two());
        for len in 0..whole.len() {
            assert!(read(&whole[..len]).is_err(), "{len} bytes");
        }
        assert!(read(&[&whole[..], &[0]].concat()).is_err());
    }

    #[test]
    fn the_bytes_of_a_tensor_must_fit_its_shape_and_type() {
        use DataType::{Bytes, Fp32, Fp64, Uint8};
        let two_strings = b"\x01\0\0\0x\0\0\0\0";
        for (datatype, shape, data, fitting) in [
            (Uint8, &[3][..], &[1, 2, 3][..], true),
            (Uint8, &[2], &[1, 2, 3], false),
            (Uint8, &[-3], &[1, 2, 3], false),
            (Fp32, &[1, 2], &[0; 8], true),
            (Fp32, &[2], &[0; 9], false),
            (Fp64, &[], &[0; 8], true),
            (Fp64, &[], &[], true),
            (Fp64, &[], &[0; 16], false),
            (Fp64, &[0, 5], &[], true),
            (Uint8, &[i64::MAX, i64::MAX], &[0], false),
            (Fp64, &[i64::MAX], &[0; 8], false),
            (Bytes, &[2], two_strings, true),
            (Bytes, &[1], two_strings, false),
            (Bytes, &[2], &two_strings[..8], false),
            (Bytes, &[], &[], true),
        ] {
            let output = Tensor::new("o".into(), datatype, shape.into(), data.to_vec());
            let answer = CachedAnswer::from(Response { outputs: vec![output], parameters: Vec::new() });
            // As a store may have it.
            let mut buffer = Vec::new();
            each_part(&answer, |part| buffer.extend_from_slice(part)).unwrap();
            assert_eq!(read(&buffer).is_ok(), fitting, "{datatype:?} {shape:?} {data:?}");
            let written = super::packed(&answer);
            assert_eq!(written.is_ok(), fitting, "{written:?}");
            let refusal = format!("the {} bytes of output 'o' do not fit its shape", data.len());
            if let Err(error) = written {
                assert_eq!((&error.message[..], write(&answer, &mut buffer).is_err()), (&refusal[..], true));
            }
        }
    }

    #[test]
    fn damaged_bytes_give_an_error_and_no_panic() {
        let whole = packed(&two());
        for place in 0..whole.len() {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut damaged = whole.clone();
                damaged[place] = value;
                // Damaged numbers and tensor bytes look like valid ones. The test can only check that nothing panics.
                let _ = read(&damaged);
            }
        }
        assert_eq!(read(&[0xFF; 64]).unwrap_err().to_string(), "the cached response is damaged");
    }
}
