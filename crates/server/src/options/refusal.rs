//! The text of a refused command line: the error, what the operator may have meant, and how to get help, in this order.

use std::fmt;

use crate::error_line;

/// How a server is started, and a command.
pub(super) const CALLS: &str = "\
Usage: nereid [option]... <repository|model.onnx>...
       nereid <command> [argument]...
";

/// Why the server cannot start with this command line. Its display is the whole text for stderr, without the last
/// newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOption {
    frame: Frame,
    /// Advice for the operator.
    advice: Option<String>,
    text: String,
}

/// The first line of the refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Frame {
    /// Names the wrong option: `Bad option: "--<name>".`
    Option(String),
    /// No first line: the error concerns several options.
    Plain,
    /// Every option is valid, but a server cannot be built from them.
    Build,
}

impl BadOption {
    pub(super) fn framed(option: impl Into<String>, text: impl Into<String>) -> Self {
        Self { frame: Frame::Option(option.into()), advice: None, text: text.into() }
    }

    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { frame: Frame::Plain, advice: None, text: text.into() }
    }

    pub(super) fn build(text: impl Into<String>) -> Self {
        Self { frame: Frame::Build, advice: None, text: text.into() }
    }

    /// The refusal of a variable of the environment.
    pub(super) fn in_variable(name: &str, text: &str) -> Self {
        Self::plain(format!("environment variable {name}: {text}"))
    }

    /// The same refusal with a line of advice.
    pub(super) fn advising(self, advice: Option<String>) -> Self {
        Self { advice, ..self }
    }
}

impl BadOption {
    /// The reason alone, without the option, the advice and the usage.
    pub fn reason(&self) -> &str {
        &self.text
    }

    /// The reason with the option and the advice, for a command that has a usage of its own.
    pub fn explained(&self) -> String {
        let mut text = match &self.frame {
            Frame::Option(name) if name.starts_with('-') => format!("Bad option: \"{name}\".\n"),
            Frame::Option(name) => format!("Bad option: \"--{name}\".\n"),
            Frame::Plain => String::new(),
            Frame::Build => "Failed to build the server's options:\n".to_owned(),
        };
        text.push_str(&self.text);
        if let Some(advice) = &self.advice {
            text.push('\n');
            text.push_str(advice);
        }
        text
    }
}

impl fmt::Display for BadOption {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&error_line(&self.explained()))?;
        match self.frame {
            Frame::Build => Ok(()),
            Frame::Option(_) | Frame::Plain => {
                write!(out, "\n\n{CALLS}\nFor more information, try 'nereid --help'.")
            }
        }
    }
}

impl std::error::Error for BadOption {}
