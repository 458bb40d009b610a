//! The keys of a file, by their digests.
use std::collections::HashMap;

use subtle::ConstantTimeEq;

use super::{digest::KeyDigest, pattern::NamePattern};
use crate::access::Category;

/// The content of the file.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    /// The keys, by the first bytes of their digests. Whoever guesses keys does not control the digests of the guesses,
    /// so the time of this look-up tells nothing.
    keys: HashMap<[u8; 4], Vec<ApiKey>>,
    /// What clients without a key may use.
    pub(super) anonymous: KeyScope,
}

/// A key.
#[derive(Debug)]
pub(super) struct ApiKey {
    pub(super) name: String,
    pub(super) digest: KeyDigest,
    pub(super) scope: KeyScope,
}

/// What a client may use.
#[derive(Debug, Default)]
pub(super) struct KeyScope {
    /// By the number of the category.
    pub(super) categories: [bool; Category::ALL.len()],
    pub(super) models: Vec<NamePattern>,
}

impl KeyTable {
    pub(super) fn find(&self, digest: &KeyDigest) -> Option<&ApiKey> {
        let candidates = self.keys.get(&first_bytes(digest))?;
        candidates.iter().find(|key| key.digest.ct_eq(digest).into())
    }

    pub(super) fn add(&mut self, key: ApiKey) {
        self.keys.entry(first_bytes(&key.digest)).or_default().push(key);
    }
}

fn first_bytes(digest: &KeyDigest) -> [u8; 4] {
    [digest[0], digest[1], digest[2], digest[3]]
}

impl KeyScope {
    pub(super) fn permits(&self, category: Category) -> bool {
        self.categories[category as usize]
    }

    pub(super) fn permits_model(&self, name: &str) -> bool {
        self.models.iter().any(|pattern| pattern.matches(name))
    }

    /// Whether it permits all models, also those that come later.
    pub(super) fn permits_all_models(&self) -> bool {
        self.models.iter().any(NamePattern::is_any)
    }
}
