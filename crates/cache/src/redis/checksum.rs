//! The checksum of the entries in the store: with a key it proves that a server with the same key has written an entry.
use std::{fmt, fs::File, io::Read, path::Path};

use blake3::Hasher;
use subtle::ConstantTimeEq;
use vocabulary::Error;

use super::settings::invalid;

/// Bytes of a checksum.
pub(super) const CHECKSUM_BYTES: usize = 16;
/// The least bytes of a key file. As many random bytes cannot be guessed.
const LEAST_KEY_BYTES: usize = 32;
/// The most bytes of a key file. A larger file is a mistake.
const MOST_KEY_BYTES: u64 = 64 << 10;
/// What the key is for. A change makes all keyed entries unreadable.
const CONTEXT: &str = "Nereid 2026 checksum of a response in a Redis store";

/// Makes the checksums of entries.
#[derive(Clone, Default)]
pub(super) struct EntryChecksum {
    key: Option<[u8; 32]>,
}

impl fmt::Debug for EntryChecksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.key.is_some() { "keyed" } else { "without a key" })
    }
}

impl EntryChecksum {
    /// Derives the key from the content of a file, without line ends at its end. Without a file, the checksum detects
    /// damage only. Blocks.
    ///
    /// # Errors
    /// INVALID_ARG: the file cannot be read, or has too few or too many bytes. The text names it.
    pub(super) fn load(path: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = path else { return Ok(Self::default()) };
        let refused =
            |why: String| invalid(&format!("'checksum_key_file' '{}' cannot be used: {why}", path.display()));
        let mut content = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MOST_KEY_BYTES + 1).read_to_end(&mut content))
            .map_err(|error| refused(error.to_string()))?;
        if content.len() as u64 > MOST_KEY_BYTES {
            return Err(refused(format!("it has more than {MOST_KEY_BYTES} bytes")));
        }
        let end = content.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        if end < LEAST_KEY_BYTES {
            return Err(refused(format!("it has {end} bytes, at least {LEAST_KEY_BYTES} are needed")));
        }
        Ok(Self { key: Some(blake3::derive_key(CONTEXT, &content[..end])) })
    }

    /// Whether only servers with the key can make the checksum.
    pub(super) fn is_keyed(&self) -> bool {
        self.key.is_some()
    }

    /// The checksum of parts.
    pub(super) fn of(&self, parts: &[&[u8]]) -> [u8; CHECKSUM_BYTES] {
        let mut hasher = self.key.as_ref().map_or_else(Hasher::new, Hasher::new_keyed);
        for part in parts {
            hasher.update(part);
        }
        let mut checksum = [0; CHECKSUM_BYTES];
        hasher.finalize_xof().fill(&mut checksum);
        checksum
    }

    /// Whether it is the checksum of these parts. The time does not depend on where the checksums differ.
    pub(super) fn matches(&self, checksum: &[u8], parts: &[&[u8]]) -> bool {
        self.of(parts)[..].ct_eq(checksum).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(content: &[u8]) -> Result<EntryChecksum, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, content).unwrap();
        EntryChecksum::load(Some(&path))
    }

    #[test]
    fn a_checksum_depends_on_the_key_and_not_on_the_end_of_its_line() {
        let key = [b'k'; 32];
        let checksum = |content: &[u8]| loaded(content).unwrap().of(&[b"entry"]);
        assert_eq!(checksum(&key), checksum(&[&key[..], b"\r\n"].concat()));
        assert_ne!(checksum(&key), checksum(&[&key[..], b"x"].concat()));
        assert_ne!(checksum(&key), EntryChecksum::default().of(&[b"entry"]));
        let keyed = loaded(&key).unwrap();
        assert!(
            keyed.matches(&checksum(&key), &[b"ent", b"ry"]) && !keyed.matches(&checksum(&key), &[b"other"])
        );
        assert!(!keyed.matches(&[], &[b"entry"]));
    }

    #[test]
    fn a_file_that_is_no_key_is_named_and_not_shown() {
        let text = |content: &[u8]| loaded(content).unwrap_err().to_string();
        let short = text(b"s3cret\n");
        assert!(short.contains("key' cannot be used: it has 6 bytes, at least 32 are needed"), "{short}");
        assert!(!short.contains("s3cret"));
        assert!(text(&vec![0; 65_537]).contains("it has more than 65536 bytes"));
        let missing = EntryChecksum::load(Some(Path::new("none"))).unwrap_err().to_string();
        assert!(missing.contains("'checksum_key_file' 'none' cannot be used: "), "{missing}");
    }

    #[test]
    fn the_key_is_not_in_the_debug_text() {
        assert_eq!(format!("{:?}", loaded(&[b'k'; 32]).unwrap()), "keyed");
    }
}
