//! Reads the wire format of protocol buffers from a message in one frame or in several frames.
//!
//! The reader is strict: it checks wire types, lengths, tags, varints and UTF-8 as the format demands. It never reads
//! beyond the end of an inner message. It returns texts by reference if they lie in one frame. It never copies the
//! bytes of tensors. Source of the rules: the encoding chapter of the protocol buffers documentation.
use std::borrow::Cow;

use bytes::Bytes;
use vocabulary::TensorData;

use crate::cursor::Cursor;

/// The bytes are not a message of the expected type. The client gets no more detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The encoding of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireType {
    /// One to ten bytes, seven bits in each.
    Varint,
    /// Eight bytes, little endian.
    Fixed64,
    /// A length and that many bytes.
    Delimited,
    /// The start of an inner message that ends with [`WireType::GroupEnd`]. The server reads no field of this type.
    GroupStart,
    /// The end of a group.
    GroupEnd,
    /// Four bytes, little endian.
    Fixed32,
}

/// The most levels of nested groups and messages, as in the usual implementations.
const MAX_DEPTH: usize = 100;

/// A position in a message. A clone reads on from there by itself.
#[derive(Debug, Clone)]
pub(crate) struct WireReader<'a>(Cursor<'a>);

impl<'a> WireReader<'a> {
    /// A reader at the start of the message that the frames contain.
    pub(crate) fn new(frames: &'a [Bytes]) -> Self {
        Self(Cursor::new(frames))
    }

    /// The number of bytes before the end of the message.
    pub(crate) fn left(&self) -> usize {
        self.0.left()
    }

    /// The value of a field as a reader of its own. This reader skips the value.
    pub(crate) fn part(&mut self, wire: WireType) -> Result<Self, Malformed> {
        let length = self.length(wire)?;
        let mut part = self.clone();
        part.0.end_after(length).ok_or(Malformed)?;
        self.0.skip(length).ok_or(Malformed)?;
        Ok(part)
    }

    /// Calls `field` with number and wire type of each field up to the end of the message. `field` must read the value.
    pub(crate) fn fields(
        &mut self,
        mut field: impl FnMut(&mut Self, u32, WireType) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        while self.0.left() > 0 {
            let (number, wire) = self.tag()?;
            field(self, number, wire)?;
        }
        Ok(())
    }

    /// As [`WireReader::fields`], for the inner message that is the value of a field.
    pub(crate) fn message(
        &mut self,
        wire: WireType,
        field: impl FnMut(&mut Self, u32, WireType) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let length = self.length(wire)?;
        let behind = self.0.end_after(length).ok_or(Malformed)?;
        self.fields(field)?;
        self.0.go_on(behind);
        Ok(())
    }

    /// Calls `element` for each element of a repeated number field, packed or not.
    pub(crate) fn repeated(
        &mut self,
        wire: WireType,
        each: WireType,
        mut element: impl FnMut(&mut Self) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        if wire == each {
            return element(self);
        }
        let length = self.length(wire)?;
        let behind = self.0.end_after(length).ok_or(Malformed)?;
        while self.0.left() > 0 {
            element(self)?;
        }
        self.0.go_on(behind);
        Ok(())
    }

    /// The number of elements of a repeated varint field, packed or not. Of packed elements it reads no value.
    pub(crate) fn count_varints(&mut self, wire: WireType) -> Result<usize, Malformed> {
        if wire == WireType::Varint {
            return self.varint().map(|_| 1);
        }
        let length = self.length(wire)?;
        let (mut count, mut last) = (0, 0);
        let ends = |bytes: &[u8]| bytes.iter().map(|&byte| usize::from(byte < 0x80)).sum::<usize>();
        let each = |bytes: &[u8]| {
            count += ends(bytes);
            last = bytes.last().copied().unwrap_or(last);
        };
        self.0.pieces(length, each).ok_or(Malformed)?;
        if last < 0x80 { Ok(count) } else { Err(Malformed) }
    }

    /// The number of elements of a repeated field of `size` bytes each, packed or not. It reads no value.
    pub(crate) fn count_fixed(
        &mut self,
        wire: WireType,
        each: WireType,
        size: usize,
    ) -> Result<usize, Malformed> {
        let length = if wire == each { size } else { self.length(wire)? };
        self.0.skip(length).ok_or(Malformed)?;
        if length.is_multiple_of(size) { Ok(length / size) } else { Err(Malformed) }
    }

    /// Appends the elements of a repeated field of `size` bytes each, packed or not, as they are written.
    pub(crate) fn copy_fixed(
        &mut self,
        wire: WireType,
        each: WireType,
        size: usize,
        to: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let length = if wire == each { size } else { self.length(wire)? };
        self.copy(length, to)
    }

    /// The length of a byte string, which is skipped.
    pub(crate) fn skip_bytes(&mut self, wire: WireType) -> Result<usize, Malformed> {
        let length = self.length(wire)?;
        self.0.skip(length).ok_or(Malformed)?;
        Ok(length)
    }

    /// Appends a byte string after its length as little-endian `u32`.
    pub(crate) fn copy_bytes(&mut self, wire: WireType, to: &mut Vec<u8>) -> Result<(), Malformed> {
        let length = self.length(wire)?;
        // A message is shorter than 2^32 bytes, so its elements are, too.
        to.extend(u32::try_from(length).map_err(|_| Malformed)?.to_le_bytes());
        self.copy(length, to)
    }

    fn copy(&mut self, length: usize, to: &mut Vec<u8>) -> Result<(), Malformed> {
        self.0.pieces(length, |bytes| to.extend_from_slice(bytes)).ok_or(Malformed)
    }

