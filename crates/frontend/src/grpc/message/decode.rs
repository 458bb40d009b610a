//! Decodes `ModelInferRequest` from the frames in which it arrived, without copying a tensor.
//!
//! The generated decoder avoids copies only if the message lies in one contiguous buffer. This decoder takes
//! `raw_input_contents` as pieces of the frames, and everything else by reference. It notes where typed contents lie.
//! They are decoded (`contents`) when the model is known and their bytes are reserved. It gives a message the meaning of
//! the schema: it skips unknown fields, keeps the last value of a singular field, merges inner messages that come
//! twice, and keeps the later of two map entries with the same key.
use std::borrow::Cow;

use bytes::Bytes;
use kserve::{lengths, long_write::BRIEF};
use smallvec::SmallVec;
use vocabulary::{BudgetExceeded, DataType, Error, Name, Shape, TensorData};

use super::wire::{Malformed, WireReader, WireType};

/// Parameters by key, sorted; `None` is a parameter without a choice.
pub(crate) type InferParameters<'a> = Vec<(Cow<'a, str>, Option<GrpcParameter<'a>>)>;

/// The most items of a message: tensors, parameters, further parts of contents, and dimensions of long shapes together.
/// An empty item takes one or two bytes in the message but about a hundred bytes of memory. A request with 4,000 inputs and
/// 4,000 outputs has 12,000 items, with the contents of the inputs.
const MAX_ITEMS: usize = 1 << 14;

/// The most dimensions of a shape.
pub(crate) const MAX_DIMS: usize = 256;

/// `ModelInferRequest`.
#[derive(Debug, Default)]
pub(crate) struct InferMessage<'a> {
    pub(crate) model_name: Cow<'a, str>,
    pub(crate) model_version: Cow<'a, str>,
    pub(crate) id: Cow<'a, str>,
    pub(crate) parameters: InferParameters<'a>,
    pub(crate) inputs: SmallVec<[InferInput<'a>; 2]>,
    pub(crate) outputs: SmallVec<[InferRequestedOutput<'a>; 2]>,
    pub(crate) raw_contents: SmallVec<[TensorData; 2]>,
}

/// `InferInputTensor`.
#[derive(Debug, Default)]
pub(crate) struct InferInput<'a> {
    pub(crate) name: Cow<'a, str>,
    /// `None` if the message names an unknown datatype.
    pub(crate) datatype: Option<DataType>,
    /// The name of the unknown datatype.
    pub(crate) unknown_datatype: Cow<'a, str>,
    pub(crate) shape: Shape,
    pub(crate) parameters: InferParameters<'a>,
    /// The typed contents. A message may bring them in several parts, of which the later ones continue the earlier ones.
    pub(crate) contents: Vec<WireReader<'a>>,
}

/// `InferRequestedOutputTensor`.
#[derive(Debug, Default)]
pub(crate) struct InferRequestedOutput<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) parameters: InferParameters<'a>,
}

/// The value of an `InferParameter`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GrpcParameter<'a> {
    Bool(bool),
    Int64(i64),
    String(Cow<'a, str>),
    Double(f64),
    Uint64(u64),
}

/// Why a message gives no request.
#[derive(Debug, PartialEq)]
pub(crate) enum InvalidMessage {
    /// The bytes are not a message of the schema.
    Malformed,
    /// What the message asks for is refused.
    Refused(Error),
}

impl InvalidMessage {
    /// The error for the client.
    ///
    /// # Errors
    /// The bytes are not a message of the schema.
    pub(crate) fn refusal(self) -> Result<Error, Malformed> {
        match self {
            Self::Refused(error) => Ok(error),
            Self::Malformed => Err(Malformed),
        }
    }

    /// Adds to a refusal what is wrong with the datatype of its input, if that is unknown.
    pub(crate) fn about_datatype(mut self, input: &InferInput<'_>) -> Self {
        if let (Self::Refused(error), None) = (&mut self, input.datatype) {
            let unknown = config::unknown_datatype(&input.unknown_datatype);
            error.message.to_mut().push_str(&format!(": {unknown}"));
        }
        self
    }
}

