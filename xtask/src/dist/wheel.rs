//! A Python wheel: `pip install nereid-server` puts the server into an environment, whose ONNX Runtime it uses.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::contents::{OTHER_NAMES, PackageContents};
use crate::files::{copy, file_name, make_empty, make_executable, write};
use crate::{process, python, workspace};

/// The programs of the demo that need nothing but the server.
const DEMO: [&str; 9] = [
    "train.py",
    "train_forest.py",
    "train_pipeline.py",
    "pipeline_model.py",
    "train_shapes.py",
    "shapes.py",
    "classify.py",
    "compare.py",
    "tell_shapes.py",
];

/// The files of the package.
const MODULES: [&str; 18] = [
    "__init__.py",
    "__main__.py",
    "demo/__init__.py",
    "demo/__main__.py",
    "link.py",
    "process.py",
    "programs.py",
    "py.typed",
    "ray/__init__.py",
    "ray/connections.py",
    "ray/http_connections.py",
    "ray/http_forwarder.py",
    "ray/messages.py",
    "ray/replica.py",
    "ray/supervisor.py",
    "regions.py",
    "server.py",
    "tensors.py",
];

/// The versions of Ray that the package works with: it uses interfaces that Ray calls experimental.
const RAY: &str = "==2.60.*";

/// Makes `nereid_server-VERSION-py3-none-manylinux_2_N_x86_64.whl`.
pub(super) fn make(contents: &PackageContents, folder: &Path) -> Result<PathBuf> {
    python::install("packaging/wheel/requirements.txt")?;
    let sources = workspace::root().join("packaging/wheel");
    let tree = folder.join("wheel");
    make_empty(&tree)?;
    let version = &contents.version;
    for module in MODULES {
        let path = Path::new("nereid_server").join(module);
        copy(&sources.join(&path), &tree.join(&path))?;
    }
    for program in DEMO {
        let from = workspace::root().join("demo").join(program);
        copy(&from, &tree.join("nereid_server/demo/programs").join(program))?;
    }
    let data = tree.join(format!("nereid_server-{version}.data"));
    copy(&contents.server, &data.join("scripts/nereid"))?;
    make_executable(&data.join("scripts/nereid"))?;
    copy(&contents.library, &data.join("data/lib/libtritonserver.so"))?;
    copy(&contents.header, &data.join("data/include/nereid.h"))?;
    // A wheel has no links.
    let names = OTHER_NAMES.map(|name| format!("{name} = nereid_server.programs:{name}\n")).concat();
    let info = tree.join(format!("nereid_server-{version}.dist-info"));
    for file in [&contents.licence, &contents.notices] {
        copy(file, &info.join("licenses").join(file_name(file)))?;
    }
    copy(&contents.sbom, &info.join("sboms").join(file_name(&contents.sbom)))?;
    let description = fs::read_to_string(sources.join("README.md")).context("cannot read the description")?;
    let licences = [&contents.licence, &contents.notices]
        .map(|file| format!("License-File: {}\n", file_name(file).display()))
        .concat();
    let metadata = format!(
        "Metadata-Version: 2.4\nName: nereid-server\nVersion: {version}\nSummary: Serves machine learning models with the \
         protocols of Triton Inference Server\nLicense-Expression: Apache-2.0\n{licences}Requires-Python: >=3.9\n\
         Requires-Dist: onnxruntime>=1.17\nProvides-Extra: ray\nRequires-Dist: ray[serve]{RAY}; extra == \"ray\"\n\
         Provides-Extra: demo\n{}Classifier: Operating System :: POSIX :: Linux\n\
         Description-Content-Type: text/markdown\n\n{description}",
        demo_requirements()?
    );
    write(&info.join("METADATA"), &metadata)?;
    write(&info.join("entry_points.txt"), format!("[console_scripts]\n{names}"))?;
    let (glibc, processor) = (contents.glibc_minor, std::env::consts::ARCH);
    let tag = format!("py3-none-manylinux_2_{glibc}_{processor}");
    let generator = "Wheel-Version: 1.0\nGenerator: nereid\nRoot-Is-Purelib: false\n";
    write(&info.join("WHEEL"), format!("{generator}Tag: {tag}\n"))?;
    // Writes the list of the files with their digests, too.
    let mut pack = python::command();
    process::run(pack.args(["-m", "wheel", "pack", "--dest-dir"]).arg(folder).arg(&tree))?;
    Ok(folder.join(format!("nereid_server-{version}-{tag}.whl")))
}

/// What the demo needs, as lines of the metadata.
fn demo_requirements() -> Result<String> {
    let path = workspace::root().join("demo/requirements.txt");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let names = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(names
        .map(|line| {
            // Other versions are as good for users.
            let name = line.split_once("==").map_or(line, |(name, _)| name);
            format!("Requires-Dist: {name}; extra == \"demo\"\n")
        })
        .collect())
}
