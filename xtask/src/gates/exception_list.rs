//! Lists of what breaks a rule today. Each may only become shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where the lists are, relative to the repository.
const FOLDER: &str = "xtask/src/gates";

/// What a run of the gates does with lists, figures and tables that are longer or older than the sources need.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upkeep {
    /// Reports them.
    Report,
    /// Shortens and renews them.
    Write,
}

/// One list: an entry on each line. Lines that begin with `#` say what they are.
pub(super) struct ExceptionList {
    path: PathBuf,
    text: String,
    upkeep: Upkeep,
}

impl ExceptionList {
    /// Reads the list with this file name.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(root: &Path, name: &str, upkeep: Upkeep) -> Result<Self> {
        let path = root.join(FOLDER).join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { path, text, upkeep })
    }

    pub(super) fn has(&self, entry: &str) -> bool {
        self.text.lines().any(|line| line == entry)
    }

    /// The messages of the violations that the list does not have, and one for each entry that no violation needs.
    /// `found`: the entry of each violation, and its message.
    ///
    /// # Errors
    /// A shorter list cannot be written.
    pub(super) fn compare(&self, found: &BTreeMap<String, String>) -> Result<Vec<String>> {
        let new = found.iter().filter(|(entry, _)| !self.has(entry)).map(|(_, message)| message.clone());
        let mut broken: Vec<String> = new.collect();
        broken.extend(self.unneeded(&found.keys().map(String::as_str).collect())?);
        Ok(broken)
    }

    /// A message for each entry that is not in `needed`. If the lists are to be written: none, and the entries go.
    ///
    /// # Errors
    /// The shorter list cannot be written.
    pub(super) fn unneeded(&self, needed: &BTreeSet<&str>) -> Result<Vec<String>> {
        let is_needed = |line: &&str| line.is_empty() || line.starts_with('#') || needed.contains(line);
        let unneeded = self.text.lines().filter(|line| !is_needed(line));
        if self.upkeep == Upkeep::Report {
            let name = self.path.file_name().unwrap_or_default().to_string_lossy();
            return Ok(unneeded
                .map(|entry| {
                    format!(
                        "'{entry}' breaks no rule any more: remove its line from {FOLDER}/{name} \
                         (or all such lines: cargo xtask gates --write)"
                    )
                })
                .collect());
        }
        if unneeded.count() > 0 {
            let kept: String = self.text.lines().filter(is_needed).flat_map(|line| [line, "\n"]).collect();
            fs::write(&self.path, kept).with_context(|| format!("cannot write {}", self.path.display()))?;
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
impl ExceptionList {
    /// A list that is not in a file.
    pub(super) fn of(text: &str) -> Self {
        Self { path: PathBuf::from("list.txt"), text: text.to_owned(), upkeep: Upkeep::Report }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(entries: &[&str]) -> BTreeMap<String, String> {
        entries.iter().map(|entry| ((*entry).to_owned(), format!("{entry} is wrong"))).collect()
    }

    #[test]
    fn new_violations_and_unneeded_entries_are_reported() {
        let list = ExceptionList::of("# Wrong today.\na\nb\n");
        assert!(list.compare(&found(&["a", "b"])).unwrap().is_empty());
        assert_eq!(list.compare(&found(&["a", "b", "c"])).unwrap(), ["c is wrong"]);
        let broken = list.compare(&found(&["a"])).unwrap();
        assert_eq!(broken.len(), 1);
        assert!(broken[0].starts_with("'b' breaks no rule any more"), "{broken:?}");
    }

    #[test]
    fn entries_that_nothing_needs_can_be_removed_at_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(FOLDER).join("list.txt");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "# Wrong today.\na\nb\nc\n").unwrap();
        let list = ExceptionList::read(root.path(), "list.txt", Upkeep::Write).unwrap();
        assert_eq!(list.compare(&found(&["b", "d"])).unwrap(), ["d is wrong"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "# Wrong today.\nb\n");
    }
}
