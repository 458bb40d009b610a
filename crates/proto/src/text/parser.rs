//! Converts tokens into a message, as the descriptor of the message defines.

use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value,
};

use super::fault::{MistakeKind, TextFault};
use super::lexer::{Lexer, Token};
use super::scalar;
use crate::descriptors::{key_text, model_config, rival};
use crate::suggest::{did_you_mean, unknown_field, unknown_value, wrapped_value};
use crate::{Fields, Parsed, TextPosition};

/// Mistakes that are described. Further ones are counted.
const MOST_FAULTS: usize = 100;

/// Misspelt names whose values are read as those of the fields that were probably meant. The values of further ones are
/// skipped: before each guess, what has been read so far is copied.
const MOST_GUESSES: usize = 20;

/// Reads a whole configuration. Returns what could be read, and the faults in the order of the source, up to the first
/// after which the parser cannot go on.
pub(super) fn parse(source: &str) -> (Parsed, Vec<TextFault>) {
    let mut lexer = Lexer::new(source);
    let (token, at, line) = match lexer.next() {
        Ok(first) => first,
        Err(fault) => return (Parsed::default(), vec![fault]),
    };
    let mut parser = Parser {
        lexer,
        token,
        at,
        line,
        path: String::new(),
        fields: Fields::default(),
        open: Vec::new(),
        faults: Vec::new(),
        further: None,
        guesses: 0,
    };
    let mut message = DynamicMessage::new(model_config());
    let end = parser.fields_until(None, &mut message);
    let mut faults = parser.faults;
    if let Some(FurtherFaults { at, count }) = parser.further {
        let noun = if count == 1 { "mistake" } else { "mistakes" };
        faults.push(TextFault::new(at, format!("and {count} more {noun} from here on")));
    }
    faults.extend(end.err());
    match message.transcode_to() {
        Ok(config) => (Parsed { config, fields: parser.fields }, faults),
        Err(error) => {
            faults.push(TextFault::new(0, error.to_string()));
            (Parsed::default(), faults)
        }
    }
}

/// A message whose end the parser has not reached.
struct OpenMessage {
    message: MessageDescriptor,
    /// The field that contains the message.
    field: String,
    line: usize,
}

/// Mistakes that are counted only.
#[derive(Clone, Copy)]
struct FurtherFaults {
    /// The byte offset of the first of them.
    at: usize,
    count: usize,
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token, and the position where it begins.
    token: Token<'a>,
    at: usize,
    line: usize,
    /// The parser's position in the configuration, in the form of [`Fields`].
    path: String,
    fields: Fields,
    open: Vec<OpenMessage>,
    /// Mistakes after which the parser has continued, so that it can report all of them at once.
    faults: Vec<TextFault>,
    /// `None` if all are in `faults`.
    further: Option<FurtherFaults>,
    /// Misspelt names whose values were read.
    guesses: usize,
}

/// The fields of one message that the parser has read so far, with their lines.
type Seen = Vec<(u32, usize)>;

impl<'a> Parser<'a> {
    fn advance(&mut self) -> Result<Token<'a>, TextFault> {
        let (next, at, line) = self.lexer.next()?;
        (self.at, self.line) = (at, line);
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn skip(&mut self, symbol: char) -> Result<bool, TextFault> {
        let found = self.token == Token::Symbol(symbol);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expected<T>(&self, what: &str) -> Result<T, TextFault> {
        Err(TextFault::new(self.at, format!("expected {what}, found {}", self.token)))
    }

    /// Records a mistake after which the parser continues.
    fn record(&mut self, fault: TextFault) {
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(fault);
            return;
        }
        self.further.get_or_insert(FurtherFaults { at: fault.at, count: 0 }).count += 1;
    }

    fn note(&mut self) {
        let position = TextPosition { line: self.line, column: self.lexer.column() };
        self.fields.note(&self.path, Some(position));
    }

