//! Server-sent events, as the generate extension answers with them: each event is a response or an error, in JSON.
//!
//! The lines of the stream have the form of the HTML standard: they end with CR, LF or both, a line with a colon at its
//! beginning is a comment, and the lines `data` of an event belong together. Other fields have no meaning here.

use anyhow::{Result, bail, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The most bytes of a line, and of the data of an event. An event may be a response with tensors of megabytes.
const MOST_EVENT: usize = 64 << 20;
/// The mark that a text in UTF-8 may begin with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Finds the events in a stream whose bytes come in any pieces.
#[derive(Debug)]
pub(crate) struct EventReader {
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// The data of the event that has not ended yet. Each of its lines ends with a line feed.
    data: Vec<u8>,
    is_first_line: bool,
    /// The last byte was a carriage return, so a line feed belongs to it.
    is_after_return: bool,
    most: usize,
}

impl EventReader {
    pub(crate) fn new() -> EventReader {
        EventReader {
            line: Vec::new(),
            data: Vec::new(),
            is_first_line: true,
            is_after_return: false,
            most: MOST_EVENT,
        }
    }

    /// Reads the next bytes of the stream. Calls `on_event` with the data of each event that ends in them.
    ///
    /// # Errors
    /// An event is too large.
    pub(crate) fn read(&mut self, mut bytes: &[u8], mut on_event: impl FnMut(&[u8])) -> Result<()> {
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.is_after_return) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            self.extend(&bytes[..end.unwrap_or(bytes.len())])?;
            let Some(end) = end else { return Ok(()) };
            self.is_after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line(&mut on_event)?;
        }
        Ok(())
    }

    /// Whether the stream may end here.
    ///
    /// # Errors
    /// The stream is inside of an event.
    pub(crate) fn end(&self) -> Result<()> {
        ensure!(self.line.is_empty() && self.data.is_empty(), "the answer ends inside of an event");
        Ok(())
    }

    fn extend(&mut self, part: &[u8]) -> Result<()> {
        if self.line.len() + part.len() > self.most {
            bail!("an event of the answer has a line of over {} bytes", self.most);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn end_line(&mut self, on_event: &mut impl FnMut(&[u8])) -> Result<()> {
        let mut line = &self.line[..];
        if std::mem::take(&mut self.is_first_line) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            if let Some(data) = self.data.strip_suffix(b"\n") {
                on_event(data);
                self.data.clear();
            }
        } else if let Some(data) = data_of(line) {
            if self.data.len() + data.len() >= self.most {
                bail!("an event of the answer has over {} bytes", self.most);
            }
            self.data.extend_from_slice(data);
            self.data.push(b'\n');
        }
        self.line.clear();
        Ok(())
    }
}

/// The content of a line `data`. `None` for other lines.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    match line.strip_prefix(b"data")? {
        [] => Some(&[]),
        [b':', b' ', data @ ..] | [b':', data @ ..] => Some(data),
        _ => None,
    }
}

/// What tells an error from a response. Other members are not read.
#[derive(Deserialize)]
struct EventMembers {
    error: Option<Value>,
    /// Each response has it, also one with an output of the name `error`.
    model_name: Option<IgnoredAny>,
}

/// The text of the error that an event is. `None` if the event is a response.
pub(crate) fn event_error(data: &[u8]) -> Option<String> {
    // An array would be read as the members in their order.
    if data.trim_ascii_start().first() != Some(&b'{') {
        return Some(format!("an event is not a JSON object: {}", beginning(&String::from_utf8_lossy(data))));
    }
    match serde_json::from_slice::<EventMembers>(data) {
        Err(error) => Some(format!("an event is not a JSON object: {error}")),
        Ok(EventMembers { model_name: Some(_), .. } | EventMembers { error: None, .. }) => None,
        Ok(EventMembers { error: Some(Value::String(text)), .. }) => Some(beginning(&text)),
        Ok(EventMembers { error: Some(other), .. }) => Some(beginning(&other.to_string())),
    }
}

/// The most characters of an error that are kept.
const MOST_CHARACTERS: usize = 1000;

