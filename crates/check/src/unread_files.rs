//! Files in a model's directory that nothing reads, and that look as if something should.
use std::{collections::BTreeSet, path::Path};

use config::{FOREST_FILES, MODEL_FORMATS, VersionDirectory, version_directory};
use inference::nearest;
use repository::layout;

use crate::{Finding, Severity, rules::UNREAD_FILE};

/// Files that people put beside a model.
const FOR_PEOPLE: [&str; 6] = ["README", "LICENSE", "NOTICE", "CHANGELOG", ".gitignore", ".gitattributes"];

/// Findings about the files beside the configuration and the version directories. `may_read_more`: the model may be a
/// program that reads files which its configuration does not name.
pub(crate) fn unread_files(
    directory: &Path,
    config: &proto::ModelConfig,
    may_read_more: bool,
) -> Vec<Finding> {
    let named = named_files(config);
    let mut findings = Vec::new();
    for entry in layout::entries(directory).unwrap_or_default() {
        let name = entry.name.as_str();
        let path = directory.join(name);
        if is_expected(name) || named.iter().any(|named| named.split('/').next() == Some(name)) {
            continue;
        }
        if MODEL_FORMATS.iter().any(|format| format.filename == name) || FOREST_FILES.contains(&name) {
            let text = format!(
                "nothing reads '{name}' beside the version directories: a model file is in a directory named by a number, \
                 such as '1/{name}'"
            );
            findings.push(Finding::new(Severity::Warning, UNREAD_FILE, &path, text));
        } else if entry.is_directory {
            let is_version = matches!(version_directory(name), VersionDirectory::Version(_));
            let near = nearest(name, ["warmup", "initial_state", "configs"]);
            if let (false, Some(near)) = (is_version, near.filter(|near| *near != name)) {
                let text = format!("nothing reads the directory '{name}', did you mean '{near}'?");
                let finding = Finding::new(Severity::Warning, UNREAD_FILE, &path, text);
                findings.push(finding.meaning(Some(near.to_owned())));
            }
        } else if nearest(name.trim_end_matches(".txt"), ["config.pbtxt"]).is_some() {
            let text = format!("nothing reads '{name}', did you mean 'config.pbtxt'?");
            let finding = Finding::new(Severity::Warning, UNREAD_FILE, &path, text);
            findings.push(finding.meaning(Some("config.pbtxt".to_owned())));
        } else if !may_read_more {
            let text = format!("the server does not read '{name}', and the configuration does not name it");
            findings.push(Finding::new(Severity::Note, UNREAD_FILE, &path, text));
        }
    }
    findings
}

fn is_expected(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    name == "config.pbtxt"
        || layout::is_by_product(name)
        || name.starts_with('.')
        || name.ends_with(".md")
        || FOR_PEOPLE.contains(&stem)
        || FOR_PEOPLE.contains(&name)
        || Path::new(name).extension().is_some_and(|ending| ending == "so")
}

/// The files that the configuration names.
fn named_files(config: &proto::ModelConfig) -> BTreeSet<String> {
    let labels = config.output.iter().map(|output| output.label_filename.clone());
    let libraries =
        config.model_operations.iter().flat_map(|operations| operations.op_library_filename.clone());
    let parameters = config.parameters.values().map(|value| value.string_value.clone());
    let parameters = parameters.map(|value| value.replace("$$TRITON_MODEL_DIRECTORY/", ""));
    labels.chain(libraries).chain(parameters).filter(|name| !name.is_empty()).collect()
}
