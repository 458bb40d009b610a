//! Where the body of a response over HTTP/1.1 is among the bytes that arrive: of a stated length, or in chunks.
//!
//! Pure: it neither reads nor keeps bytes. So the body may arrive in any pieces, and may have any length.

use anyhow::{Context, Result, bail, ensure};

/// The most bytes of the line before a chunk: its size and its extensions.
const MOST_SIZE_LINE: usize = 4096;
/// The most bytes of the trailers together.
const MOST_TRAILERS: usize = 64 * 1024;

/// What of a body is still to come.
#[derive(Debug, PartialEq)]
pub(crate) enum AnswerBody {
    /// So many bytes.
    Length(usize),
    Chunked(ChunkDecoder),
}

/// Finds the data of chunks.
#[derive(Debug, PartialEq, Default)]
pub(crate) struct ChunkDecoder {
    state: ChunkState,
    /// The bytes of the line of a size, or of all trailers, so far.
    line_length: usize,
}

#[derive(Debug, PartialEq, Clone, Copy)]
enum ChunkState {
    /// In the size. `None` before the first digit.
    Size(Option<usize>),
    /// After the digits: spaces and extensions, which have no meaning here.
    Extension(usize),
    /// After the carriage return of the size.
    SizeEnd(usize),
    Content(usize),
    ContentReturn,
    ContentEnd,
    /// At the beginning of a line of the trailers.
    TrailerStart,
    Trailer,
    TrailerEnd,
    /// After the carriage return of the last line, which is empty.
    LastEnd,
    Complete,
}

impl Default for ChunkState {
    fn default() -> ChunkState {
        ChunkState::Size(None)
    }
}

impl AnswerBody {
    /// Takes the next part of the body from the front of `bytes`. `None` if there is none in `bytes`. Bytes behind the body
    /// stay.
    ///
    /// # Errors
    /// The bytes are no chunks. The connection cannot be used any more.
    pub(crate) fn next<'b>(&mut self, bytes: &mut &'b [u8]) -> Result<Option<&'b [u8]>> {
        match self {
            AnswerBody::Length(rest) => Ok(taken(bytes, rest)),
            AnswerBody::Chunked(decoder) => decoder.next(bytes),
        }
    }

    /// Whether the body has arrived as a whole, with its trailers.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            AnswerBody::Length(rest) => *rest == 0,
            AnswerBody::Chunked(decoder) => decoder.state == ChunkState::Complete,
        }
    }
}

/// Takes at most `rest` bytes from the front. `None` if that is nothing.
fn taken<'b>(bytes: &mut &'b [u8], rest: &mut usize) -> Option<&'b [u8]> {
    let (part, behind) = bytes.split_at(bytes.len().min(*rest));
    *bytes = behind;
    *rest -= part.len();
    (!part.is_empty()).then_some(part)
}

impl ChunkDecoder {
    fn next<'b>(&mut self, bytes: &mut &'b [u8]) -> Result<Option<&'b [u8]>> {
        while self.state != ChunkState::Complete {
            if let ChunkState::Content(mut rest) = self.state {
                let part = taken(bytes, &mut rest);
                self.state = if rest == 0 { ChunkState::ContentReturn } else { ChunkState::Content(rest) };
                return Ok(part);
            }
            let Some((&byte, behind)) = bytes.split_first() else { return Ok(None) };
            *bytes = behind;
            self.state = self.after(byte)?;
        }
        Ok(None)
    }

    /// The state after a byte that is not content.
    fn after(&mut self, byte: u8) -> Result<ChunkState> {
        self.line_length += 1;
        let (name, most) = match self.state {
            ChunkState::TrailerStart | ChunkState::Trailer | ChunkState::TrailerEnd | ChunkState::LastEnd => {
                ("trailers", MOST_TRAILERS)
            }
            ChunkState::Size(_)
            | ChunkState::Extension(_)
            | ChunkState::SizeEnd(_)
            | ChunkState::Content(_)
            | ChunkState::ContentReturn
            | ChunkState::ContentEnd
            | ChunkState::Complete => ("a chunk with a size line", MOST_SIZE_LINE),
        };
        ensure!(self.line_length <= most, "the answer has {name} of over {most} bytes");
        Ok(match (self.state, byte) {
            (ChunkState::Size(size), byte) if byte.is_ascii_hexdigit() => {
                ChunkState::Size(Some(longer(size.unwrap_or(0), byte)?))
            }
            (ChunkState::Size(Some(size)) | ChunkState::Extension(size), b'\r') => ChunkState::SizeEnd(size),
            (ChunkState::Size(Some(size)), b';' | b' ' | b'\t') => ChunkState::Extension(size),
            (ChunkState::Extension(size), byte) if byte != b'\n' => ChunkState::Extension(size),
            (ChunkState::SizeEnd(0), b'\n') => self.line_over(ChunkState::TrailerStart),
            (ChunkState::SizeEnd(size), b'\n') => self.line_over(ChunkState::Content(size)),
            (ChunkState::ContentReturn, b'\r') => ChunkState::ContentEnd,
            (ChunkState::ContentEnd, b'\n') => self.line_over(ChunkState::Size(None)),
            (ChunkState::TrailerStart, b'\r') => ChunkState::LastEnd,
            (ChunkState::Trailer, b'\r') => ChunkState::TrailerEnd,
            (ChunkState::TrailerStart | ChunkState::Trailer, byte) if byte != b'\n' => ChunkState::Trailer,
            (ChunkState::TrailerEnd, b'\n') => ChunkState::TrailerStart,
            (ChunkState::LastEnd, b'\n') => ChunkState::Complete,
            _ => bail!("the chunks of the answer are not those of HTTP"),
        })
    }

    fn line_over(&mut self, next: ChunkState) -> ChunkState {
        self.line_length = 0;
        next
    }
}