fn beginning(text: &str) -> String {
    text.chars().take(MOST_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn read_into(reader: &mut EventReader, events: &mut Vec<String>, bytes: &[u8]) -> Result<()> {
        reader.read(bytes, |data| events.push(String::from_utf8(data.to_vec()).unwrap()))
    }

    /// The data of the events of a stream that comes in pieces of these lengths, again and again.
    fn events(stream: &[u8], lengths: &[usize]) -> Vec<String> {
        let (mut reader, mut events, mut rest) = (EventReader::new(), Vec::new(), stream);
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let piece;
            (piece, rest) = rest.split_at(rest.len().min(*length));
            read_into(&mut reader, &mut events, piece).unwrap();
        }
        reader.end().unwrap();
        events
    }

    /// Fields, comments and events, with `\n` for the end of each line.
    const STREAM: &str = "\u{feff}data: {\"größer\":1}\n\n: a comment\n\n\ndata:{\"n\":2,\ndata: \"m\":3}\nid: 7\n\n\
                          event: error\nretry:5\ndatabase: x\ndat\n\ndata\n\ndata:  two\n\n:\n:data: 4\n";
    const EVENTS: [&str; 4] = ["{\"größer\":1}", "{\"n\":2,\n\"m\":3}", "", " two"];

    #[test]
    fn events_are_read_whatever_ends_their_lines_and_whatever_pieces_they_come_in() {
        let mut random = StdRng::seed_from_u64(11);
        for end in ["\n", "\r", "\r\n"] {
            let stream = STREAM.replace('\n', end);
            for length in 1..=stream.len() {
                assert_eq!(events(stream.as_bytes(), &[length]), EVENTS, "{end:?} {length}");
            }
            for _ in 0..500 {
                let lengths: Vec<usize> = (0..9).map(|_| random.random_range(1..40)).collect();
                assert_eq!(events(stream.as_bytes(), &lengths), EVENTS, "{end:?} {lengths:?}");
            }
        }
    }

    #[test]
    fn lines_may_end_differently_in_one_stream() {
        let stream = b"data: 1\r\n\ndata: 2\n\r\ndata: 3\r\rdata: 4\r\n\r\n\r\ndata: 5\n\n";
        for length in 1..=stream.len() {
            assert_eq!(events(stream, &[length]), ["1", "2", "3", "4", "5"], "{length}");
        }
    }

    #[test]
    fn an_event_is_there_as_soon_as_its_empty_line_is() {
        for end in ["\n\n", "\r\r", "\r\n\r"] {
            let (mut reader, mut events) = (EventReader::new(), Vec::new());
            read_into(&mut reader, &mut events, format!("data: 1{end}").as_bytes()).unwrap();
            assert_eq!(events, ["1"], "{end:?}");
        }
    }

    #[test]
    fn a_stream_that_ends_inside_of_an_event_is_an_error() {
        for (stream, is_inside) in
            [("", false), (": c\n", false), ("data: 1\n\n", false), ("data: 1\n", true), ("data: 1", true)]
        {
            let mut reader = EventReader::new();
            reader.read(stream.as_bytes(), |_| {}).unwrap();
            assert_eq!(reader.end().is_err(), is_inside, "{stream:?}");
        }
    }

    #[test]
    fn lines_and_events_have_a_bound() {
        let read = |stream: String| {
            let mut reader = EventReader { most: 10, ..EventReader::new() };
            stream.as_bytes().chunks(4).try_for_each(|piece| reader.read(piece, |_| {}))
        };
        assert!(read("data:12345\n\n".repeat(3)).is_ok());
        let error = read("data:123456\n\n".into()).unwrap_err().to_string();
        assert_eq!(error, "an event of the answer has a line of over 10 bytes");
        assert!(read(":comment 10".into()).is_err());
        assert!(read("data:1234\ndata:1234\n\n".into()).is_ok());
        let error = read("data:1234\ndata:12345\n\n".into()).unwrap_err().to_string();
        assert_eq!(error, "an event of the answer has over 10 bytes");
    }

    #[test]
    fn an_event_is_a_response_or_an_error() {
        for (event, error) in [
            (r#"{"model_name":"m","OUT":[1,2]}"#, None),
            (r#"{}"#, None),
            (r#"{"error":"no such input"}"#, Some("no such input")),
            (r#" {"code":3,"error":{"text":"t"}}"#, Some(r#"{"text":"t"}"#)),
            (r#"{"error":0.5,"model_name":"m"}"#, None),
            (r#"{"error":null}"#, None),
            ("[1,2]", Some("an event is not a JSON object: [1,2]")),
            ("[DONE]", Some("an event is not a JSON object: [DONE]")),
            ("", Some("an event is not a JSON object: ")),
        ] {
            assert_eq!(event_error(event.as_bytes()).as_deref(), error, "{event}");
        }
        let broken = event_error(br#"{"OUT":[1,}"#).unwrap();
        assert!(broken.starts_with("an event is not a JSON object: expected value"), "{broken}");
        let long = format!(r#"{{"error":"{}"}}"#, "ä".repeat(5000));
        assert_eq!(event_error(long.as_bytes()).unwrap(), "ä".repeat(1000));
    }
}
