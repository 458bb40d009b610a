//! A Debian package: the server with a user of its own, folders, and units of systemd. It brings ONNX Runtime.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::contents::PackageContents;
use crate::files::{copy, file_name, make_empty, make_executable, size, write};
use crate::{process, workspace};

/// Makes `nereid_VERSION-1_amd64.deb`.
pub(super) fn make(contents: &PackageContents, folder: &Path) -> Result<PathBuf> {
    let sources = workspace::root().join("packaging/debian");
    let tree = folder.join("deb");
    make_empty(&tree)?;
    contents.copy_server(&tree.join("usr/bin"))?;
    // Not where the loader looks: Triton's own package may be there, too.
    let libraries = tree.join("usr/lib/nereid");
    copy(&contents.library, &libraries.join("libtritonserver.so"))?;
    copy(&contents.onnxruntime, &libraries.join(file_name(&contents.onnxruntime)))?;
    copy(&contents.header, &tree.join("usr/include/nereid.h"))?;
    for (file, place) in [
        ("nereid.service", "usr/lib/systemd/system/nereid.service"),
        ("nereid.socket", "usr/lib/systemd/system/nereid.socket"),
        ("nereid.sysusers", "usr/lib/sysusers.d/nereid.conf"),
        ("nereid.tmpfiles", "usr/lib/tmpfiles.d/nereid.conf"),
        ("nereid.toml", "etc/nereid.toml"),
    ] {
        copy(&sources.join(file), &tree.join(place))?;
    }
    let documents = tree.join("usr/share/doc/nereid");
    contents.copy_licences(&documents)?;
    copy(&contents.licence, &documents.join("copyright"))?;
    copy(&workspace::root().join("README.md"), &documents.join("README.md"))?;
    contents.write_help(&tree.join("usr/share"))?;
    process::run(
        Command::new("gzip").args(["-9", "--no-name"]).arg(tree.join("usr/share/man/man1/nereid.1")),
    )?;
    let installed = size(&tree)? / 1024;
    let control = tree.join("DEBIAN");
    for script in ["postinst", "prerm", "postrm"] {
        copy(&sources.join(script), &control.join(script))?;
        make_executable(&control.join(script))?;
    }
    write(&control.join("conffiles"), "/etc/nereid.toml\n")?;
    let (version, architecture) = (&contents.version, architecture()?);
    // ONNX Runtime is written in C++.
    let control_text = format!(
        "Package: nereid\nVersion: {version}-1\nArchitecture: {architecture}\nMaintainer: Nereid contributors \
         <nereid@localhost>\nInstalled-Size: {installed}\nDepends: libc6 (>= 2.{}), libgcc-s1, libstdc++6 (>= 11), systemd\n\
         Recommends: ca-certificates\nSuggests: python3-numpy\nSection: net\nPriority: optional\nDescription: inference \
         server for machine learning models\n Serves models over HTTP and gRPC, with the protocols, configurations and \
         plug-ins of\n Triton Inference Server. ONNX Runtime is included.\n",
        contents.glibc_minor
    );
    write(&control.join("control"), &control_text)?;
    let package = folder.join(format!("nereid_{version}-1_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    process::run(build.args(["--root-owner-group", "-Zzstd", "--build"]).arg(&tree).arg(&package))?;
    fs::metadata(&package).with_context(|| format!("dpkg-deb has not made {}", package.display()))?;
    Ok(package)
}

/// Debian's name of this processor.
fn architecture() -> Result<String> {
    let printed = process::output(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(printed.trim().to_owned())
}