    /// Reads fields up to the closing symbol, or to the end of the source if there is no closing symbol.
    fn fields_until(&mut self, close: Option<char>, message: &mut DynamicMessage) -> Result<(), TextFault> {
        let mut seen = Seen::new();
        loop {
            match (self.token, close) {
                (Token::End, None) => return Ok(()),
                (Token::Symbol(symbol), Some(close)) if symbol == close => {
                    self.advance()?;
                    return Ok(());
                }
                (Token::Identifier(name), _) => self.field(name, message, &mut seen)?,
                (_, Some(close)) => return self.expected(&self.unclosed(close)),
                (Token::Symbol('}' | '>' | ']'), None) => {
                    return Err(TextFault::new(self.at, format!("{} closes nothing", self.token)));
                }
                (_, None) => return self.expected("the name of a field"),
            }
        }
    }

    fn unclosed(&self, close: char) -> String {
        let opened = self.open.last();
        let opened = opened.map(|open| format!(" to close '{}' of line {}", open.field, open.line));
        format!("the name of a field or '{close}'{}", opened.unwrap_or_default())
    }

    /// Reads a field with all its values and the separator after it.
    fn field(&mut self, name: &str, message: &mut DynamicMessage, seen: &mut Seen) -> Result<(), TextFault> {
        let descriptor = message.descriptor();
        match descriptor.get_field_by_name(name) {
            Some(field) => {
                if let Some(fault) = self.second(&field, message, seen) {
                    self.record(fault);
                }
                self.known_field(&field, message, seen)
            }
            None => self.unknown_field(name, message, seen),
        }
    }

    fn known_field(
        &mut self,
        field: &FieldDescriptor,
        message: &mut DynamicMessage,
        seen: &mut Seen,
    ) -> Result<(), TextFault> {
        let name = field.name();
        seen.push((field.number(), self.line));
        let parent = self.path.len();
        if parent > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        self.note();
        self.advance()?;

        let colon = self.skip(':')?;
        let is_message = matches!(field.kind(), Kind::Message(_));
        if !colon && !is_message {
            return self.expected(&format!("':' after '{name}'"));
        }
        if self.token == Token::Symbol('[') {
            self.list(field, message)?;
        } else {
            self.one_value(field, message)?;
        }
        self.path.truncate(parent);
        let _separated = self.skip(';')? || self.skip(',')?;
        Ok(())
    }

    /// Records a field that `message` does not have. Reads its value as that of the field that was probably meant, or
    /// skips the value.
    ///
    /// If an enclosing message has a field with that name, a brace is missing. Then the parser cannot judge the rest
    /// of the source.
    fn unknown_field(
        &mut self,
        name: &str,
        message: &mut DynamicMessage,
        seen: &mut Seen,
    ) -> Result<(), TextFault> {
        let (root, descriptor) = (model_config(), message.descriptor());
        let outer = self.open.iter().rev().skip(1).map(|open| &open.message).chain([&root]);
        let owner =
            outer.filter(|outer| **outer != descriptor).find(|outer| outer.get_field_by_name(name).is_some());
        if let (Some(owner), Some(OpenMessage { field, line, .. })) = (owner, self.open.last()) {
            let why = format!(
                "'{name}' is not a field of {} but of {}: is the end of '{field}' of line {line} missing?",
                descriptor.name(),
                owner.name()
            );
            return Err(TextFault::new(self.at, why).of_kind(MistakeKind::UnknownField));
        }
        let (why, suggestion) = unknown_field(name, &descriptor);
        let meant = suggestion.as_deref().and_then(|name| descriptor.get_field_by_name(name));
        let fault = TextFault::new(self.at, why).of_kind(MistakeKind::UnknownField);
        self.record(TextFault { suggestion, ..fault });
        match meant {
            Some(meant)
                if self.second(&meant, message, seen).is_none() && self.try_field(&meant, message, seen) =>
            {
                Ok(())
            }
            Some(_) | None => {
                self.advance()?;
                let colon = self.skip(':')?;
                self.skip_value(colon)?;
                let _separated = self.skip(';')? || self.skip(',')?;
                Ok(())
            }
        }
    }