impl From<Malformed> for InvalidMessage {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<Error> for InvalidMessage {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<BudgetExceeded> for InvalidMessage {
    fn from(refused: BudgetExceeded) -> Self {
        Self::Refused(refused.into())
    }
}

/// True if the message that the frames contain is decoded in little time: besides its raw contents, which the decoder
/// does not read, it has at most [`BRIEF`] bytes.
pub(crate) fn is_brief(frames: &[Bytes]) -> bool {
    let length: usize = frames.iter().map(Bytes::len).sum();
    length <= BRIEF || is_brief_besides_raw_contents(frames, length)
}

#[cold]
fn is_brief_besides_raw_contents(frames: &[Bytes], length: usize) -> bool {
    let mut raw = 0;
    let scanned = WireReader::new(frames).fields(|reader, number, wire| {
        if wire == WireType::GroupStart {
            // A group is read up to its end, and may be long.
            return Err(Malformed);
        }
        let before = reader.left();
        reader.skip(number, wire)?;
        if number == 7 {
            raw += before - reader.left();
        }
        if length - reader.left() - raw > BRIEF { Err(Malformed) } else { Ok(()) }
    });
    scanned.is_ok()
}

/// The number of bytes of a message that are neither raw nor typed contents. Its decoder may copy them.
pub(crate) fn bytes_besides_contents(frames: &[Bytes]) -> usize {
    let mut besides = 0;
    // If the message is malformed, its decoder reads no further than this function.
    let _ = WireReader::new(frames).fields(|reader, number, wire| {
        if number != 5 || wire != WireType::Delimited {
            return skip_counted(reader, number, wire, number == 7, &mut besides);
        }
        reader.message(wire, |reader, number, wire| {
            skip_counted(reader, number, wire, number == 5, &mut besides)
        })
    });
    besides
}

fn skip_counted(
    reader: &mut WireReader<'_>,
    number: u32,
    wire: WireType,
    is_contents: bool,
    besides: &mut usize,
) -> Result<(), Malformed> {
    let before = reader.left();
    reader.skip(number, wire)?;
    if !is_contents {
        *besides += before - reader.left();
    }
    Ok(())
}

/// The id of a message of which at least the beginning has arrived. Empty if the message has no id, if its id is too long,
/// or if its id does not stand in the first two frames behind only the model's name and version.
pub(crate) fn leading_id(frames: &[Bytes]) -> Name {
    let mut id = Name::default();
    let mut fields = 0..3;
    let begin = &frames[..frames.len().min(2)];
    // The bytes that have not arrived are missing, so an error is expected.
    let _ = WireReader::new(begin).fields(|reader, number, wire| match (fields.next(), number, wire) {
        (Some(_), 1 | 2, WireType::Delimited) => reader.skip(number, wire),
        (Some(_), 3, _) => {
            id = lengths::short_id(&reader.text(wire)?);
            Err(Malformed)
        }
        _ => Err(Malformed),
    });
    id
}

impl<'a> InferMessage<'a> {
    /// Decodes the message that the frames contain.
    ///
    /// # Errors
    /// The bytes are not such a message, or it has too many items (INVALID_ARG).
    pub(crate) fn decode(frames: &'a [Bytes]) -> Result<Self, InvalidMessage> {
        #[cfg(test)]
        tests::count_decoded();
        let mut message = Self::default();
        let mut items = Items(Some(MAX_ITEMS));
        let read = WireReader::new(frames)
            .fields(|reader, number, wire| message.field(reader, number, wire, &mut items));
        if items.0.is_none() {
            let text =
                format!("a request may have {MAX_ITEMS} tensors and parameters, and this one has more");
            return Err(Error::invalid(text).into());
        }
        read?;
        normalise(&mut message.parameters);
        Ok(message)
    }

