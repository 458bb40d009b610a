//! Reads the file of API keys: JSON.
//!
//! ```json
//! {
//!   "keys": [
//!     { "name": "team-a", "sha256": "<64 hexadecimal digits>", "apis": ["inference"], "models": ["resnet*"] }
//!   ],
//!   "anonymous": { "apis": ["health"], "models": [] }
//! }
//! ```
use std::{collections::HashSet, fs, path::Path};

use serde::Deserialize;

use super::{
    digest::KeyDigest,
    pattern::NamePattern,
    table::{ApiKey, KeyScope, KeyTable},
};
use crate::access::Category;

/// The largest file, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    keys: Vec<KeyEntry>,
    #[serde(default)]
    anonymous: Option<ScopeEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    name: String,
    sha256: String,
    apis: Vec<String>,
    models: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeEntry {
    apis: Vec<String>,
    models: Vec<String>,
}

/// Reads the keys. The error is a sentence about what is wrong. It contains no value that may be a key.
pub(super) fn read(path: &Path) -> Result<KeyTable, String> {
    let len = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if len > MAX_FILE_BYTES {
        return Err(format!("it has more than {MAX_FILE_BYTES} bytes"));
    }
    parse(&fs::read(path).map_err(|error| error.to_string())?)
}

fn parse(text: &[u8]) -> Result<KeyTable, String> {
    let file: KeyFile = serde_json::from_slice(text).map_err(|error| about(&error))?;
    let mut table = KeyTable::default();
    if let Some(anonymous) = file.anonymous {
        table.anonymous =
            scope(&anonymous.apis, &anonymous.models).map_err(|why| format!("'anonymous' {why}"))?;
    }
    let (mut names, mut digests) = (HashSet::new(), HashSet::new());
    for KeyEntry { name, sha256, apis, models } in file.keys {
        let wrong = |why: String| format!("key '{name}' {why}");
        let digest = digest(&sha256)
            .ok_or_else(|| wrong("has no SHA-256 digest of 64 hexadecimal digits in 'sha256'".to_owned()))?;
        let scope = scope(&apis, &models).map_err(wrong)?;
        if name.is_empty() || !names.insert(name.clone()) {
            return Err(wrong("is not named, or its name is used twice".to_owned()));
        }
        if !digests.insert(digest) {
            return Err(wrong("has the digest of another key".to_owned()));
        }
        table.add(ApiKey { name, digest, scope });
    }
    Ok(table)
}

/// The reason of a JSON error. Only some reasons are free of values.
fn about(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let is_harmless = ["unknown field", "missing field", "duplicate field", "EOF", "expected", "trailing"];
    if is_harmless.iter().any(|harmless| text.starts_with(harmless)) {
        return text;
    }
    format!(
        "a value does not have the form of a file of keys at line {} column {}",
        error.line(),
        error.column()
    )
}

fn scope(apis: &[String], models: &[String]) -> Result<KeyScope, String> {
    let mut categories = [false; Category::ALL.len()];
    for name in apis {
        match Category::named(name) {
            Some(category) => categories[category as usize] = true,
            None if name == "*" => categories = [true; Category::ALL.len()],
            None => {
                let names: Vec<_> = Category::ALL.iter().map(|category| category.name()).collect();
                return Err(format!("names an unknown API; the APIs are {} and *", names.join(", ")));
            }
        }
    }
    Ok(KeyScope { categories, models: models.iter().map(|name| NamePattern::new(name)).collect() })
}

fn digest(text: &str) -> Option<KeyDigest> {
    let mut digest = KeyDigest::default();
    if text.len() != 2 * digest.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err()
    }

    fn with_key(key: &str) -> String {
        format!(r#"{{"keys":[{key}]}}"#)
    }

    const DIGEST: &str = "ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef0123456789";

    #[test]
    fn a_file_has_keys_with_their_scopes() {
        let key = format!(r#"{{"name":"a","sha256":"{DIGEST}","apis":["trace","logging"],"models":["m*"]}}"#);
        let table = parse(with_key(&key).as_bytes()).unwrap();
        let found = table.find(&digest(DIGEST).unwrap()).unwrap();
        assert_eq!(found.name, "a");
        let permitted = Category::ALL.map(|category| found.scope.permits(category));
        assert_eq!(permitted, [false, false, false, false, false, false, false, true, true, false]);
        assert!(found.scope.permits_model("m1") && !found.scope.permits_model("x"));
        let mut near = digest(DIGEST).unwrap();
        near[31] ^= 1;
        assert!(table.find(&near).is_none() && table.find(&[0; 32]).is_none());
        assert!(Category::ALL.iter().all(|category| !table.anonymous.permits(*category)));
    }

    #[test]
    fn a_wrong_file_is_refused_by_its_rule_and_without_its_values() {
        let scoped = |rest: &str| with_key(&format!(r#"{{"name":"a",{rest}}}"#));
        assert!(refusal("").starts_with("EOF"));
        assert!(refusal("{}").starts_with("missing field `keys`"));
        assert!(refusal(r#"{"keys":[],"more":1}"#).starts_with("unknown field `more`"));
        assert!(refusal(&scoped(r#""key":"secret""#)).starts_with("unknown field `key`"));
        assert!(
            refusal(&scoped(&format!(r#""sha256":"{DIGEST}","apis":[]"#))).contains("missing field `models`")
        );
        for (wrong, text) in [
            (r#"{"keys":"secret"}"#.to_owned(), "a value does not have the form"),
            (scoped(r#""sha256":"secret","apis":[],"models":[]"#), "has no SHA-256 digest"),
            (scoped(&format!(r#""sha256":"{DIGEST}0","apis":[],"models":[]"#)), "has no SHA-256 digest"),
            (
                scoped(&format!(r#""sha256":"{DIGEST}","apis":["secret"],"models":[]"#)),
                "names an unknown API",
            ),
            (
                scoped(&format!(r#""sha256":"{DIGEST}","apis":["secret"],"models":"secret""#)),
                "a value does not",
            ),
        ] {
            let refusal = refusal(&wrong);
            assert!(refusal.contains(text) && !refusal.contains("secret"), "{wrong}: {refusal}");
        }
        let key = |name: &str| format!(r#"{{"name":"{name}","sha256":"{DIGEST}","apis":[],"models":[]}}"#);
        assert!(refusal(&with_key(&key(""))).contains("is not named"));
        assert!(refusal(&with_key(&format!("{},{}", key("a"), key("a")))).contains("used twice"));
        assert!(refusal(&with_key(&format!("{},{}", key("a"), key("b")))).contains("digest of another key"));
    }
}
