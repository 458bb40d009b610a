//! Reads the fields of the ONNX format from a stream, and skips the large ones.
use std::io::{self, BufReader, Read, Seek};

/// A field whose key was read. The stream is at `begin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireField {
    pub(crate) number: u64,
    pub(crate) content: WireContent,
}

/// The content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireContent {
    /// A number, which has been read.
    Number(u64),
    /// Bytes, a text, or a message, up to this position of the stream. They have not been read.
    Bytes { end: u64 },
    /// Anything else, which has been skipped.
    Other,
}

/// The next field of a message that ends at `end`; `None` at its end. Bytes that are no field end a message, too.
pub(crate) fn next_field(
    stream: &mut BufReader<impl Read + Seek>,
    end: u64,
) -> io::Result<Option<WireField>> {
    if stream.stream_position()? >= end {
        return Ok(None);
    }
    let Some(key) = varint(stream)? else { return Ok(None) };
    let content = match key & 7 {
        0 => match varint(stream)? {
            Some(number) => WireContent::Number(number),
            None => return Ok(None),
        },
        1 => skipped(stream, 8)?,
        5 => skipped(stream, 4)?,
        2 => {
            let Some(length) = varint(stream)? else { return Ok(None) };
            let content_end = stream.stream_position()?.checked_add(length);
            match content_end.filter(|content_end| *content_end <= end) {
                Some(end) => WireContent::Bytes { end },
                None => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(WireField { number: key >> 3, content }))
}

/// Goes to a position that is not before the present one.
pub(crate) fn skip_to(stream: &mut BufReader<impl Read + Seek>, position: u64) -> io::Result<()> {
    let distance = position.saturating_sub(stream.stream_position()?);
    stream.seek_relative(i64::try_from(distance).unwrap_or(i64::MAX))
}

/// The text up to a position, if it is not longer than `most`. The stream is at the position afterwards.
pub(crate) fn text(
    stream: &mut BufReader<impl Read + Seek>,
    end: u64,
    most: u64,
) -> io::Result<Option<String>> {
    let length = end.saturating_sub(stream.stream_position()?);
    if length > most {
        skip_to(stream, end)?;
        return Ok(None);
    }
    let mut bytes = Vec::new();
    Read::take(&mut *stream, length).read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).ok())
}

fn skipped(stream: &mut BufReader<impl Read + Seek>, length: i64) -> io::Result<WireContent> {
    stream.seek_relative(length)?;
    Ok(WireContent::Other)
}

/// A number of variable length; `None` at the end of the file, or if it is too long.
pub(crate) fn varint(reader: &mut impl Read) -> io::Result<Option<u64>> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        if reader.read(&mut byte)? == 0 {
            return Ok(None);
        }
        value |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            return Ok(Some(value));
        }
    }
    Ok(None)
}
