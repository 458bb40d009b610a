//! Names and other short texts that both C callers and Rust code read.
use std::{
    borrow::Borrow,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::{Arc, LazyLock},
};

use crate::Error;

/// The longest name that the server stores for a client, in bytes: that of a model, or of a region of shared memory.
pub const MAX_STORED_NAME: usize = 1024;

/// Checks the length of a text. `what` names the text in the error.
///
/// # Errors
/// INVALID_ARG if it has more than `most` bytes.
#[inline]
pub fn check_length(what: &str, text: &str, most: usize) -> Result<(), Error> {
    if text.len() <= most { Ok(()) } else { Err(too_long(what, text.len(), most)) }
}

#[cold]
fn too_long(what: &str, length: usize, most: usize) -> Error {
    Error::invalid(format!("{what} has {length} bytes, and at most {most} are allowed"))
}

static EMPTY: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("\0"));

/// An immutable text that is cheap to clone and ends with a NUL.
///
/// A plug-in can read the text in place because of the NUL. Rust code sees a `&str` without it. Invariant: the stored
/// text ends with its only NUL. [`Name::new`] cuts a text with an inner NUL at that NUL, as every C reader in Triton
/// does.
#[derive(Clone)]
pub struct Name(Arc<str>);

impl Name {
    /// Copies `text` up to its first NUL.
    pub fn new(text: &str) -> Self {
        let text = text.split('\0').next().unwrap_or_default();
        if text.is_empty() {
            return Self(EMPTY.clone());
        }
        let mut stored = String::with_capacity(text.len() + 1);
        stored.push_str(text);
        stored.push('\0');
        Self(stored.into())
    }

    /// The text without its NUL.
    pub fn as_str(&self) -> &str {
        &self.0[..self.0.len() - 1]
    }

    /// The text with its NUL, for readers without the length.
    pub fn with_nul(&self) -> &str {
        &self.0
    }
}

impl Default for Name {
    fn default() -> Self {
        Self(EMPTY.clone())
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

// Hashes as `str` does, so that maps with `Name` keys accept a `&str` for lookups.
impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::{Name, check_length};

    #[test]
    fn a_text_of_the_greatest_length_is_not_too_long() {
        assert_eq!(check_length("the id", "abc", 3), Ok(()));
        let error = check_length("the id", "abcd", 3).unwrap_err();
        assert_eq!(error.message, "the id has 4 bytes, and at most 3 are allowed");
    }

    #[test]
    fn a_text_ends_at_its_first_nul() {
        assert_eq!(Name::new("ab\0cd").as_str(), "ab");
        assert_eq!(Name::new("\0").with_nul(), "\0");
        assert_eq!(Name::new("ab").with_nul(), "ab\0");
    }

    #[test]
    fn a_map_is_asked_with_a_plain_text() {
        let map = std::collections::HashMap::from([(Name::new("simple"), 1)]);
        assert_eq!(map.get("simple"), Some(&1));
    }
}
