//! What a package of AOTInductor has: machine code for one kind of processor, and what its writer says of it.
//!
//! The layout is that of torch 2.9 and later, with the names of files of older releases.
use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use rawzip::{FileReader, ReaderAt};
use vocabulary::Error;

use crate::{
    archive::{ArchiveMember, ArchiveRefusal, PackageArchive},
    machine_code::CodeHeader,
};

/// The folder of the packages of an archive.
const PACKAGES: &str = "data/aotinductor/";

/// The package that a program gets that names none.
const MODEL: &str = "data/aotinductor/model/";

/// Weights that are not in the code.
const WEIGHTS: &str = "data/weights/";

/// The member that only TorchScript has.
const TORCH_SCRIPT: &str = "constants.pkl";

/// The member that weights have.
const WEIGHTS_PICKLE: &str = "data.pkl";

/// The metadata of a package have some hundred bytes.
const MOST_METADATA_BYTES: u64 = 1 << 16;

/// What the archive of a model has.
#[derive(Debug)]
pub(crate) enum ArchiveKind<R = FileReader> {
    /// Packages of AOTInductor.
    Compiled(PackageArchive<R>),
    /// Weights without a network.
    Weights,
    /// TorchScript, an exported program, or something else.
    Other,
}

impl<R: ReaderAt> ArchiveKind<R> {
    /// Tells the kinds apart by their members.
    pub(crate) fn of(archive: PackageArchive<R>) -> Self {
        let has = |path: &str| archive.members().iter().any(|member| member.path == path);
        if has(TORCH_SCRIPT) {
            return Self::Other;
        }
        if archive.members().iter().any(|member| member.path.starts_with(PACKAGES)) {
            return Self::Compiled(archive);
        }
        if has(WEIGHTS_PICKLE) { Self::Weights } else { Self::Other }
    }
}

/// The package of an archive that a program gets by default.
#[derive(Debug)]
pub(crate) struct CompiledPackage<R = FileReader> {
    archive: PackageArchive<R>,
    code: ArchiveMember,
    /// What its writer says, by the names of PyTorch.
    pub(crate) metadata: BTreeMap<String, String>,
    /// The operators that the code calls through PyTorch's dispatcher have a description.
    pub(crate) calls_dispatcher: bool,
    /// There are weights beside the code.
    pub(crate) has_weights_beside: bool,
}

impl<R: ReaderAt> CompiledPackage<R> {
    /// Finds the parts of the package.
    ///
    /// # Errors
    /// A part is missing, is there twice, or cannot be read.
    pub(crate) fn of(archive: PackageArchive<R>) -> Result<Self, ArchiveRefusal> {
        let below = |folder| archive.members().iter().filter(move |member| member.path.starts_with(folder));
        let code = code(below(MODEL))?.clone();
        let stem = code.path.trim_end_matches(".so");
        let metadata_path = format!("{stem}_metadata.json");
        let metadata = below(MODEL).find(|member| member.path == metadata_path);
        let metadata = metadata.ok_or_else(|| missing(&metadata_path))?;
        let content = archive.read(metadata, MOST_METADATA_BYTES)?;
        let metadata = texts(&content).map_err(|error| ArchiveRefusal::Member {
            path: metadata_path,
            reason: format!("it is no JSON object of texts: {error}"),
        })?;
        let nodes = format!("{stem}.json");
        let calls_dispatcher = below(MODEL).any(|member| member.path == nodes);
        let is_weights = |member: &ArchiveMember| member.path.ends_with(".blob");
        let has_weights_beside = below(WEIGHTS).next().is_some() || below(MODEL).any(is_weights);
        Ok(Self { archive, code, metadata, calls_dispatcher, has_weights_beside })
    }

    /// The begin of the machine code.
    ///
    /// # Errors
    /// It cannot be read, or is not the begin of a shared library.
    pub(crate) fn code_header(&self) -> Result<CodeHeader, ArchiveRefusal> {
        let len = usize::try_from(self.code.size).unwrap_or(usize::MAX).min(CodeHeader::MOST_BYTES);
        let mut bytes = vec![0; len];
        self.archive.read_first(&self.code, &mut bytes)?;
        CodeHeader::of(&bytes, self.code.size).map_err(|reason| ArchiveRefusal::Member {
            path: self.code.path.clone(),
            reason: reason.to_owned(),
        })
    }

    /// Writes the machine code. Blocks.
    ///
    /// # Errors
    /// The bytes are not those that were written, or cannot be copied.
    pub(crate) fn copy_code(&self, target: &mut impl Write) -> Result<(), ArchiveRefusal> {
        self.archive.copy(&self.code, target)
    }

    /// Writes the machine code to a file of a folder, and returns its path. Blocks.
    ///
    /// # Errors
    /// The bytes are not those that were written, or the folder has no place for them.
    pub(crate) fn write_code(&self, folder: &Path) -> Result<PathBuf, ArchiveRefusal> {
        let path = folder.join("model.so");
        let failed = |error: std::io::Error| {
            ArchiveRefusal::Rule(format!("cannot be unpacked to '{}': {error}", path.display()))
        };
        let mut file = File::create_new(&path).map_err(failed)?;
        self.copy_code(&mut file)?;
        file.flush().map_err(failed)?;
        Ok(path)
    }
}

