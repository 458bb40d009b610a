//! The fingerprint of a model version: of its files, its configuration, its backend's settings and library, and the
//! server's version.
//!
//! A cached answer must not outlive the model that gave it (S-W34), but a cache may outlive the server. A counter of
//! loads would distinguish models in one process only. A hash of the contents distinguishes them in every process. A
//! model that has not changed finds its answers again: after a reload, after a restart, and those of other servers.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    hash::{BuildHasher, Hasher as _, RandomState},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use blake3::Hasher;
use config::{VersionDirectory, version_directory};
use inference::backend::Backend;

/// Different for versions whose answers may differ.
pub(crate) type Fingerprint = [u8; blake3::OUT_LEN];

/// A hash of the files of a model version, without those of its other versions.
pub(crate) struct FilesHash(Hasher);

impl FilesHash {
    /// Reads all files, before the backend reads them. If a file changes in between, the cache keeps new answers under
    /// the fingerprint of the old files. The reverse order could return old answers for the new files.
    ///
    /// If reading fails, the fingerprint is random: no other load finds the answers of this version.
    pub(crate) fn read(model_directory: &Path, version: i64) -> Self {
        Self(hashed(model_directory, version).unwrap_or_else(|error| {
            let directory = model_directory.display();
            log::warn!("responses of {directory} that were cached before are not used: {error}");
            unique()
        }))
    }

    /// Adds the library of the backend that has opened the version. `is_outdated` tells whether it has changed since then.
    /// A built-in backend has no directories; the server's version stands for it.
    pub(crate) fn with_library_of(self, backend: &dyn Backend, is_outdated: impl FnOnce() -> bool) -> Self {
        if backend.directories().is_empty() {
            return self;
        }
        self.with_library(Path::new(&backend.location()), is_outdated)
    }

    fn with_library(mut self, library: &Path, is_outdated: impl FnOnce() -> bool) -> Self {
        match hash_of(library) {
            Ok(content) if !is_outdated() => drop(self.0.update(content.as_bytes())),
            // What the backend has opened is not known any more.
            Ok(_) | Err(_) => self.0 = unique(),
        }
        self
    }

    /// The fingerprint of a version with these files.
    pub(crate) fn with(
        mut self,
        config: &proto::ModelConfig,
        settings: &BTreeMap<String, String>,
    ) -> Fingerprint {
        absorb(&mut self.0, env!("CARGO_PKG_VERSION"));
        absorb(&mut self.0, proto::json::to_json(config));
        for (key, value) in settings {
            absorb(&mut self.0, key);
            absorb(&mut self.0, value);
        }
        self.0.finalize().into()
    }
}

/// The fingerprint of an ensemble with its own fingerprint, and the versions and fingerprints of its members, one for each
/// step. `None` if one is not known.
pub(crate) fn of_ensemble(
    own: Option<Fingerprint>,
    members: impl IntoIterator<Item = (i64, Option<Fingerprint>)>,
) -> Option<Fingerprint> {
    let mut hasher = Hasher::new();
    hasher.update(&own?);
    for (version, fingerprint) in members {
        hasher.update(&version.to_le_bytes());
        hasher.update(&fingerprint?);
    }
    Some(hasher.finalize().into())
}

/// Adds bytes and their length, so that no byte can count as part of the next value.
fn absorb(hasher: &mut Hasher, bytes: impl AsRef<[u8]>) {
    let bytes = bytes.as_ref();
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

/// A fingerprint that no other version has.
pub(crate) fn unique_fingerprint() -> Fingerprint {
    unique().finalize().into()
}

fn unique() -> Hasher {
    let mut hasher = Hasher::new();
    for _ in 0..2 {
        // `RandomState` takes its keys from the system's random numbers.
        hasher.update(&RandomState::new().build_hasher().finish().to_le_bytes());
    }
    hasher
}

fn hashed(model_directory: &Path, version: i64) -> io::Result<Hasher> {
    let mut walk = Walk { root: model_directory, version, above: Vec::new(), files: BTreeSet::new() };
    walk.enter(Path::new(""))?;
    let mut hasher = Hasher::new();
    for path in walk.files {
        absorb(&mut hasher, path.as_os_str().as_encoded_bytes());
        hasher.update(hash_of(&model_directory.join(&path))?.as_bytes());
    }
    Ok(hasher)
}

fn hash_of(file: &Path) -> io::Result<blake3::Hash> {
    Ok(Hasher::new().update_reader(File::open(file)?)?.finalize())
}

/// Finds the files below the root. Follows links.
struct Walk<'a> {
    root: &'a Path,
    version: i64,
    /// The directories from the root to the current one, by device and number.
    above: Vec<(u64, u64)>,
    /// The files by their paths from the root.
    files: BTreeSet<PathBuf>,
}

