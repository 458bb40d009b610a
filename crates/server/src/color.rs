//! Colours of texts for people.
use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
};

use assembly::colors::{BOLD, BOLD_CYAN, BOLD_RED, BOLD_YELLOW, PLAIN};

/// When texts have colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// On a terminal.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

impl ColorChoice {
    /// By its name on the command line.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "always" => Some(Self::Always),
            "never" => Some(Self::Never),
            _ => None,
        }
    }

    /// Whether texts for this stream have colours.
    pub fn colors(self, stream: &impl IsTerminal) -> bool {
        match self {
            Self::Auto => stream.is_terminal(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// The word for how bad something is, such as `error` or `warning:`, in its colour. Other words stay as they are.
pub fn severity(word: &str) -> Cow<'_, str> {
    let color = match word.trim_end_matches(':') {
        "error" | "Error" => BOLD_RED,
        "warning" | "Warning" => BOLD_YELLOW,
        "note" => BOLD_CYAN,
        "Usage" => BOLD,
        _ => return Cow::Borrowed(word),
    };
    Cow::Owned(format!("{color}{word}{PLAIN}"))
}

/// A part of a line that a reader looks for: how bad something is in its colour, and other parts bold.
pub fn emphasis(part: &str) -> String {
    match severity(part) {
        Cow::Borrowed(part) => format!("{BOLD}{part}{PLAIN}"),
        Cow::Owned(colored) => colored,
    }
}

/// A text with colours for the words that begin its lines with a colon, and for headings.
pub fn lines(text: &str) -> String {
    text.split_inclusive('\n').map(line).collect()
}

fn line(line: &str) -> Cow<'_, str> {
    match line.split_once(": ") {
        Some((word, rest)) if !word.contains(' ') => {
            Cow::Owned(format!("{} {rest}", severity(&format!("{word}:"))))
        }
        None if is_heading(line) => Cow::Owned(format!("{BOLD}{}{PLAIN}\n", line.trim_end())),
        Some(_) | None => Cow::Borrowed(line),
    }
}

/// Whether a line, with its newline, tells what the lines below it are.
fn is_heading(line: &str) -> bool {
    line.ends_with(":\n") && line.starts_with(char::is_alphabetic)
}

/// A stream for lines of text, which gives them their colours.
pub struct ColoredLines<W: Write> {
    stream: W,
    /// `false`: everything passes as it is.
    is_on: bool,
    /// The begin of a line.
    begun: Vec<u8>,
}

impl<W: Write> ColoredLines<W> {
    /// `is_on` says whether there are colours.
    pub fn new(stream: W, is_on: bool) -> Self {
        Self { stream, is_on, begun: Vec::new() }
    }

    fn write_begun(&mut self) -> io::Result<()> {
        let begun = std::mem::take(&mut self.begun);
        match str::from_utf8(&begun) {
            Ok(text) => self.stream.write_all(line(text).as_bytes()),
            Err(_) => self.stream.write_all(&begun),
        }
    }
}

impl<W: Write> Write for ColoredLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_on {
            return self.stream.write(bytes);
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.write_begun()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_begun()?;
        self.stream.flush()
    }
}

impl<W: Write> Drop for ColoredLines<W> {
    fn drop(&mut self) {
        // If the reader has closed the stream, the error does not matter.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(is_on: bool) -> String {
        let mut out = Vec::new();
        {
            let mut lines = ColoredLines::new(&mut out, is_on);
            lines.write_all(b"error").unwrap();
            lines.write_all(b": no: way\nUsage: x\n").unwrap();
            lines.write_all(b"  note: indented\nWarning: ab\xff\nWarning: c").unwrap();
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn the_first_word_of_a_line_has_its_colour() {
        let plain = "error: no: way\nUsage: x\n  note: indented\nWarning: ab\u{fffd}\nWarning: c";
        assert_eq!(written(false), plain);
        assert_eq!(
            written(true),
            "\x1b[1;31merror:\x1b[0m no: way\n\x1b[1mUsage:\x1b[0m x\n  note: indented\nWarning: ab\u{fffd}\n\
             \x1b[1;33mWarning:\x1b[0m c"
        );
        assert_eq!(lines("error: a\nb: c\n"), "\x1b[1;31merror:\x1b[0m a\nb: c\n");
    }

    #[test]
    fn a_heading_is_bold() {
        let text = "Most needed:\n  x:\n{\"a\":\n:\nno:";
        assert_eq!(lines(text), "\x1b[1mMost needed:\x1b[0m\n  x:\n{\"a\":\n:\nno:");
    }

    #[test]
    fn a_part_has_the_colour_of_its_severity_or_is_bold() {
        assert_eq!(emphasis("error"), severity("error"));
        assert_eq!(emphasis("models/a"), "\x1b[1mmodels/a\x1b[0m");
    }

    #[test]
    fn a_choice_has_a_name_and_counts_more_than_the_terminal() {
        let file = std::fs::File::open("/dev/null").unwrap();
        for (name, colors) in [("auto", false), ("always", true), ("never", false)] {
            assert_eq!(ColorChoice::named(name).unwrap().colors(&file), colors, "{name}");
        }
        assert_eq!(ColorChoice::named("sometimes"), None);
    }
}
