//! The files of a model at one moment, as far as they tell whether the model has changed.
use std::collections::BTreeMap;

/// What is known of a file without reading it. Any difference counts as a change (M-W4).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileStamp {
    /// The path below the model's directory, with `/` between its parts.
    pub path: Box<str>,
    /// The size in bytes.
    pub byte_size: u64,
    /// When the content and the file itself were changed, in nanoseconds since 1970.
    pub changed_ns: [i64; 2],
    /// The file's number in its file system; 0 if there is none.
    pub inode: u64,
    /// The tag that an object store has given to the content; empty if there is none.
    pub tag: Box<str>,
}

/// What tells whether entries of a repository's directory have come or gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryStamp {
    /// When its entries and the directory itself were changed, in nanoseconds since 1970.
    pub changed_ns: [i64; 2],
    /// The directory's number in its file system.
    pub inode: u64,
}

/// The files of a model, by what depends on them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelFiles {
    /// The configuration.
    config: Vec<FileStamp>,
    /// What all versions use: labels, initial states, libraries.
    shared: Vec<FileStamp>,
    /// The files of each version. A version without files is there, too.
    versions: BTreeMap<i64, Vec<FileStamp>>,
}

impl ModelFiles {
    /// Sorts stamps by what depends on them. `config` is the path of the configuration below the model's directory, and
    /// `versions` lists the version directories.
    pub fn new(mut stamps: Vec<FileStamp>, config: &str, versions: impl IntoIterator<Item = i64>) -> Self {
        stamps.sort();
        let mut files = Self::default();
        files.versions.extend(versions.into_iter().map(|version| (version, Vec::new())));
        for stamp in stamps {
            let top = stamp.path.split('/').next().unwrap_or_default();
            let version = top.parse().ok().and_then(|version: i64| files.versions.get_mut(&version));
            match version {
                Some(version) => version.push(stamp),
                None if *stamp.path == *config => files.config.push(stamp),
                None => files.shared.push(stamp),
            }
        }
        files
    }

    /// The versions, ascending.
    pub fn versions(&self) -> Vec<i64> {
        self.versions.keys().copied().collect()
    }

    /// The bytes of the files that a load of these versions may read.
    pub fn byte_size(&self, versions: &[i64]) -> u64 {
        let of_versions = versions.iter().filter_map(|version| self.versions.get(version)).flatten();
        self.shared.iter().chain(of_versions).map(|file| file.byte_size).sum()
    }

    /// Whether there is a directory of this version.
    pub fn has_version(&self, version: i64) -> bool {
        self.versions.contains_key(&version)
    }

    /// Whether a copy of this version, made from these files, is as good as one made from the other files; the
    /// configuration is not compared.
    pub fn same_version(&self, other: &Self, version: i64) -> bool {
        self.shared == other.shared && self.versions.get(&version) == other.versions.get(&version)
    }
}

/// Whether a file or directory of this name is written by editors, by Python or by file systems on their own (M-W2,
/// M-W3). Such files are no change of a model.
pub fn is_by_product(name: &str) -> bool {
    let swap = || {
        let ending = name.rsplit_once('.').map(|(_, ending)| ending);
        name.starts_with('.') && ending.is_some_and(|ending| ending.len() == 3 && ending.starts_with("sw"))
    };
    matches!(name, "__pycache__" | "4913" | ".DS_Store")
        || name.ends_with('~')
        || name.ends_with(".tmp")
        || name.ends_with(".pyc")
        || name.starts_with(".#")
        || name.starts_with(".nfs")
        || name.len() > 1 && name.starts_with('#') && name.ends_with('#')
        || swap()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(path: &str, byte_size: u64) -> FileStamp {
        FileStamp { path: path.into(), byte_size, changed_ns: [0; 2], inode: 1, tag: "".into() }
    }

    fn files(stamps: &[(&str, u64)]) -> ModelFiles {
        let stamps = stamps.iter().map(|(path, size)| stamp(path, *size)).collect();
        ModelFiles::new(stamps, "config.pbtxt", [1, 2])
    }

    #[test]
    fn a_version_depends_on_its_own_files_and_on_those_of_the_model() {
        let before = files(&[("config.pbtxt", 1), ("labels.txt", 1), ("1/model", 1), ("2/model", 1)]);
        let other_version = files(&[("config.pbtxt", 1), ("labels.txt", 1), ("1/model", 1), ("2/model", 2)]);
        assert!(other_version.same_version(&before, 1) && !other_version.same_version(&before, 2));
        let deleted_labels = files(&[("config.pbtxt", 1), ("1/model", 1), ("2/model", 1)]);
        assert!(!deleted_labels.same_version(&before, 1) && !deleted_labels.same_version(&before, 2));
        let config = files(&[("config.pbtxt", 2), ("labels.txt", 1), ("1/model", 1), ("2/model", 1)]);
        assert!(config.same_version(&before, 1) && config != before);
    }

    #[test]
    fn what_editors_and_python_write_is_no_change() {
        for name in ["__pycache__", "a.pyc", ".model.py.swp", "x~", "#x#", ".#x", "4913", ".nfs01", "m.tmp"] {
            assert!(is_by_product(name), "{name}");
        }
        for name in ["model.py", "model.onnx", ".hidden", "swp", "#", "tmp", "1"] {
            assert!(!is_by_product(name), "{name}");
        }
    }
}
