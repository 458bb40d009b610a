//! Encodes `ModelInferResponse` and `ModelStreamInferResponse` without copying large tensors: the fields around a
//! tensor go to one small buffer, and the tensor is sent from its own memory.
//!
//! A message starts with the five bytes that gRPC puts before each message. Field numbers are those of
//! `grpc_service.proto`. In the property tests the generated decoder reads the encoded messages.
use bytes::{BufMut, BytesMut};
use smallvec::SmallVec;
use vocabulary::{Error, Name, Parameter, Tensor};

use super::prefix::{MAX_MESSAGE, PREFIX};
use crate::chunks::Chunks;

/// Tensors of up to this many bytes are copied: a copy is cheaper than one more range to write.
const COPIED: usize = 1024;

/// The fields of a `ModelInferResponse`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InferResponse<'a> {
    pub(crate) model_name: &'a str,
    pub(crate) model_version: &'a str,
    pub(crate) id: &'a str,
    pub(crate) parameters: &'a [(Name, Parameter)],
    /// Parameter `triton_final_response`, which streamed responses carry.
    pub(crate) last: Option<bool>,
    pub(crate) outputs: &'a [Tensor],
}

impl InferResponse<'_> {
    /// Encodes the whole message of `ModelInfer`, prefix included.
    ///
    /// # Errors
    /// A parameter the protocol cannot carry, or a message beyond [`MAX_MESSAGE`].
    pub(crate) fn unary(&self) -> Result<Chunks, Error> {
        let parameters = self.values()?;
        let lengths = self.lengths(&parameters);
        let mut writer = WireWriter::new(&lengths, MAX_MESSAGE)?;
        self.write(&parameters, &mut writer)?;
        Ok(writer.finish())
    }

    /// Encodes the whole message of `ModelStreamInfer`, prefix included, in at most `limit` bytes. `error` may be
    /// empty. If the response is too long, or the protocol cannot carry it, the message contains an error that says so.
    pub(crate) fn streamed(&self, error: &str, limit: usize) -> Chunks {
        let refused = match self.try_streamed(error, limit) {
            Ok(message) => return message,
            Err(refused) => refused,
        };
        let without = InferResponse { parameters: &[], outputs: &[], ..*self };
        without
            .try_streamed(&refused.message, limit)
            // The id alone is too long for the message.
            .or_else(|_| InferResponse::default().try_streamed(&refused.message, limit))
            .expect("one sentence fits a message")
    }

    /// # Errors
    /// As [`InferResponse::unary`].
    fn try_streamed(&self, error: &str, limit: usize) -> Result<Chunks, Error> {
        let parameters = self.values()?;
        let inner = self.lengths(&parameters);
        let around = optional_text_length(error) + delimited_length(inner.total) - inner.total;
        let mut writer = WireWriter::new(
            &Lengths { total: inner.total + around, buffered: inner.buffered + around },
            limit,
        )?;
        writer.optional_text(1, error);
        writer.begin(2, inner.total);
        self.write(&parameters, &mut writer)?;
        Ok(writer.finish())
    }

    /// The parameters in the form that the protocol needs.
    fn values(&self) -> Result<SmallVec<[(&str, ParameterValue<'_>); 2]>, Error> {
        let own = self.parameters.iter().map(|(key, value)| Ok((key.as_str(), ParameterValue::of(value)?)));
        own.chain(self.last.map(|last| Ok(("triton_final_response", ParameterValue::Bool(last))))).collect()
    }

    fn lengths(&self, parameters: &[(&str, ParameterValue<'_>)]) -> Lengths {
        let head = optional_text_length(self.model_name)
            + optional_text_length(self.model_version)
            + optional_text_length(self.id)
            + parameters.iter().map(|(key, value)| delimited_length(entry_length(key, value))).sum::<usize>();
        let mut lengths = Lengths { total: head, buffered: head };
        for output in self.outputs {
            let meta = delimited_length(output_length(output));
            let data = output.byte_size();
            let whole = delimited_length(data);
            lengths.total += meta + whole;
            lengths.buffered += meta + if data <= COPIED { whole } else { whole - data };
        }
        lengths
    }

    fn write(&self, parameters: &[(&str, ParameterValue<'_>)], writer: &mut WireWriter) -> Result<(), Error> {
        writer.optional_text(1, self.model_name);
        writer.optional_text(2, self.model_version);
        writer.optional_text(3, self.id);
        for (key, value) in parameters {
            writer.entry(4, key, value);
        }
        for output in self.outputs {
            writer.output(5, output);
        }
        for output in self.outputs {
            writer.tensor(6, output)?;
        }
        Ok(())
    }
}

/// The length of a message without its prefix, and the number of those bytes that go to the buffer around the tensors.
/// In bytes.
struct Lengths {
    total: usize,
    buffered: usize,
}

/// The choice of an `InferParameter`.
enum ParameterValue<'a> {
    Bool(bool),
    Int(i64),
    String(&'a str),
    Double(f64),
}

impl<'a> ParameterValue<'a> {
    fn of(parameter: &'a Parameter) -> Result<Self, Error> {
        match parameter {
            Parameter::Bool(value) => Ok(Self::Bool(*value)),
            Parameter::Int(value) => Ok(Self::Int(*value)),
            Parameter::String(value) => Ok(Self::String(value)),
            Parameter::Double(value) => Ok(Self::Double(*value)),
            Parameter::Bytes(_) => Err(Error::unsupported(
                "Response parameter of type 'TRITONSERVER_PARAMETER_BYTES' is not currently supported",
            )),
        }
    }

    fn length(&self) -> usize {
        match self {
            Self::Bool(_) => 2,
            Self::Int(value) => 1 + varint_length(value.cast_unsigned()),
            Self::String(value) => delimited_length(value.len()),
            Self::Double(_) => 9,
        }
    }
}

/// Length of an entry of a map of parameters.
fn entry_length(key: &str, value: &ParameterValue<'_>) -> usize {
    delimited_length(key.len()) + delimited_length(value.length())
}

/// Length of the inner message about an output.
fn output_length(output: &Tensor) -> usize {
    let shape = shape_length(output.shape());
    delimited_length(output.name().len())
        + delimited_length(output.datatype().protocol_name().len())
        + if shape == 0 { 0 } else { delimited_length(shape) }
}

fn shape_length(shape: &[i64]) -> usize {
    shape.iter().map(|dim| varint_length(dim.cast_unsigned())).sum()
}

fn optional_text_length(text: &str) -> usize {
    if text.is_empty() { 0 } else { delimited_length(text.len()) }
}

/// The length of a delimited field: tag, length and content. The tags of all fields that the server writes take one
/// byte.
fn delimited_length(content: usize) -> usize {
    1 + varint_length(content as u64) + content
}

/// The length of a varint: seven bits for each byte, at least one byte.
fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// The lower three bits of a tag.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const DELIMITED: u8 = 2;

/// Writes fields to a buffer of known size, and appends large tensors without copying them.
struct WireWriter {
    buffer: BytesMut,
    done: Chunks,
}

impl WireWriter {
    /// Writes the gRPC prefix.
    fn new(lengths: &Lengths, limit: usize) -> Result<Self, Error> {
        let total = lengths.total;
        let Some(length) = u32::try_from(total).ok().filter(|_| total <= limit) else {
            return Err(Error::invalid(format!(
                "Response has byte size {total} which exceeds gRPC's byte size limit {limit}."
            )));
        };
        let mut buffer = BytesMut::with_capacity(PREFIX + lengths.buffered);
        buffer.put_u8(0);
        buffer.put_u32(length);
        Ok(Self { buffer, done: Chunks::new() })
    }

    fn finish(mut self) -> Chunks {
        self.done.push(self.buffer.freeze());
        self.done
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.buffer.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.buffer.put_u8(value as u8);
    }

    fn tag(&mut self, field: u8, wire: u8) {
        self.buffer.put_u8(field << 3 | wire);
    }

    /// Writes the tag and the length of a delimited field. The caller then writes the content.
    fn begin(&mut self, field: u8, length: usize) {
        self.tag(field, DELIMITED);
        self.varint(length as u64);
    }

    fn text(&mut self, field: u8, text: &str) {
        self.begin(field, text.len());
        self.buffer.put_slice(text.as_bytes());
    }

    fn optional_text(&mut self, field: u8, text: &str) {
        if !text.is_empty() {
            self.text(field, text);
        }
    }

    fn entry(&mut self, field: u8, key: &str, value: &ParameterValue<'_>) {
        self.begin(field, entry_length(key, value));
        self.text(1, key);
        self.begin(2, value.length());
        match value {
            ParameterValue::Bool(value) => {
                self.tag(1, VARINT);
                self.buffer.put_u8(u8::from(*value));
            }
            ParameterValue::Int(value) => {
                self.tag(2, VARINT);
                self.varint(value.cast_unsigned());
            }
            ParameterValue::String(value) => self.text(3, value),
            ParameterValue::Double(value) => {
                self.tag(4, FIXED64);
                self.buffer.put_f64_le(*value);
            }
        }
    }

    fn output(&mut self, field: u8, output: &Tensor) {
        self.begin(field, output_length(output));
        self.text(1, output.name());
        self.text(2, output.datatype().protocol_name());
        if !output.shape().is_empty() {
            self.begin(3, shape_length(output.shape()));
            for dim in output.shape() {
                self.varint(dim.cast_unsigned());
            }
        }
    }

    fn tensor(&mut self, field: u8, output: &Tensor) -> Result<(), Error> {
        let data = output.host()?;
        self.begin(field, data.len());
        if data.len() <= COPIED {
            data.pieces().iter().for_each(|piece| self.buffer.put_slice(piece));
        } else {
            self.done.push(self.buffer.split().freeze());
            data.pieces().iter().for_each(|piece| self.done.push(piece.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
