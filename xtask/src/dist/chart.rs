//! A Helm chart, as an archive: the templates, and the alerts and the dashboard that stand elsewhere in `packaging`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{archive, contents};
use crate::files::{copy, file_name, make_empty, make_folder, paths_in, write};
use crate::workspace;

/// What the sources have in place of the version.
const NO_VERSION: &str = "ersion: 0.0.0";
/// The image that the sources name.
const LOCAL_IMAGE: &str = "  repository: nereid\n";

/// The chart of the tests: the version of the workspace, and an image that a machine has itself.
///
/// # Errors
/// As [`make`].
pub(crate) fn make_chart() -> Result<PathBuf> {
    let folder = workspace::target().join("dist");
    make_folder(&folder)?;
    make(&contents::version()?, None, &folder)
}

/// Makes `nereid-VERSION.tgz`. `image` is the repository of the images, unless that of the sources.
pub(super) fn make(version: &str, image: Option<&str>, folder: &Path) -> Result<PathBuf> {
    let packaging = workspace::root().join("packaging");
    let sources = packaging.join("helm/nereid");
    let files = folder.join("chart");
    make_empty(&files)?;
    let tree = files.join("nereid");
    let manifest = read(&sources.join("Chart.yaml"))?;
    ensure!(manifest.matches(NO_VERSION).count() == 2, "Chart.yaml needs two lines with '{NO_VERSION}'");
    write(&tree.join("Chart.yaml"), manifest.replace(NO_VERSION, &format!("ersion: {version}")))?;
    let values = read(&sources.join("values.yaml"))?;
    ensure!(values.contains(LOCAL_IMAGE), "values.yaml needs the line '{LOCAL_IMAGE}'");
    let repository = image.map_or_else(|| LOCAL_IMAGE.to_owned(), |image| format!("  repository: {image}\n"));
    write(&tree.join("values.yaml"), values.replace(LOCAL_IMAGE, &repository))?;
    copy(&sources.join("values.schema.json"), &tree.join("values.schema.json"))?;
    copy(&workspace::root().join("LICENSE"), &tree.join("LICENSE"))?;
    for template in paths_in(&sources.join("templates"))? {
        copy(&template, &tree.join("templates").join(file_name(&template)))?;
    }
    for file in ["prometheus/alerts.yaml", "grafana/nereid.json"] {
        let from = packaging.join(file);
        copy(&from, &tree.join("files").join(file_name(&from)))?;
    }
    archive::pack(&files, "nereid", folder.join(format!("nereid-{version}.tgz")))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
