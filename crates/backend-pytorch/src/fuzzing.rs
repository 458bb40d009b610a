//! The readers of files of models, as entrances for fuzzers. They exist only with the feature `fuzzing`, and are no
//! part of the interface of this crate.
use std::io;

use crate::{
    archive::PackageArchive,
    call_spec::{input_paths, output_paths},
    machine_code::{CodeHeader, InstructionSets},
    package::{ArchiveKind, CompiledPackage},
};

/// Reads an archive as a load does, up to the code, which is read and not opened.
pub fn package(bytes: &[u8]) {
    let Ok(archive) = PackageArchive::list(bytes, bytes.len() as u64) else { return };
    let ArchiveKind::Compiled(archive) = ArchiveKind::of(archive) else { return };
    let Ok(package) = CompiledPackage::of(archive) else { return };
    let _ = package.code_header().map(CodeHeader::machine);
    for value in package.metadata.values() {
        let _ = InstructionSets::of(value, |_| false);
    }
    let _ = package.copy_code(&mut io::sink());
}

/// Reads the specification of a call.
pub fn call_spec(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let _ = (input_paths(text), output_paths(text));
}
