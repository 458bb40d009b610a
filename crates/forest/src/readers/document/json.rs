//! JSON.

use std::borrow::Cow;

use crate::fault::{ForestError, malformed};
use crate::limits::MAX_NESTING;
use crate::readers::document::numbers::NumberArray;
use crate::readers::document::value::{Object, Value};

/// Reads a document, which must be all of `file`. NaN and infinities are numbers, as XGBoost writes them.
pub(in crate::readers) fn read(file: &[u8]) -> Result<Value<'_>, ForestError> {
    let mut reader = ModelJsonReader { file, at: 0 };
    let value = reader.value(0)?;
    reader.skip_space();
    if reader.at < file.len() { Err(reader.error("nothing must follow the document")) } else { Ok(value) }
}

struct ModelJsonReader<'f> {
    file: &'f [u8],
    at: usize,
}

impl<'f> ModelJsonReader<'f> {
    fn error(&self, rule: &str) -> ForestError {
        malformed(format!("byte {} of the JSON", self.at), rule)
    }

    fn peek(&self) -> Option<u8> {
        self.file.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// Takes the next byte that is not white space, if it is `byte`.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self, nesting: usize) -> Result<Value<'f>, ForestError> {
        self.skip_space();
        match self.peek() {
            Some(b'{' | b'[') if nesting >= MAX_NESTING => {
                Err(self.error(&format!("at most {MAX_NESTING} objects and arrays may be within each other")))
            }
            Some(b'{') => self.object(nesting),
            Some(b'[') => self.array(nesting),
            Some(b'"') => Ok(Value::Text(self.text()?)),
            Some(_) => self.word(),
            None => Err(self.error("a value must follow")),
        }
    }

    fn object(&mut self, nesting: usize) -> Result<Value<'f>, ForestError> {
        self.at += 1;
        let mut members = Vec::new();
        if self.take(b'}') {
            return Ok(Value::Object(Object(members)));
        }
        loop {
            self.skip_space();
            let name = self.text()?;
            if !self.take(b':') {
                return Err(self.error("a colon must follow"));
            }
            members.push((name, self.value(nesting + 1)?));
            if self.take(b'}') {
                return Ok(Value::Object(Object(members)));
            }
            if !self.take(b',') {
                return Err(self.error("a comma or a closing brace must follow"));
            }
        }
    }

    fn array(&mut self, nesting: usize) -> Result<Value<'f>, ForestError> {
        self.at += 1;
        let rest = &self.file[self.at..];
        let end = rest.iter().position(|byte| matches!(byte, b']' | b'[' | b'{' | b'"'));
        if let Some(end) = end.filter(|&end| rest[end] == b']') {
            self.at += end + 1;
            return Ok(Value::Numbers(NumberArray::Json(&rest[..end])));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value(nesting + 1)?);
            if self.take(b']') {
                return Ok(Value::Array(values));
            }
            if !self.take(b',') {
                return Err(self.error("a comma or a closing bracket must follow"));
            }
        }
    }

    fn text(&mut self) -> Result<Cow<'f, str>, ForestError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("a text must follow"));
        }
        let start = self.at + 1;
        let mut end = start;
        let mut is_plain = true;
        loop {
            match self.file.get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    is_plain = false;
                    end += 2;
                }
                Some(_) => end += 1,
                None => return Err(self.error("the text must end")),
            }
        }
        let bytes = &self.file[start..end];
        let text = std::str::from_utf8(bytes).map_err(|_| self.error("the text must be UTF-8"))?;
        let text = if is_plain { Some(Cow::Borrowed(text)) } else { unescape(text).map(Cow::Owned) };
        let text = text.ok_or_else(|| self.error("the text must have no other escapes than JSON's"))?;
        self.at = end + 1;
        Ok(text)
    }

    /// A number, a boolean or null.
    fn word(&mut self) -> Result<Value<'f>, ForestError> {
        let rest = &self.file[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let value = match &rest[..length] {
            b"null" => Value::Null,
            b"true" => Value::Bool(true),
            b"false" => Value::Bool(false),
            word => Value::Number(fast_float2::parse(word).map_err(|_| self.error("a value must follow"))?),
        };
        self.at += length;
        Ok(value)
    }
}

/// The text that JSON's escapes mean. None if there are other ones.
fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next()? {
            'b' => plain.push('\u{8}'),
            'f' => plain.push('\u{c}'),
            'n' => plain.push('\n'),
            'r' => plain.push('\r'),
            't' => plain.push('\t'),
            'u' => plain.push(code_point(&mut characters)?),
            same @ ('"' | '\\' | '/') => plain.push(same),
            _ => return None,
        }
    }
    Some(plain)
}

/// The character of `\u` and four digits, or of two such escapes.
fn code_point(characters: &mut std::str::Chars<'_>) -> Option<char> {
    let unit = |characters: &mut std::str::Chars<'_>| {
        let digits: String = characters.by_ref().take(4).collect();
        let is_unit = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_unit.then(|| u16::from_str_radix(&digits, 16).ok()).flatten()
    };
    let first = unit(characters)?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(u32::from(first));
    }
    let escape: String = characters.by_ref().take(2).collect();
    let second = if escape == "\\u" { unit(characters)? } else { return None };
    char::decode_utf16([first, second]).next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read() {
        let file = br#" {"a": [1, 2.5, NaN], "b": {"c\n\u00e9\ud83d\ude00": true},
            "d": ["x", null, -1e3], "e": []} "#;
        let value = read(file).expect("a document");
        let object = value.object("").expect("an object");
        assert_eq!(object.get("a").expect("a").reals("a").expect("numbers")[..2], [1.0, 2.5]);
        let inner = object.get("b").expect("b").object("b").expect("an object");
        assert_eq!(inner.get("c\né😀"), Some(&Value::Bool(true)));
        let list = object.get("d").expect("d").array("d").expect("an array");
        assert_eq!(list, [Value::Text("x".into()), Value::Null, Value::Number(-1000.0)]);
        assert_eq!(object.get("e").expect("e").array("e").expect("an array"), []);
    }

    #[test]
    fn broken_documents_are_refused() {
        let deep = [vec![b'['; 40], vec![b']'; 40]].concat();
        let rule = |file: &[u8]| read(file).expect_err("it is broken").to_string();
        assert_eq!(
            rule(&deep),
            "byte 32 of the JSON: at most 32 objects and arrays may be within each other"
        );
        assert_eq!(rule(b"{\"a\" 1}"), "byte 5 of the JSON: a colon must follow");
        assert_eq!(rule(b"{} x"), "byte 3 of the JSON: nothing must follow the document");
        assert_eq!(rule(b"\"\\q\""), "byte 0 of the JSON: the text must have no other escapes than JSON's");
        assert_eq!(rule(b"\"abc\\"), "byte 0 of the JSON: the text must end");
        for file in ["", "{", "[1", "[[1", "{\"a\":", "[\"a\" 2]", "\"\\ud800\"", "tru", "\"\\u12\""] {
            assert!(read(file.as_bytes()).is_err(), "{file}");
        }
    }
}