    /// Reads a field whose name is misspelt. Goes back if the value does not fit: then the guess was wrong. Returns false
    /// at once if there were many guesses.
    fn try_field(&mut self, meant: &FieldDescriptor, message: &mut DynamicMessage, seen: &mut Seen) -> bool {
        if self.guesses == MOST_GUESSES {
            return false;
        }
        self.guesses += 1;
        let (lexer, token, at, line) = (self.lexer, self.token, self.at, self.line);
        let (path, open, faults, fields) =
            (self.path.len(), self.open.len(), self.faults.len(), self.fields.clone());
        let (before, noted) = (message.clone(), seen.len());
        let read = self.known_field(meant, message, seen);
        let is_name =
            |fault: &TextFault| matches!(fault.kind, MistakeKind::UnknownField | MistakeKind::UnknownValue);
        if read.is_ok() && self.faults[faults..].iter().all(is_name) {
            return true;
        }
        (self.lexer, self.token, self.at, self.line) = (lexer, token, at, line);
        self.path.truncate(path);
        self.open.truncate(open);
        self.faults.truncate(faults);
        self.fields = fields;
        *message = before;
        seen.truncate(noted);
        false
    }

    /// Skips a value of any kind. Without a colon only a message or a list can be a value.
    fn skip_value(&mut self, colon: bool) -> Result<(), TextFault> {
        match self.token {
            Token::Symbol('{' | '<' | '[') => {}
            Token::Text(_) if colon => {
                while matches!(self.token, Token::Text(_)) {
                    self.advance()?;
                }
                return Ok(());
            }
            Token::Symbol('-') | Token::Identifier(_) | Token::Integer(_) | Token::Float(_) if colon => {
                self.skip('-')?;
                return self.advance().map(drop);
            }
            _ => return Ok(()),
        }
        let mut depth = 0_usize;
        loop {
            match self.token {
                Token::Symbol('{' | '<' | '[') => depth += 1,
                Token::Symbol('}' | '>' | ']') => depth -= 1,
                Token::End => return self.expected("the end of a value"),
                _ => {}
            }
            self.advance()?;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// The fault of a field that is set twice, or together with one that it excludes.
    ///
    /// As protobuf: a scalar that was given its default counts as not set, so that it may be given again.
    fn second(&self, field: &FieldDescriptor, message: &DynamicMessage, seen: &Seen) -> Option<TextFault> {
        let line_of = |number| seen.iter().rev().find(|(other, _)| *other == number).map(|(_, line)| *line);
        let name = field.name();
        if field.is_list() || field.is_map() {
            return None;
        }
        let is_set = field.supports_presence() || message.has_field(field);
        let why = if let Some(line) = line_of(field.number()).filter(|_| is_set) {
            format!("'{name}' is already set on line {line}")
        } else {
            let (choice, other) = rival(field, |other| line_of(other.number()).is_some())?;
            let line = line_of(other.number()).unwrap_or_default();
            let choice = choice.name().replace('_', " ");
            format!("'{name}' excludes '{}' of line {line}: only one {choice} may be set", other.name())
        };
        Some(TextFault::new(self.at, why).of_kind(MistakeKind::Repeated))
    }

    fn list(&mut self, field: &FieldDescriptor, message: &mut DynamicMessage) -> Result<(), TextFault> {
        if !field.is_list() && !field.is_map() {
            return Err(TextFault::new(self.at, format!("'{}' takes one value, not a list", field.name())));
        }
        self.advance()?;
        if self.skip(']')? {
            return Ok(());
        }
        loop {
            self.one_value(field, message)?;
            if self.skip(']')? {
                return Ok(());
            }
            if !self.skip(',')? {
                return self.expected(&format!("',' or ']' in the list '{}'", field.name()));
            }
            if self.token == Token::Symbol(']') {
                let why = format!("the list '{}' may not end in a comma", field.name());
                return Err(TextFault::new(self.at, why));
            }
        }
    }

    /// Reads one value, and sets the field to it or appends it.
    fn one_value(&mut self, field: &FieldDescriptor, message: &mut DynamicMessage) -> Result<(), TextFault> {
        let length = self.path.len();
        let begin = TextPosition { line: self.line, column: self.lexer.column() };
        if field.is_list() || field.is_map() {
            let position = match &*message.get_field(field) {
                Value::List(list) => list.len(),
                Value::Map(map) => map.len(),
                _ => 0,
            };
            self.path.push_str(&format!("[{position}]"));
            self.note();
        }
        let value = match field.kind() {
            Kind::Message(inner) => Value::Message(self.message(field.name(), &inner)?),
            kind => match self.scalar(field.name(), &kind) {
                Ok(value) => value,
                Err(fault) => {
                    self.path.truncate(length);
                    return self.skip_wrong_value(fault);
                }
            },
        };
        self.path.truncate(length);
        if field.is_map() {
            let (key, value) = entry(&value);
            if let (Some(key), Some(map)) = (key, message.get_field_mut(field).as_map_mut()) {
                self.fields.note(&format!("{}.{}", self.path, key_text(&key)), Some(begin));
                map.insert(key, value);
            }
        } else if let Some(list) = message.get_field_mut(field).as_list_mut() {
            list.push(value);
        } else {
            message.set_field(field, value);
        }
        Ok(())
    }

    /// Records a value that its field cannot have, and skips it.
    ///
    /// # Errors
    /// The fault, if the value may be missing: then the parser cannot tell how the source goes on.
    fn skip_wrong_value(&mut self, fault: TextFault) -> Result<(), TextFault> {
        let fault = fault.of_kind(MistakeKind::WrongValue);
        match self.token {
            Token::Text(_) | Token::Integer(_) | Token::Float(_) => {
                self.record(fault);
                self.skip_value(true)
            }
            Token::Identifier(_) => {
                let mut ahead = self.lexer;
                let begins_field =
                    matches!(ahead.next(), Ok((Token::Symbol(':' | '{' | '<' | '['), ..)) | Err(_));
                if begins_field {
                    return Err(fault);
                }
                self.record(fault);
                self.advance().map(drop)
            }
            Token::Symbol(_) | Token::End => Err(fault),
        }
    }

    fn message(&mut self, field: &str, descriptor: &MessageDescriptor) -> Result<DynamicMessage, TextFault> {
        let close = match self.token {
            Token::Symbol('{') => '}',
            Token::Symbol('<') => '>',
            _ => return Err(self.no_message(field, descriptor)),
        };
        self.open.push(OpenMessage { message: descriptor.clone(), field: field.to_owned(), line: self.line });
        self.advance()?;
        let mut message = DynamicMessage::new(descriptor.clone());
        self.fields_until(Some(close), &mut message)?;
        self.open.pop();
        Ok(message)
    }

    /// The fault of a value that is no message.
    fn no_message(&self, field: &str, descriptor: &MessageDescriptor) -> TextFault {
        let value = self.lexer.between(self.at, self.lexer.offset());
        let suggestion = wrapped_value(field, value, descriptor);
        let meant = did_you_mean(suggestion.as_ref());
        let why = format!("expected '{{' after '{field}', found {}{meant}", self.token);
        TextFault { suggestion, ..TextFault::new(self.at, why) }
    }

    fn scalar(&mut self, field: &str, kind: &Kind) -> Result<Value, TextFault> {
        match kind {
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                self.whole(field, "a 32-bit integer").map(Value::I32)
            }
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                self.whole(field, "a 64-bit integer").map(Value::I64)
            }
            Kind::Uint32 | Kind::Fixed32 => {
                self.whole(field, "a 32-bit integer that is not negative").map(Value::U32)
            }
            Kind::Uint64 | Kind::Fixed64 => {
                self.whole(field, "a 64-bit integer that is not negative").map(Value::U64)
            }
            Kind::Float => self.float(field).map(|value| {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "a float field keeps what a float can hold"
                )]
                Value::F32(value as f32)
            }),
            Kind::Double => self.float(field).map(Value::F64),
            Kind::Bool => self.boolean(field).map(Value::Bool),
            Kind::Enum(values) => self.named(field, values).map(Value::EnumNumber),
            Kind::String => {
                let at = self.at;
                let text = String::from_utf8(self.text(field)?);
                text.map(Value::String)
                    .map_err(|_| TextFault::new(at, format!("'{field}' is not valid UTF-8")))
            }
            Kind::Bytes => self.text(field).map(|bytes| Value::Bytes(bytes.into())),
            Kind::Message(_) => self.expected("a single value"),
        }
    }

    fn whole<T: TryFrom<i128>>(&mut self, field: &str, what: &str) -> Result<T, TextFault> {
        let at = self.at;
        let negative = self.skip('-')?;
        let Token::Integer(word) = self.token else { return self.expected(&format!("{what} for '{field}'")) };
        let magnitude = scalar::integer(word).map(i128::from);
        let value = magnitude.map(|value| if negative { -value } else { value });
        let Some(value) = value.and_then(|value| T::try_from(value).ok()) else {
            let sign = if negative { "-" } else { "" };
            return Err(TextFault::new(at, format!("expected {what} for '{field}', found '{sign}{word}'")));
        };
        self.advance()?;
        Ok(value)
    }

    fn float(&mut self, field: &str) -> Result<f64, TextFault> {
        let sign = if self.skip('-')? { -1.0 } else { 1.0 };
        let value = match self.token {
            // As Triton: hexadecimal and octal numbers are integers only.
            Token::Integer(word) if word.len() == 1 || !word.starts_with('0') => word.parse().ok(),
            Token::Float(word) => word.parse().ok(),
            Token::Identifier(word) => match word.to_ascii_lowercase().as_str() {
                "inf" | "infinity" => Some(f64::INFINITY),
                "nan" => Some(f64::NAN),
                _ => None,
            },
            _ => None,
        };
        let Some(value) = value else { return self.expected(&format!("a number for '{field}'")) };
        self.advance()?;
        Ok(sign * value)
    }

    fn boolean(&mut self, field: &str) -> Result<bool, TextFault> {
        let value = match self.token {
            Token::Identifier("true" | "True" | "t") => Some(true),
            Token::Identifier("false" | "False" | "f") => Some(false),
            Token::Integer(word) => match scalar::integer(word) {
                Some(1) => Some(true),
                Some(0) => Some(false),
                _ => None,
            },
            _ => None,
        };
        let Some(value) = value else { return self.expected(&format!("true or false for '{field}'")) };
        self.advance()?;
        Ok(value)
    }

    fn named(&mut self, field: &str, values: &EnumDescriptor) -> Result<i32, TextFault> {
        let Token::Identifier(name) = self.token else {
            // As protobuf: a number of an open enumeration needs no name.
            let what = format!("a value of {}", values.name());
            return self.whole(field, &what);
        };
        let mut value = values.get_value_by_name(name);
        if value.is_none() {
            let (why, suggestion) = unknown_value(name, values);
            value = suggestion.as_deref().and_then(|meant| values.get_value_by_name(meant));
            let fault = TextFault::new(self.at, why).of_kind(MistakeKind::UnknownValue);
            self.record(TextFault { suggestion, ..fault });
        }
        self.advance()?;
        Ok(value.map_or(0, |value| value.number()))
    }

    /// Reads one string literal, or several adjacent ones.
    fn text(&mut self, field: &str) -> Result<Vec<u8>, TextFault> {
        let mut bytes = Vec::new();
        if !matches!(self.token, Token::Text(_)) {
            return self.expected(&format!("a string in quotes for '{field}'"));
        }
        while let Token::Text(raw) = self.token {
            let start = self.at + 1;
            scalar::unescape(raw, &mut bytes).map_err(|(offset, why)| TextFault::new(start + offset, why))?;
            self.advance()?;
        }
        Ok(bytes)
    }
}

/// Key and value of a map entry. A part that the source omits has its default.
fn entry(entry: &Value) -> (Option<MapKey>, Value) {
    let Some(entry) = entry.as_message() else { return (None, Value::Bool(false)) };
    let descriptor = entry.descriptor();
    let key = entry.get_field(&descriptor.map_entry_key_field()).into_owned().into_map_key();
    (key, entry.get_field(&descriptor.map_entry_value_field()).into_owned())
}
