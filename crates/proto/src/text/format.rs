//! Formats the text form of a configuration. Comments, order and blank lines stay; indents, separators and quotation
//! marks become uniform.
use super::{cursor::TokenCursor, fault::TextFault, lexer::Token};

/// The longest line that a list or a message may have which stands on one line.
const WIDTH: usize = 80;

const INDENT: &str = "  ";

/// Formats a source that the parser accepts.
pub(super) fn format(source: &str) -> Result<String, TextFault> {
    let mut reader = TreeReader { tokens: TokenCursor::new(source)? };
    let body = reader.body(None)?;
    let mut text = String::new();
    write_body(&mut text, &body, 0);
    Ok(text)
}

/// Comments and blank lines before an item.
#[derive(Default)]
struct ItemLead<'a> {
    comments: Vec<SourceComment<'a>>,
    /// A blank line comes before the item itself.
    blank: bool,
}

struct SourceComment<'a> {
    text: &'a str,
    /// A blank line comes before the comment.
    blank: bool,
}

/// A field, or an element of a list.
struct SourceItem<'a> {
    lead: ItemLead<'a>,
    /// `None` for an element of a list.
    name: Option<&'a str>,
    value: FormattedValue<'a>,
    /// A comment on the last line of the item.
    trail: Option<&'a str>,
}

enum FormattedValue<'a> {
    Scalar(String),
    Message(ItemBody<'a>),
    List(ItemBody<'a>),
}

/// The items between braces or brackets.
struct ItemBody<'a> {
    items: Vec<SourceItem<'a>>,
    /// The comment behind the opening brace.
    opening: Option<&'a str>,
    /// Comments before the closing brace.
    end: Vec<SourceComment<'a>>,
    /// The source has the whole body on one line.
    on_one_line: bool,
}

impl ItemBody<'_> {
    fn has_comments(&self) -> bool {
        self.opening.is_some() || !self.end.is_empty() || self.items.iter().any(SourceItem::has_comments)
    }
}

impl SourceItem<'_> {
    fn has_comments(&self) -> bool {
        self.trail.is_some()
            || !self.lead.comments.is_empty()
            || match &self.value {
                FormattedValue::Scalar(_) => false,
                FormattedValue::Message(body) | FormattedValue::List(body) => body.has_comments(),
            }
    }
}

struct TreeReader<'a> {
    tokens: TokenCursor<'a>,
}

impl<'a> TreeReader<'a> {
    /// The comment that follows the last token on its line, and what comes before the present token.
    fn between(&self) -> (Option<&'a str>, ItemLead<'a>) {
        let gap = &self.tokens.source[self.tokens.before..self.tokens.at];
        let (mut trail, mut lead, mut blank) = (None, ItemLead::default(), false);
        let last = gap.matches('\n').count();
        for (position, line) in gap.split('\n').enumerate() {
            let line = line.trim();
            let is_last = position == last;
            match line.strip_prefix('#') {
                Some(_) if position == 0 && self.tokens.before > 0 => trail = Some(line),
                Some(_) => {
                    lead.comments.push(SourceComment { text: line, blank });
                    blank = false;
                }
                None if position > 0 && !is_last => blank = true,
                None => {}
            }
        }
        lead.blank = blank;
        (trail, lead)
    }

