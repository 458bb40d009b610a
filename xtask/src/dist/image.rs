//! A container image: a folder in the layout of the Open Container Initiative, made without a daemon.
//!
//! It contains the server, ONNX Runtime, and those libraries of this Debian that they need. There is no shell. Any user may
//! run it, on a root that nobody can write. The paths, names, users and variables of Triton's images are there, too.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::contents::PackageContents;
use crate::files::{copy, file_name, make_empty, make_folder, paths_in, remove_folder, write};
use crate::tools::debian;
use crate::{process, workspace};

/// The packages of Debian whose files the programs need.
const BASE: [&str; 4] = ["libc6", "libgcc-s1", "libstdc++6", "ca-certificates"];

/// What of them nothing in the image reads.
const UNUSED: [&str; 9] = [
    "etc/ld.so.conf.d",
    "usr/lib/x86_64-linux-gnu/audit",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/sbin",
    "usr/share/gdb",
    "usr/share/gcc",
    "usr/share/lintian",
    "usr/share/man",
    "usr/share/locale",
];

/// The users. Manifests for Triton name `triton-server`, or its number.
const USERS: &str = "root:x:0:0:root:/:/none\ntriton-server:x:1000:1000:triton-server:/:/none\n\
                     nobody:x:65534:65534:nobody:/:/none\n";

/// The release of the containers with the Triton that the server follows.
const TRITON_RELEASE: &str = "26.09";

/// The user of nobody.
const USER: &str = "65534:65534";

/// Makes the folder `image`, whose image has the tag of the version.
pub(super) fn make(contents: &PackageContents, folder: &Path) -> Result<PathBuf> {
    let umoci = umoci()?;
    let (base, own) = (folder.join("image-base"), folder.join("image-own"));
    make_base(&base)?;
    make_own(contents, &own)?;
    let layout = folder.join("image");
    remove_folder(&layout)?;
    let image = format!("{}:{}", layout.display(), contents.version);
    let run = |arguments: &[&str]| process::run(Command::new(&umoci).args(arguments));
    run(&["init", "--layout", &layout.display().to_string()])?;
    run(&["new", "--image", &image])?;
    // What changes with each release is a layer of its own.
    for files in [&base, &own] {
        run(&["insert", "--rootless", "--image", &image, &files.display().to_string(), "/"])?;
    }
    run(&[
        "config",
        "--image",
        &image,
        "--config.user",
        USER,
        "--config.entrypoint",
        "/usr/bin/nereid-entrypoint",
        "--config.cmd",
        "tritonserver",
        "--config.cmd",
        "--model-repository=/models",
        "--config.env",
        "PATH=/usr/bin:/opt/tritonserver/bin",
        "--config.env",
        &format!("TRITON_SERVER_VERSION={}", contents.triton_version()?),
        "--config.env",
        &format!("NVIDIA_TRITON_SERVER_VERSION={TRITON_RELEASE}"),
        "--config.exposedports",
        "8000/tcp",
        "--config.exposedports",
        "8001/tcp",
        "--config.exposedports",
        "8002/tcp",
        "--config.label",
        &format!("org.opencontainers.image.version={}", contents.version),
        // What SageMaker reads.
        "--config.label",
        "com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true",
        "--config.label",
        "com.amazonaws.sagemaker.capabilities.multi-models=true",
        "--config.label",
        "org.opencontainers.image.title=Nereid",
        "--config.label",
        "org.opencontainers.image.licenses=Apache-2.0",
    ])?;
    run(&["gc", "--layout", &layout.display().to_string()])?;
    Ok(layout)
}

/// The program that writes images.
fn umoci() -> Result<PathBuf> {
    let folder = workspace::target().join("umoci");
    let program = folder.join("usr/bin/umoci");
    if !program.exists() {
        debian::unpack("umoci", &folder)?;
    }
    Ok(program)
}

/// The files of Debian's packages.
fn make_base(base: &Path) -> Result<()> {
    make_empty(base)?;
    // Some packages have only `lib`, which belongs there.
    make_folder(&base.join("usr"))?;
    for package in BASE {
        let unpacked = base.with_extension("package");
        debian::unpack(package, &unpacked)?;
        for path in paths_in(&unpacked)?.iter().filter(|path| path.is_dir()) {
            process::run(
                Command::new("cp")
                    .args(["--archive", "--no-target-directory"])
                    .arg(path)
                    .arg(merged(base, path)),
            )?;
        }
        remove_folder(&unpacked)?;
    }
    for folder in UNUSED {
        remove_folder(&base.join(folder))?;
    }
    // Since Debian 12, the libraries are below `usr`. The loader has its place in every program.
    for folder in ["lib", "lib64"] {
        make_folder(&base.join("usr").join(folder))?;
        symlink(Path::new("usr").join(folder), base.join(folder))?;
    }
    write(&base.join("etc/ssl/certs/ca-certificates.crt"), &certificates(base)?)?;
    write(&base.join("etc/passwd"), USERS)?;
    write(&base.join("etc/group"), "root:x:0:\ntriton-server:x:1000:\nnogroup:x:65534:\n")?;
    write(&base.join("etc/nsswitch.conf"), "passwd: files\ngroup: files\nhosts: files dns\n")
}

/// Where a folder of a package belongs: `lib` of old packages is `usr/lib`.
fn merged(base: &Path, folder: &Path) -> PathBuf {
    let name = file_name(folder);
    match name.to_str() {
        Some("lib" | "lib64") => base.join("usr").join(name),
        _ => base.join(name),
    }
}

/// The certificates of the authorities, one after the other.
fn certificates(base: &Path) -> Result<String> {
    let paths = paths_in(&base.join("usr/share/ca-certificates/mozilla"))?;
    paths.iter().map(|path| Ok(fs::read_to_string(path)?)).collect()
}

/// The files of the server.
fn make_own(contents: &PackageContents, own: &Path) -> Result<()> {
    make_empty(own)?;
    contents.copy_server(&own.join("usr/bin"))?;
    symlink("nereid", own.join("usr/bin/nereid-entrypoint"))?;
    copy(&contents.library, &own.join("opt/tritonserver/lib/libtritonserver.so"))?;
    copy(&contents.onnxruntime, &own.join("usr/lib").join(file_name(&contents.onnxruntime)))?;
    copy(&contents.header, &own.join("opt/tritonserver/include/nereid.h"))?;
    contents.copy_licences(&own.join("usr/share/doc/nereid"))?;
    for folder in [
        "opt/tritonserver/bin",
        "opt/tritonserver/backends",
        "opt/tritonserver/caches",
        "opt/tritonserver/repoagents",
        "models",
        "tmp",
    ] {
        make_folder(&own.join(folder))?;
    }
    // As everywhere: all users may write there, and each removes only its own files.
    fs::set_permissions(own.join("tmp"), fs::Permissions::from_mode(0o1777))?;
    // The loader finds it by this name, also where there is no /proc.
    symlink(file_name(&contents.onnxruntime), own.join("usr/lib/libonnxruntime.so"))?;
    symlink("/usr/bin/nereid", own.join("opt/tritonserver/bin/tritonserver"))?;
    Ok(())
}
