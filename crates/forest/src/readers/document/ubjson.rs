//! UBJSON (draft 12), as XGBoost writes it: texts and lengths have typed lengths, arrays of numbers have one type.

use std::borrow::Cow;

use crate::fault::{ForestError, malformed};
use crate::limits::MAX_NESTING;
use crate::readers::document::numbers::{NumberArray, NumberType};
use crate::readers::document::value::{Object, Value};

/// Reads a document, which must be all of `file`.
pub(in crate::readers) fn read(file: &[u8]) -> Result<Value<'_>, ForestError> {
    let mut reader = UbjsonReader { file, at: 0 };
    let marker = reader.marker()?;
    let value = reader.value(marker, 0)?;
    if reader.at < file.len() { Err(reader.error("nothing must follow the document")) } else { Ok(value) }
}

struct UbjsonReader<'f> {
    file: &'f [u8],
    at: usize,
}

/// What stands before the elements of an array or object, if anything does.
#[derive(Default)]
struct Heading {
    /// The marker that all elements have in common.
    marker: Option<u8>,
    count: Option<usize>,
}

impl<'f> UbjsonReader<'f> {
    fn error(&self, rule: &str) -> ForestError {
        malformed(format!("byte {} of the UBJSON", self.at), rule)
    }

    fn take(&mut self, length: usize) -> Result<&'f [u8], ForestError> {
        let rest = self.file.get(self.at..).unwrap_or_default();
        let bytes = rest.get(..length).ok_or_else(|| self.error("the file must not end here"))?;
        self.at += length;
        Ok(bytes)
    }

    /// The next byte that is not a no-op.
    fn marker(&mut self) -> Result<u8, ForestError> {
        loop {
            match self.take(1)? {
                [b'N'] => {}
                bytes => return Ok(bytes[0]),
            }
        }
    }

    /// Takes the next marker, if it is `marker`.
    fn take_marker(&mut self, marker: u8) -> bool {
        let is_next = self.file.get(self.at) == Some(&marker);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self, marker: u8, nesting: usize) -> Result<Value<'f>, ForestError> {
        match marker {
            b'{' | b'[' if nesting >= MAX_NESTING => {
                Err(self.error(&format!("at most {MAX_NESTING} objects and arrays may be within each other")))
            }
            b'{' => self.object(nesting),
            b'[' => self.array(nesting),
            b'S' => Ok(Value::Text(self.text()?)),
            b'C' => Ok(Value::Text(self.characters(1)?)),
            b'Z' => Ok(Value::Null),
            b'T' => Ok(Value::Bool(true)),
            b'F' => Ok(Value::Bool(false)),
            _ => match NumberType::of_marker(marker) {
                Some(kind) => Ok(Value::Number(kind.number(self.take(kind.size())?))),
                None => Err(self.error("the byte before must be a marker of UBJSON")),
            },
        }
    }

    /// A length: a typed whole number.
    fn length(&mut self) -> Result<usize, ForestError> {
        let marker = self.marker()?;
        let kind = NumberType::of_marker(marker);
        let Some(kind) = kind.filter(|kind| !matches!(kind, NumberType::Float32 | NumberType::Float64))
        else {
            return Err(self.error("a length must be a whole number"));
        };
        let length = kind.integer(self.take(kind.size())?);
        length
            .and_then(|length| usize::try_from(length).ok())
            .ok_or_else(|| self.error("a length must not be negative"))
    }

    fn text(&mut self) -> Result<Cow<'f, str>, ForestError> {
        let length = self.length()?;
        self.characters(length)
    }

    fn characters(&mut self, length: usize) -> Result<Cow<'f, str>, ForestError> {
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.error("the text before must be UTF-8"))?;
        Ok(Cow::Borrowed(text))
    }

    fn heading(&mut self) -> Result<Heading, ForestError> {
        let mut heading = Heading::default();
        if self.take_marker(b'$') {
            heading.marker = Some(self.marker()?);
        }
        if self.take_marker(b'#') {
            heading.count = Some(self.length()?);
        } else if heading.marker.is_some() {
            return Err(self.error("a count must follow a type"));
        }
        Ok(heading)
    }

    fn array(&mut self, nesting: usize) -> Result<Value<'f>, ForestError> {
        let heading = self.heading()?;
        if let (Some(marker), Some(count)) = (heading.marker, heading.count) {
            // Elements without bytes could be any number of them.
            let kind = NumberType::of_marker(marker);
            let kind = kind.ok_or_else(|| self.error("an array of one type must have numbers"))?;
            let length =
                count.checked_mul(kind.size()).ok_or_else(|| self.error("the count must fit the file"))?;
            return Ok(Value::Numbers(NumberArray::Typed(kind, self.take(length)?)));
        }
        let mut values = Vec::new();
        while heading.count.is_none_or(|count| values.len() < count) {
            let marker = self.marker()?;
            if marker == b']' && heading.count.is_none() {
                break;
            }
            values.push(self.value(marker, nesting + 1)?);
        }
        Ok(Value::Array(values))
    }

    fn object(&mut self, nesting: usize) -> Result<Value<'f>, ForestError> {
        let heading = self.heading()?;
        if heading.marker.is_some() {
            return Err(self.error("an object must not have one type"));
        }
        let mut members = Vec::new();
        while heading.count.is_none_or(|count| members.len() < count) {
            if heading.count.is_none() && self.take_marker(b'}') {
                break;
            }
            let name = self.text()?;
            let marker = self.marker()?;
            members.push((name, self.value(marker, nesting + 1)?));
        }
        Ok(Value::Object(Object(members)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read() {
        let file = b"{i\x01a[$d#i\x02\x3f\x80\0\0\x40\0\0\0L\0\0\0\0\0\0\0\x01bSi\x03xyzi\x01c[TFU\x07]i\x01d[#i\x01Z}";
        let value = read(file).expect("a document");
        let object = value.object("").expect("an object");
        assert_eq!(object.get("a").expect("a").reals("a").expect("numbers"), [1.0, 2.0]);
        assert_eq!(object.get("b").expect("b").text("b").expect("a text"), "xyz");
        assert_eq!(object.get("c").expect("c").integers("c").expect("numbers"), [1, 0, 7]);
        assert_eq!(object.get("d"), Some(&Value::Array(vec![Value::Null])));
        for length in 0..file.len() {
            assert!(read(&file[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn broken_documents_are_refused() {
        let rule = |file: &[u8]| read(file).expect_err("it is broken").to_string();
        assert_eq!(
            rule(&[b'['; 40]),
            "byte 33 of the UBJSON: at most 32 objects and arrays may be within each other"
        );
        assert_eq!(
            rule(b"[$Z#L\x7f\xff\xff\xff\xff\xff\xff\xff"),
            "byte 13 of the UBJSON: an array of one type must have numbers"
        );
        assert_eq!(
            rule(b"[$D#L\x7f\xff\xff\xff\xff\xff\xff\xff"),
            "byte 13 of the UBJSON: the count must fit the file"
        );
        assert_eq!(
            rule(b"SL\xff\xff\xff\xff\xff\xff\xff\xff"),
            "byte 10 of the UBJSON: a length must not be negative"
        );
        assert_eq!(
            rule(b"SL\x7f\xff\xff\xff\xff\xff\xff\xff"),
            "byte 10 of the UBJSON: the file must not end here"
        );
        assert_eq!(rule(b"Q"), "byte 1 of the UBJSON: the byte before must be a marker of UBJSON");
        assert_eq!(rule(b"ZZ"), "byte 1 of the UBJSON: nothing must follow the document");
    }
}