/// Tells that the archive at `path` is refused.
pub(crate) fn refused(path: &Path, refusal: &ArchiveRefusal) -> Error {
    Error::invalid(format!("the archive '{}' {refusal}", path.display()))
}

/// The library with the entry points. Other libraries beside it are none that this backend opens.
fn code<'a>(
    members: impl Iterator<Item = &'a ArchiveMember> + Clone,
) -> Result<&'a ArchiveMember, ArchiveRefusal> {
    let mut libraries = members.filter(|member| member.path.ends_with(".so"));
    let first = libraries.next().ok_or_else(|| missing(&format!("{MODEL}*.so")))?;
    match libraries.next() {
        None => Ok(first),
        Some(second) => Err(ArchiveRefusal::Rule(format!(
            "has several libraries in one package, '{}' and '{}'",
            first.path, second.path
        ))),
    }
}

fn missing(path: &str) -> ArchiveRefusal {
    ArchiveRefusal::Rule(format!("has packages of AOTInductor, but no member '{path}'"))
}

/// The texts of an object of JSON. Newer writers may add other values.
fn texts(content: &[u8]) -> serde_json::Result<BTreeMap<String, String>> {
    let values: BTreeMap<String, serde_json::Value> = serde_json::from_slice(content)?;
    let texts = values.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
    Ok(texts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_archives::{Compression, archive};

    fn package(members: &[(&str, &[u8])]) -> Result<CompiledPackage<Vec<u8>>, String> {
        let bytes = archive(members, Compression::Stored);
        let len = bytes.len() as u64;
        match ArchiveKind::of(PackageArchive::list(bytes, len).unwrap()) {
            ArchiveKind::Compiled(archive) => {
                CompiledPackage::of(archive).map_err(|refusal| refusal.to_string())
            }
            ArchiveKind::Weights => Err("weights".into()),
            ArchiveKind::Other => Err("other".into()),
        }
    }

    const CODE: &str = "m/data/aotinductor/model/c.wrapper.so";
    const METADATA: &str = "m/data/aotinductor/model/c.wrapper_metadata.json";

    #[test]
    fn a_package_is_told_from_other_archives() {
        assert_eq!(package(&[("m/data.pkl", b"")]).unwrap_err(), "weights");
        assert_eq!(package(&[("m/constants.pkl", b""), (CODE, b"")]).unwrap_err(), "other");
        assert_eq!(package(&[("m/models/model.json", b"")]).unwrap_err(), "other");
    }

    #[test]
    fn the_parts_of_a_package_are_found_by_their_names() {
        let found = package(&[
            (CODE, b"code"),
            (METADATA, br#"{"AOTI_DEVICE_KEY": "cpu", "new": 1}"#),
            ("m/data/aotinductor/other/d.so", b""),
        ]);
        let found = found.unwrap();
        assert_eq!(found.metadata, BTreeMap::from([("AOTI_DEVICE_KEY".to_owned(), "cpu".to_owned())]));
        assert!(!found.calls_dispatcher && !found.has_weights_beside);
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(std::fs::read(found.write_code(folder.path()).unwrap()).unwrap(), b"code");
        let error = found.write_code(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("cannot be unpacked to '") && error.contains("exists"), "{error}");
    }

    #[test]
    fn what_the_code_needs_beside_it_is_seen() {
        let parts = [(CODE, &b""[..]), (METADATA, b"{}")];
        let nodes = ("m/data/aotinductor/model/c.wrapper.json", &b"{}"[..]);
        assert!(package(&[parts[0], parts[1], nodes]).unwrap().calls_dispatcher);
        let weights = ("m/data/weights/weight_0", &b""[..]);
        assert!(package(&[parts[0], parts[1], weights]).unwrap().has_weights_beside);
    }

    #[test]
    fn missing_and_repeated_parts_are_told() {
        let begin = "has packages of AOTInductor, but no member 'data/aotinductor/model/";
        assert_eq!(package(&[(METADATA, b"{}")]).unwrap_err(), format!("{begin}*.so'"));
        assert_eq!(package(&[(CODE, b"")]).unwrap_err(), format!("{begin}c.wrapper_metadata.json'"));
        assert_eq!(package(&[("m/data/aotinductor/a/c.so", b"")]).unwrap_err(), format!("{begin}*.so'"));
        let second = "m/data/aotinductor/model/kernel.so";
        let error = package(&[(CODE, b""), (second, b""), (METADATA, b"{}")]).unwrap_err();
        assert!(error.starts_with("has several libraries in one package, '"), "{error}");
        let error = package(&[(CODE, b""), (METADATA, b"[]")]).unwrap_err();
        assert!(
            error.contains("c.wrapper_metadata.json', which cannot be read: it is no JSON object"),
            "{error}"
        );
    }
}