    /// Reads up to the closing symbol, which is not skipped, or to the end of the source.
    fn body(&mut self, close: Option<char>) -> Result<ItemBody<'a>, TextFault> {
        let begin = self.tokens.before;
        let (mut opening, mut lead) = self.between();
        if close.is_none() {
            opening = None;
        }
        let mut items: Vec<SourceItem<'a>> = Vec::new();
        loop {
            let is_end = match close {
                None => self.tokens.token == Token::End,
                Some(close) => self.tokens.is_any(&[close]) || self.tokens.token == Token::End,
            };
            if is_end {
                let on_one_line = !self.tokens.source[begin..self.tokens.at].contains('\n');
                return Ok(ItemBody { items, opening, end: lead.comments, on_one_line });
            }
            let mut item = if close == Some(']') { self.element(lead)? } else { self.field(lead)? };
            (item.trail, lead) = self.between();
            if self.tokens.is_any(&[',', ';']) {
                self.tokens.advance()?;
                self.after_separator(&mut item, &mut lead);
            }
            items.push(item);
        }
    }

    /// Adds what comes after a separator to what comes between the item and the separator. Only one comment can be on the
    /// line of the item. Further ones come before the next item, in their order.
    fn after_separator(&self, item: &mut SourceItem<'a>, lead: &mut ItemLead<'a>) {
        let (beside, after) = self.between();
        if item.trail.is_none() && lead.comments.is_empty() {
            item.trail = beside;
        } else if let Some(text) = beside {
            lead.comments.push(SourceComment { text, blank: false });
        }
        lead.comments.extend(after.comments);
        lead.blank = after.blank;
    }

    /// Takes the comments before the present token, which is inside an item, to the comments before the item.
    fn stray(&self, lead: &mut ItemLead<'a>) {
        let (trail, between) = self.between();
        lead.comments.extend(trail.map(|text| SourceComment { text, blank: false }));
        lead.comments.extend(between.comments);
    }

    fn field(&mut self, mut lead: ItemLead<'a>) -> Result<SourceItem<'a>, TextFault> {
        let name = &self.tokens.source[self.tokens.at..self.tokens.end];
        self.tokens.advance()?;
        self.stray(&mut lead);
        if self.tokens.is_any(&[':']) {
            self.tokens.advance()?;
            self.stray(&mut lead);
        }
        let value = self.value(&mut lead)?;
        Ok(SourceItem { lead, name: Some(name), value, trail: None })
    }

    fn element(&mut self, mut lead: ItemLead<'a>) -> Result<SourceItem<'a>, TextFault> {
        let value = self.value(&mut lead)?;
        Ok(SourceItem { lead, name: None, value, trail: None })
    }

    fn value(&mut self, lead: &mut ItemLead<'a>) -> Result<FormattedValue<'a>, TextFault> {
        let close = match self.tokens.token {
            Token::Symbol('{') => '}',
            Token::Symbol('<') => '>',
            Token::Symbol('[') => ']',
            _ => return self.scalar(lead).map(FormattedValue::Scalar),
        };
        self.tokens.advance()?;
        let body = self.body(Some(close))?;
        self.tokens.advance()?;
        Ok(if close == ']' { FormattedValue::List(body) } else { FormattedValue::Message(body) })
    }

    fn scalar(&mut self, lead: &mut ItemLead<'a>) -> Result<String, TextFault> {
        let mut text = String::new();
        if self.tokens.is_any(&['-']) {
            text.push('-');
            self.tokens.advance()?;
            self.stray(lead);
        }
        while matches!(self.tokens.token, Token::Text(_)) {
            if !text.is_empty() {
                self.stray(lead);
                text.push(' ');
            }
            text.push_str(&quoted(&self.tokens.source[self.tokens.at..self.tokens.end]));
            self.tokens.advance()?;
        }
        if text.is_empty() || text == "-" {
            text.push_str(&self.tokens.source[self.tokens.at..self.tokens.end]);
            self.tokens.advance()?;
        }
        Ok(text)
    }
}

/// A string in double quotation marks, if that needs no other escapes.
fn quoted(literal: &str) -> String {
    let inside = literal.get(1..literal.len().saturating_sub(1)).unwrap_or_default();
    if literal.starts_with('\'') && !inside.contains(['"', '\\']) {
        format!("\"{inside}\"")
    } else {
        literal.to_owned()
    }
}

fn write_body(text: &mut String, body: &ItemBody<'_>, depth: usize) {
    for (position, item) in body.items.iter().enumerate() {
        write_lead(text, &item.lead, depth, position == 0);
        write_item(text, item, depth);
        let is_element = item.name.is_none();
        if is_element && position + 1 < body.items.len() {
            text.push(',');
        }
        if let Some(trail) = item.trail {
            text.push_str("  ");
            text.push_str(trail);
        }
        text.push('\n');
    }
    write_comments(text, &body.end, depth, body.items.is_empty());
}

fn write_lead(text: &mut String, lead: &ItemLead<'_>, depth: usize, is_first: bool) {
    write_comments(text, &lead.comments, depth, is_first);
    if lead.blank && !(is_first && lead.comments.is_empty()) {
        text.push('\n');
    }
}

fn write_comments(text: &mut String, comments: &[SourceComment<'_>], depth: usize, is_first: bool) {
    for (position, comment) in comments.iter().enumerate() {
        if comment.blank && !(is_first && position == 0) {
            text.push('\n');
        }
        text.push_str(&INDENT.repeat(depth));
        text.push_str(comment.text);
        text.push('\n');
    }
}

fn write_item(text: &mut String, item: &SourceItem<'_>, depth: usize) {
    let indent = INDENT.repeat(depth);
    text.push_str(&indent);
    if let Some(short) = on_one_line(item).filter(|short| indent.len() + short.len() <= WIDTH) {
        text.push_str(&short);
        return;
    }
    text.push_str(item.name.unwrap_or_default());
    match &item.value {
        FormattedValue::Scalar(scalar) => {
            if item.name.is_some() {
                text.push_str(": ");
            }
            text.push_str(scalar);
        }
        FormattedValue::Message(body) | FormattedValue::List(body) => {
            let is_list = matches!(item.value, FormattedValue::List(_));
            let is_of_scalars = body.items.iter().all(|item| matches!(item.value, FormattedValue::Scalar(_)));
            if item.name.is_some() {
                text.push_str(if is_list && is_of_scalars { ": " } else { " " });
            }
            text.push(if is_list { '[' } else { '{' });
            if let Some(opening) = body.opening {
                text.push_str("  ");
                text.push_str(opening);
            }
            text.push('\n');
            write_body(text, body, depth + 1);
            text.push_str(&indent);
            text.push(if is_list { ']' } else { '}' });
        }
    }
}

/// The item on one line, if it has no comments inside, and if it is short: a scalar, a list of scalars, or a message that
/// the source has on one line.
fn on_one_line(item: &SourceItem<'_>) -> Option<String> {
    let name = item.name.unwrap_or_default();
    let (colon, value) = match &item.value {
        FormattedValue::Scalar(scalar) => (": ", scalar.clone()),
        FormattedValue::Message(body) | FormattedValue::List(body) if body.has_comments() => return None,
        FormattedValue::List(body) => {
            let scalars = body.items.iter().map(|item| match &item.value {
                FormattedValue::Scalar(scalar) => Some(scalar.as_str()),
                FormattedValue::Message(_) | FormattedValue::List(_) => None,
            });
            let scalars = scalars.collect::<Option<Vec<_>>>()?;
            (": ", if scalars.is_empty() { "[]".to_owned() } else { format!("[ {} ]", scalars.join(", ")) })
        }
        FormattedValue::Message(body) if body.items.is_empty() => (" ", "{}".to_owned()),
        FormattedValue::Message(body) if body.on_one_line => {
            let items = body.items.iter().map(on_one_line).collect::<Option<Vec<_>>>()?;
            (" ", format!("{{ {} }}", items.join(" ")))
        }
        FormattedValue::Message(_) => return None,
    };
    Some(if name.is_empty() { value } else { format!("{name}{colon}{value}") })
}
