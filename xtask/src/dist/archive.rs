//! An archive that needs no installation: unpack it and start `bin/nereid`. It brings ONNX Runtime.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::contents::PackageContents;
use crate::files::{copy, file_name, make_empty};
use crate::process;

/// Makes `nereid-VERSION-x86_64-linux.tar.gz`.
pub(super) fn make(contents: &PackageContents, folder: &Path) -> Result<PathBuf> {
    let name = format!("nereid-{}-{}-linux", contents.version, std::env::consts::ARCH);
    let files = folder.join("tar");
    make_empty(&files)?;
    let tree = files.join(&name);
    contents.copy_server(&tree.join("bin"))?;
    copy(&contents.library, &tree.join("lib/libtritonserver.so"))?;
    // Beside the program, where it looks first.
    copy(&contents.onnxruntime, &tree.join("lib").join(file_name(&contents.onnxruntime)))?;
    copy(&contents.header, &tree.join("include/nereid.h"))?;
    contents.copy_licences(&tree.join("share/doc/nereid"))?;
    contents.write_help(&tree.join("share"))?;
    pack(&files, &name, folder.join(format!("{name}.tar.gz")))
}

/// Packs a folder of `files` into an archive, and returns the archive. The same files make the same archive.
///
/// # Errors
/// There is no `tar`, or a file cannot be read or written.
pub(super) fn pack(files: &Path, name: &str, archive: PathBuf) -> Result<PathBuf> {
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--gzip",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
    ]);
    tar.arg("--mode=u=rwX,go=rX").arg("--file").arg(&archive);
    process::run(tar.arg("--directory").arg(files).arg(name))?;
    Ok(archive)
}