/// A size with one more hexadecimal digit.
fn longer(size: usize, digit: u8) -> Result<usize> {
    let digit = char::from(digit).to_digit(16).context("a size has hexadecimal digits")? as usize;
    let longer = size.checked_mul(16).and_then(|size| size.checked_add(digit));
    longer.context("a chunk of the answer is too large")
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// The body of an answer whose bytes come in pieces of these lengths, again and again, whether it is complete, and
    /// how many bytes follow it.
    fn read(mut body: AnswerBody, bytes: &[u8], lengths: &[usize]) -> Result<(Vec<u8>, bool, usize)> {
        let (mut content, mut behind, mut rest) = (Vec::new(), 0, bytes);
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let mut piece;
            (piece, rest) = rest.split_at(rest.len().min(*length));
            while let Some(part) = body.next(&mut piece)? {
                assert!(!part.is_empty());
                content.extend_from_slice(part);
            }
            behind += piece.len();
        }
        Ok((content, body.is_complete(), behind))
    }

    fn chunked() -> AnswerBody {
        AnswerBody::Chunked(ChunkDecoder::default())
    }

    const CHUNKS: &[u8] =
        b"5\r\nhello\r\n00c;name=\"va lue\"\r\n, you\r\n0\r\n\r\n\r\n1 \r\n!\r\n0\r\nSum: 3\r\nMore:\r\n\r\n";

    #[test]
    fn chunks_are_read_whatever_pieces_they_come_in() {
        let expected = (b"hello, you\r\n0\r\n\r\n!".to_vec(), true, 0);
        for length in 1..=CHUNKS.len() {
            assert_eq!(read(chunked(), CHUNKS, &[length]).unwrap(), expected, "{length}");
        }
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..500 {
            let lengths: Vec<usize> = (0..9).map(|_| random.random_range(1..20)).collect();
            assert_eq!(read(chunked(), CHUNKS, &lengths).unwrap(), expected, "{lengths:?}");
        }
    }

    #[test]
    fn a_body_ends_at_its_end_and_not_before() {
        for end in 0..CHUNKS.len() {
            let (_, is_complete, behind) = read(chunked(), &CHUNKS[..end], &[3]).unwrap();
            assert!(!is_complete && behind == 0, "{end}");
        }
        let (_, is_complete, behind) = read(chunked(), &[CHUNKS, b"HTTP"].concat(), &[11]).unwrap();
        assert!(is_complete && behind == 4);
        let stated = read(AnswerBody::Length(3), b"abcd", &[2]).unwrap();
        assert_eq!(stated, (b"abc".to_vec(), true, 1));
        assert!(!read(AnswerBody::Length(3), b"ab", &[1]).unwrap().1);
        assert!(AnswerBody::Length(0).is_complete());
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for wrong in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            ";a\r\n",
            "5\nhello",
            "5;a\nhello",
            "5\rhello",
            "1\r\nab\r\n",
            "1\r\na\n0",
            "0\r\nSum: 3\n\r\n",
            "0\r\n\rx",
            "11111111111111111\r\n",
        ] {
            assert!(read(chunked(), wrong.as_bytes(), &[1]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_lines_around_chunks_have_a_bound() {
        let line = |length: usize| format!("1;{}\r\na\r\n", "x".repeat(length));
        assert!(read(chunked(), line(4000).repeat(3).as_bytes(), &[500]).is_ok());
        let error = read(chunked(), line(5000).as_bytes(), &[500]).unwrap_err().to_string();
        assert_eq!(error, "the answer has a chunk with a size line of over 4096 bytes");
        let trailers = |count: usize| format!("0\r\n{}\r\n", "A: b\r\n".repeat(count));
        assert!(read(chunked(), trailers(10_000).as_bytes(), &[500]).unwrap().1);
        let error = read(chunked(), trailers(20_000).as_bytes(), &[500]).unwrap_err().to_string();
        assert_eq!(error, "the answer has trailers of over 65536 bytes");
    }
}
