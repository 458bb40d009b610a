//! A refused command line, worded as it leaves the program.

use std::fmt;

const HINT: &str =
    "Usage: nereid --model-repository=<path> [option]...   ('nereid --help' lists every option)";

/// Why the server cannot start with this command line. Its display is the whole text for stderr, without the
/// last newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOption {
    frame: Frame,
    text: String,
}

/// What stands before the text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Frame {
    /// The option at fault: `Bad option: "--<name>".`
    Option(String),
    /// Nothing: the fault lies between options.
    Plain,
    /// Every option was read, but they do not make a server.
    Build,
}

impl BadOption {
    pub(super) fn framed(option: impl Into<String>, text: impl Into<String>) -> Self {
        Self { frame: Frame::Option(option.into()), text: text.into() }
    }

    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { frame: Frame::Plain, text: text.into() }
    }

    pub(super) fn build(text: impl Into<String>) -> Self {
        Self { frame: Frame::Build, text: text.into() }
    }

    /// The option does something that this version of the server does not do.
    pub(super) fn unsupported(option: &str, what_it_would_do: &str) -> Self {
        Self::framed(
            option,
            format!("'{option}' is not supported by this version of nereid: {what_it_would_do}"),
        )
    }
}

impl fmt::Display for BadOption {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.frame {
            Frame::Option(name) if name.starts_with('-') => {
                write!(out, "{HINT}\nBad option: \"{name}\".\n{}", self.text)
            }
            Frame::Option(name) => write!(out, "{HINT}\nBad option: \"--{name}\".\n{}", self.text),
            Frame::Plain => write!(out, "{HINT}\n{}", self.text),
            Frame::Build => write!(out, "Failed to build Triton option:\n{}", self.text),
        }
    }
}

impl std::error::Error for BadOption {}
