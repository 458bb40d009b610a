//! An archive that needs no installation: unpack it and start `bin/nereid`. It brings ONNX Runtime.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::contents::PackageContents;
use super::{copy, make_empty, write};
use crate::process;

/// Makes `nereid-VERSION-x86_64-linux.tar.gz`.
pub(super) fn make(contents: &PackageContents, folder: &Path) -> Result<PathBuf> {
    let name = format!("nereid-{}-{}-linux", contents.version, std::env::consts::ARCH);
    let files = folder.join("tar");
    make_empty(&files)?;
    let tree = files.join(&name);
    copy(&contents.server, &tree.join("bin/nereid"))?;
    copy(&contents.library, &tree.join("lib/libtritonserver.so"))?;
    // Beside the program, where it looks first.
    copy(&contents.onnxruntime, &tree.join("lib").join(file_name(&contents.onnxruntime)))?;
    copy(&contents.header, &tree.join("include/nereid.h"))?;
    copy_licences(contents, &tree.join("share/doc/nereid"))?;
    write_help(contents, &tree.join("share"))?;
    let archive = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    // The same files make the same archive.
    tar.args([
        "--create",
        "--gzip",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
    ]);
    process::run(tar.arg("--file").arg(&archive).arg("--directory").arg(&files).arg(&name))?;
    Ok(archive)
}

/// Copies the licences and the list of the parts.
pub(super) fn copy_licences(contents: &PackageContents, to: &Path) -> Result<()> {
    for file in [&contents.licence, &contents.notices, &contents.sbom] {
        copy(file, &to.join(file_name(file)))?;
    }
    for file in &contents.onnxruntime_licences {
        copy(file, &to.join("onnxruntime").join(file_name(file)))?;
    }
    Ok(())
}

/// Writes the manual page and the completions for shells, which the server prints.
pub(super) fn write_help(contents: &PackageContents, share: &Path) -> Result<()> {
    for (words, place) in [
        (&["man"][..], "man/man1/nereid.1"),
        (&["completions", "bash"], "bash-completion/completions/nereid"),
        (&["completions", "zsh"], "zsh/vendor-completions/_nereid"),
        (&["completions", "fish"], "fish/vendor_completions.d/nereid.fish"),
    ] {
        write(&share.join(place), &process::output(Command::new(&contents.server).args(words))?)?;
    }
    Ok(())
}

pub(super) fn file_name(path: &Path) -> &Path {
    Path::new(path.file_name().unwrap_or_default())
}