    fn field(
        &mut self,
        reader: &mut WireReader<'a>,
        number: u32,
        wire: WireType,
        items: &mut Items,
    ) -> Result<(), Malformed> {
        match number {
            1 => self.model_name = reader.text(wire)?,
            2 => self.model_version = reader.text(wire)?,
            3 => self.id = reader.text(wire)?,
            4 => parameter(reader, wire, &mut self.parameters, items)?,
            5 => {
                items.take_one()?;
                let mut input = InferInput::default();
                reader.message(wire, |reader, number, wire| input.field(reader, number, wire, items))?;
                normalise(&mut input.parameters);
                self.inputs.push(input);
            }
            6 => {
                items.take_one()?;
                let mut output = InferRequestedOutput::default();
                reader.message(wire, |reader, number, wire| output.field(reader, number, wire, items))?;
                normalise(&mut output.parameters);
                self.outputs.push(output);
            }
            7 => {
                items.take_one()?;
                self.raw_contents.push(reader.data(wire)?);
            }
            _ => reader.skip(number, wire)?,
        }
        Ok(())
    }
}

impl<'a> InferInput<'a> {
    fn field(
        &mut self,
        reader: &mut WireReader<'a>,
        number: u32,
        wire: WireType,
        items: &mut Items,
    ) -> Result<(), Malformed> {
        match number {
            1 => self.name = reader.text(wire)?,
            2 => {
                let name = reader.text(wire)?;
                self.datatype = DataType::from_protocol_name(&name);
                if self.datatype.is_none() {
                    self.unknown_datatype = name;
                }
            }
            3 => reader.repeated(wire, WireType::Varint, |reader| {
                let dim = reader.varint()?.cast_signed();
                // One dimension too many shows that the shape is too long. Later ones are not needed.
                if self.shape.len() <= MAX_DIMS {
                    if self.shape.len() >= self.shape.inline_size() {
                        items.take_one()?;
                    }
                    self.shape.push(dim);
                }
                Ok(())
            })?,
            4 => parameter(reader, wire, &mut self.parameters, items)?,
            5 => {
                if !self.contents.is_empty() {
                    items.take_one()?;
                }
                self.contents.push(reader.part(wire)?);
            }
            _ => reader.skip(number, wire)?,
        }
        Ok(())
    }
}

impl<'a> InferRequestedOutput<'a> {
    fn field(
        &mut self,
        reader: &mut WireReader<'a>,
        number: u32,
        wire: WireType,
        items: &mut Items,
    ) -> Result<(), Malformed> {
        match number {
            1 => self.name = reader.text(wire)?,
            2 => parameter(reader, wire, &mut self.parameters, items)?,
            _ => reader.skip(number, wire)?,
        }
        Ok(())
    }
}

/// The number of items that the message may still have. `None`: it has too many.
struct Items(Option<usize>);

impl Items {
    fn take_one(&mut self) -> Result<(), Malformed> {
        self.0 = self.0.and_then(|left| left.checked_sub(1));
        self.0.map(drop).ok_or(Malformed)
    }
}

/// Decodes one entry of a map of parameters.
fn parameter<'a>(
    reader: &mut WireReader<'a>,
    wire: WireType,
    parameters: &mut InferParameters<'a>,
    items: &mut Items,
) -> Result<(), Malformed> {
    items.take_one()?;
    let mut key = Cow::default();
    let mut value = None;
    reader.message(wire, |reader, number, wire| {
        match number {
            1 => key = reader.text(wire)?,
            2 => reader.message(wire, |reader, number, wire| choice(reader, number, wire, &mut value))?,
            _ => reader.skip(number, wire)?,
        }
        Ok(())
    })?;
    parameters.push((key, value));
    Ok(())
}

fn choice<'a>(
    reader: &mut WireReader<'a>,
    number: u32,
    wire: WireType,
    value: &mut Option<GrpcParameter<'a>>,
) -> Result<(), Malformed> {
    *value = Some(match number {
        1 => GrpcParameter::Bool(reader.number(wire)? != 0),
        2 => GrpcParameter::Int64(reader.number(wire)?.cast_signed()),
        3 => GrpcParameter::String(reader.text(wire)?),
        4 if wire == WireType::Fixed64 => GrpcParameter::Double(f64::from_le_bytes(reader.fixed()?)),
        4 => return Err(Malformed),
        5 => GrpcParameter::Uint64(reader.number(wire)?),
        _ => return reader.skip(number, wire),
    });
    Ok(())
}

/// Sorts the parameters by key. If several entries have the same key, the last one stays.
fn normalise(parameters: &mut InferParameters<'_>) {
    if parameters.len() < 2 {
        return;
    }
    parameters.sort_by(|one, other| one.0.cmp(&other.0));
    let mut next_key = std::mem::take(parameters).into_iter().peekable();
    while let Some(entry) = next_key.next() {
        if next_key.peek().is_none_or(|next| next.0 != entry.0) {
            parameters.push(entry);
        }
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
pub(in crate::grpc) mod tests;