    /// Reads a number that is written as varint.
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        match self.0.byte_if(|byte| byte < 0x80) {
            Some(byte) => Ok(u64::from(byte)),
            None => self.long_varint(),
        }
    }

    /// Reads the value of a singular varint field.
    pub(crate) fn number(&mut self, wire: WireType) -> Result<u64, Malformed> {
        expect(wire, WireType::Varint)?;
        self.varint()
    }

    /// Reads a value of four or eight bytes.
    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.0.array().ok_or(Malformed)
    }

    /// Reads a text. Copies it only if it lies in several frames.
    pub(crate) fn text(&mut self, wire: WireType) -> Result<Cow<'a, str>, Malformed> {
        match self.bytes(wire)? {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| Malformed),
            Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| Malformed),
        }
    }

    /// Reads a byte string. Copies it only if it lies in several frames.
    pub(crate) fn bytes(&mut self, wire: WireType) -> Result<Cow<'a, [u8]>, Malformed> {
        let length = self.length(wire)?;
        self.0.bytes(length).ok_or(Malformed)
    }

    /// Reads a byte string as shared pieces of the frames. Never copies it.
    pub(crate) fn data(&mut self, wire: WireType) -> Result<TensorData, Malformed> {
        let length = self.length(wire)?;
        self.0.data(length).ok_or(Malformed)
    }

    /// Skips the value of an unknown field.
    pub(crate) fn skip(&mut self, number: u32, wire: WireType) -> Result<(), Malformed> {
        self.skip_nested(number, wire, MAX_DEPTH)
    }

    fn skip_nested(&mut self, number: u32, wire: WireType, depth: usize) -> Result<(), Malformed> {
        match wire {
            WireType::Varint => self.varint().map(drop),
            WireType::Fixed64 => self.fixed::<8>().map(drop),
            WireType::Fixed32 => self.fixed::<4>().map(drop),
            WireType::Delimited => {
                let length = self.length(wire)?;
                self.0.skip(length).ok_or(Malformed)
            }
            WireType::GroupStart => {
                let depth = depth.checked_sub(1).ok_or(Malformed)?;
                loop {
                    let (inner, wire) = self.tag()?;
                    if wire == WireType::GroupEnd {
                        return if inner == number { Ok(()) } else { Err(Malformed) };
                    }
                    self.skip_nested(inner, wire, depth)?;
                }
            }
            WireType::GroupEnd => Err(Malformed),
        }
    }

    fn tag(&mut self) -> Result<(u32, WireType), Malformed> {
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed)?;
        let wire = match key & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Delimited,
            3 => WireType::GroupStart,
            4 => WireType::GroupEnd,
            5 => WireType::Fixed32,
            _ => return Err(Malformed),
        };
        if key >> 3 == 0 { Err(Malformed) } else { Ok((key >> 3, wire)) }
    }

    /// Reads the length before a delimited value.
    fn length(&mut self, wire: WireType) -> Result<usize, Malformed> {
        expect(wire, WireType::Delimited)?;
        usize::try_from(self.varint()?).map_err(|_| Malformed)
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.0.byte().ok_or(Malformed)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // The tenth byte may hold only one bit.
                return if shift == 63 && byte > 1 { Err(Malformed) } else { Ok(value) };
            }
        }
        Err(Malformed)
    }
}

/// Checks that a known field has the wire type of its definition.
fn expect(wire: WireType, expected: WireType) -> Result<(), Malformed> {
    if wire == expected { Ok(()) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> Result<u64, Malformed> {
        WireReader::new(&[Bytes::copy_from_slice(bytes)]).varint()
    }

    #[test]
    fn a_varint_has_at_most_64_bits() {
        assert_eq!(number(&[0xac, 0x02]), Ok(300));
        assert_eq!(number(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Ok(u64::MAX));
        assert_eq!(number(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), Err(Malformed));
        assert_eq!(number(&[0x80; 11]), Err(Malformed));
        assert_eq!(number(&[0x80]), Err(Malformed));
    }

    #[test]
    fn an_inner_message_cannot_reach_beyond_its_end() {
        // Field 1 is a message of two bytes, and its field 2 claims five bytes.
        let frames = [Bytes::from_static(&[0x0a, 0x02, 0x12, 0x05, b'a', b'b', b'c', b'd', b'e'])];
        let mut reader = WireReader::new(&frames);
        let read = reader
            .fields(|reader, _, wire| reader.message(wire, |reader, _, wire| reader.bytes(wire).map(drop)));
        assert_eq!(read, Err(Malformed));
    }

    #[test]
    fn a_byte_string_in_one_frame_is_not_copied() {
        let frame = Bytes::from_static(&[0x03, b'a', b'b', b'c']);
        let frames = [frame.clone()];
        let data = WireReader::new(&frames).data(WireType::Delimited).unwrap();
        assert_eq!(data.pieces()[0].as_ptr(), frame[1..].as_ptr());
    }

    #[test]
    fn groups_are_skipped_up_to_a_limit_of_depth() {
        let nested = |depth: usize| {
            let bytes = [vec![0x0b; depth], vec![0x0c; depth]].concat();
            let frames = [Bytes::from(bytes)];
            WireReader::new(&frames).fields(WireReader::skip)
        };
        assert_eq!(nested(MAX_DEPTH), Ok(()));
        assert_eq!(nested(MAX_DEPTH + 1), Err(Malformed));
        let frames = [Bytes::from_static(&[0x0b, 0x14])];
        let wrong_end = WireReader::new(&frames).fields(WireReader::skip);
        assert_eq!(wrong_end, Err(Malformed));
    }
}
