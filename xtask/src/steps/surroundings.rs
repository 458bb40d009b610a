//! What a run of tests must leave as it was: the repository, and the system's shared memory.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process::tree;
use crate::{process, workspace};

/// Where clients and servers share memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// The files that are there, where no test may leave one.
pub(super) struct Surroundings {
    files: BTreeSet<String>,
}

impl Surroundings {
    /// # Errors
    /// The root is not a repository.
    pub(super) fn now() -> Result<Surroundings> {
        let mut untracked = Command::new("git");
        untracked.args(["ls-files", "--others", "--exclude-standard"]).current_dir(workspace::root());
        let mut files: BTreeSet<String> =
            process::output(&mut untracked)?.lines().map(str::to_owned).collect();
        // A system without this directory has no files there.
        for entry in fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten() {
            files.insert(entry.path().display().to_string());
        }
        Ok(Surroundings { files })
    }

    /// The files that are new since `before`. What a process still uses belongs to a program that runs beside: those of the
    /// run have ended.
    pub(super) fn new_since<'a>(&'a self, before: &'a Surroundings) -> impl Iterator<Item = &'a str> {
        let new = self.files.difference(&before.files).map(String::as_str);
        new.filter(|file| !file.starts_with(SHARED_MEMORY) || !tree::is_used(Path::new(file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_files_are_told() {
        let of =
            |files: &[&str]| Surroundings { files: files.iter().map(|file| (*file).to_owned()).collect() };
        let (before, after) = (of(&["a", "b"]), of(&["b", "c"]));
        assert_eq!(after.new_since(&before).collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn a_file_in_shared_memory_is_seen() {
        let before = Surroundings::now().unwrap();
        let file = tempfile::NamedTempFile::new_in(SHARED_MEMORY).unwrap();
        let after = Surroundings::now().unwrap();
        let path = file.path().display().to_string();
        let is_told = || after.new_since(&before).any(|new| new == path);
        assert!(!is_told(), "this process has opened it");
        let _removed = file.into_temp_path();
        assert!(is_told());
    }
}