impl Walk<'_> {
    fn enter(&mut self, directory: &Path) -> io::Result<()> {
        let place = self.root.join(directory);
        let metadata = fs::metadata(&place)?;
        let identity = (metadata.dev(), metadata.ino());
        if self.above.contains(&identity) {
            return Err(io::Error::other(format!("'{}' leads back to itself", place.display())));
        }
        self.above.push(identity);
        for entry in fs::read_dir(place)? {
            let path = directory.join(entry?.file_name());
            // A model cannot read a link without a target.
            let Ok(metadata) = fs::metadata(self.root.join(&path)) else { continue };
            if metadata.is_dir() && !self.is_foreign(&path) {
                self.enter(&path)?;
            } else if metadata.is_file() {
                self.files.insert(path);
            }
        }
        self.above.pop();
        Ok(())
    }

    /// Whether the directory is another version, or contains what Python compiles from its programs.
    fn is_foreign(&self, directory: &Path) -> bool {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        if name == "__pycache__" {
            return true;
        }
        let is_at_top = directory.components().count() == 1;
        is_at_top
            && matches!(version_directory(&name), VersionDirectory::Version(other) if other != self.version)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn model(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn fingerprint(root: &tempfile::TempDir) -> Fingerprint {
        FilesHash::read(root.path(), 1).with(&proto::ModelConfig::default(), &BTreeMap::new())
    }

    const USUAL: [(&str, &str); 3] = [("config.pbtxt", ""), ("1/model", "weights"), ("1/more/data", "more")];

    #[test]
    fn copies_of_a_model_have_the_same_fingerprint() {
        assert_eq!(fingerprint(&model(&USUAL)), fingerprint(&model(&USUAL)));
    }

    #[test]
    fn other_versions_and_compiled_python_files_do_not_change_the_fingerprint() {
        let before = fingerprint(&model(&USUAL));
        let more = [("2/model", "other"), ("1/__pycache__/model.pyc", "x"), ("__pycache__/y.pyc", "y")];
        assert_eq!(fingerprint(&model(&[&USUAL[..], &more].concat())), before);
    }

    #[test]
    fn every_other_change_changes_the_fingerprint() {
        let changed = [
            &[("config.pbtxt", ""), ("1/model", "WEIGHTS"), ("1/more/data", "more")][..],
            &[("config.pbtxt", ""), ("1/model", "weights"), ("1/more/date", "more")],
            &[("config.pbtxt", ""), ("1/model", "weightsmore"), ("1/more/data", "")],
            &[("config.pbtxt", "#"), ("1/model", "weights"), ("1/more/data", "more")],
            &[("config.pbtxt", ""), ("1/model", "weights")],
            &[("config.pbtxt", ""), ("1/model", "weights"), ("1/more/data", "more"), ("1/more/2/x", "")],
        ];
        let mut all: BTreeSet<_> = changed.iter().map(|files| fingerprint(&model(files))).collect();
        let usual = model(&USUAL);
        assert!(all.insert(fingerprint(&usual)));
        let config = proto::ModelConfig { max_batch_size: 1, ..Default::default() };
        assert!(all.insert(FilesHash::read(usual.path(), 1).with(&config, &BTreeMap::new())));
        let settings = [("k".to_owned(), "v".to_owned())].into();
        assert!(all.insert(FilesHash::read(usual.path(), 1).with(&proto::ModelConfig::default(), &settings)));
        assert_eq!(all.len(), changed.len() + 3);
    }

    #[test]
    fn the_library_counts_and_one_that_has_changed_since_it_was_opened_is_like_no_other() {
        let root = model(&[USUAL[0], USUAL[1], ("1/other", "weights"), ("1/third", "other")]);
        let with = |library: &str, is_outdated: bool| {
            let files = FilesHash::read(root.path(), 1);
            let files = files.with_library(&root.path().join("1").join(library), || is_outdated);
            files.with(&proto::ModelConfig::default(), &BTreeMap::new())
        };
        assert_eq!(with("model", false), with("other", false), "what counts is its content");
        assert!(with("model", false) != with("third", false) && with("model", false) != fingerprint(&root));
        assert_ne!(with("model", true), with("model", true));
        assert_ne!(with("gone", false), with("gone", false));
    }

    #[test]
    fn the_fingerprint_of_an_ensemble_tells_its_members_apart() {
        let ensembles = [
            (1, vec![(1, 2), (1, 3)]),
            (2, vec![(1, 2), (1, 3)]),
            (1, vec![(1, 3), (1, 2)]),
            (1, vec![(1, 2), (2, 3)]),
            (1, vec![(1, 2)]),
        ];
        let made = |own: u8, members: &[(i64, u8)]| {
            of_ensemble(Some([own; 32]), members.iter().map(|&(version, byte)| (version, Some([byte; 32]))))
        };
        let all: BTreeSet<_> = ensembles.iter().map(|(own, members)| made(*own, members)).collect();
        assert_eq!(all.len(), ensembles.len());
        assert!(!all.contains(&None));
        assert_eq!(of_ensemble(Some([1; 32]), [(1, Some([2; 32])), (1, None)]), None);
        assert_eq!(of_ensemble(None, [(1, Some([2; 32]))]), None);
    }

    #[test]
    fn links_count_as_their_targets() {
        let linked =
            model(&[("config.pbtxt", ""), ("1/more/data", "more"), ("__pycache__/store", "weights")]);
        symlink("../__pycache__/store", linked.path().join("1/model")).unwrap();
        symlink("nowhere", linked.path().join("1/dangling")).unwrap();
        assert_eq!(fingerprint(&linked), fingerprint(&model(&USUAL)));
    }

    #[test]
    fn unreadable_files_have_a_different_fingerprint_each_time() {
        let endless = model(&USUAL);
        symlink("..", endless.path().join("1/up")).unwrap();
        assert_ne!(fingerprint(&endless), fingerprint(&endless));
    }
}
