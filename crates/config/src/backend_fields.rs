//! Fills in the name, backend, platform and model file of a configuration from the files of the model.
//!
//! As Triton: model_config_utils.cc, AutoCompleteBackendFields. Unlike Triton, the search uses the files of the
//! versions, the highest version first, and not those of the directory whose name sorts first.
use vocabulary::ErrorCode;

use super::{
    ConfigErrors, VersionPolicy,
    model_files::{FOREST, FOREST_FILES, FileEntry, MODEL_FORMATS, ModelFormat, ModelLayout, TENSORFLOW},
    rule, select_versions,
};

/// Fills in `name`, `backend`, `platform` and `default_model_filename` where they are empty and can be derived.
///
/// # Errors
/// The backend cannot be derived from the configuration, the files and the directory name.
pub(super) fn complete_backend_fields(
    config: &mut proto::ModelConfig,
    layout: &ModelLayout,
) -> Result<(), ConfigErrors> {
    if config.name.is_empty() {
        config.name.clone_from(&layout.name);
    }
    // Triton accepts this alias in this step and refuses it later.
    if config.platform == "libtorch" {
        "pytorch_libtorch".clone_into(&mut config.platform);
    }
    if by_precedence(config, layout).into_iter().any(|entries| claim(config, entries)) {
        return Ok(());
    }
    if !is_open(config) {
        return Ok(());
    }
    let Some((_, backend)) = layout.name.split_once('.').filter(|(_, backend)| !backend.is_empty()) else {
        let name = &layout.name;
        let text = format!(
            "Invalid model name: Could not determine backend for model '{name}' with no backend in model \
             configuration. Expected model name of the form 'model.<backend_name>'.{}",
            remedy(config, layout)
        );
        let mut errors = ConfigErrors::default();
        errors.begin(rule::BACKEND);
        errors.push(ErrorCode::InvalidArgument, "", text);
        return Err(errors);
    };
    backend.clone_into(&mut config.backend);
    config.default_model_filename = format!("model.{backend}");
    Ok(())
}

/// What a version has instead of a file with a known name, and what to do. Begins with a blank.
fn remedy(config: &proto::ModelConfig, layout: &ModelLayout) -> String {
    let existing: Vec<i64> = layout.versions.keys().copied().collect();
    let selected = select_versions(&VersionPolicy::of(config), &existing);
    let Some(version) = selected.last().or(existing.last()) else { return String::new() };
    let entries = &layout.versions[version];
    if entries.is_empty() {
        return format!(
            " The directory '{version}' is empty: put the file of the model into it, such as model.onnx."
        );
    }
    let renamed = entries.iter().find_map(|FileEntry { name, .. }| {
        let (_, extension) = name.rsplit_once('.')?;
        Some((name, formats().find(|format| format.extension() == extension)?))
    });
    let Some((name, ModelFormat { backend, filename, .. })) = renamed else {
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).take(MOST_NAMES).collect();
        let known: Vec<_> = formats().map(|format| format.filename).collect();
        return format!(
            " The directory '{version}' has {}, and none of {}: set 'backend' in config.pbtxt.",
            names.join(", "),
            known.join(", ")
        );
    };
    format!(
        " The directory '{version}' has {name}: rename it to {filename}, or set backend: '{backend}' and \
         default_model_filename: '{name}' in config.pbtxt."
    )
}

/// How many names of files an error shows.
const MOST_NAMES: usize = 5;

/// The files of the versions to be served, the highest first, then those of the other versions, then an empty list.
fn by_precedence<'a>(config: &proto::ModelConfig, layout: &'a ModelLayout) -> Vec<&'a [FileEntry]> {
    let existing: Vec<i64> = layout.versions.keys().copied().collect();
    let selected = select_versions(&VersionPolicy::of(config), &existing);
    let others = existing.iter().rev().filter(|version| !selected.contains(version));
    let ordered = selected.iter().rev().chain(others);
    ordered.map(|version| layout.versions[version].as_slice()).chain([&[][..]]).collect()
}

/// Completes the configuration if the configuration, or one of the files, fits a known format.
fn claim(config: &mut proto::ModelConfig, entries: &[FileEntry]) -> bool {
    if claim_tensorflow(config, entries) {
        return true;
    }
    let fitting = formats().find(|format| fits(format, config, entries));
    if fitting.is_none() && claim_forest(config, entries) {
        return true;
    }
    let Some(format) = fitting.or_else(|| formats().find(|format| format.backend == config.backend)) else {
        return false;
    };
    format.backend.clone_into(&mut config.backend);
    fill(&mut config.platform, format.platform);
    fill(&mut config.default_model_filename, format.filename);
    true
}

/// An explicit backend does not stop the search for the file.
fn claim_tensorflow(config: &mut proto::ModelConfig, entries: &[FileEntry]) -> bool {
    let mut formats = MODEL_FORMATS.iter().filter(|format| format.backend == TENSORFLOW);
    if config.platform.is_empty() && ["", TENSORFLOW].contains(&config.backend.as_str()) {
        let given = &config.default_model_filename;
        let found = formats
            .clone()
            .find(|format| given == format.filename || (given.is_empty() && format.is_among(entries)));
        if let Some(format) = found {
            format.platform.clone_into(&mut config.platform);
        }
    }
    let Some(format) = formats.find(|format| config.platform == format.platform) else { return false };
    fill(&mut config.backend, TENSORFLOW);
    fill(&mut config.default_model_filename, format.filename);
    true
}

/// A configuration that names the backend leaves the choice of the file to it.
fn claim_forest(config: &mut proto::ModelConfig, entries: &[FileEntry]) -> bool {
    if !(config.backend.is_empty() && config.platform.is_empty()) {
        return false;
    }
    let is_there = |file: &str| entries.iter().any(|entry| !entry.is_directory && entry.name == file);
    let named = |file: &str| config.default_model_filename == file || (is_open(config) && is_there(file));
    let Some(file) = FOREST_FILES.into_iter().find(|file| named(file)) else { return false };
    FOREST.clone_into(&mut config.backend);
    file.clone_into(&mut config.default_model_filename);
    true
}

/// The formats of which an explicit backend decides.
fn formats() -> impl Iterator<Item = &'static ModelFormat> {
    MODEL_FORMATS.iter().filter(|format| format.backend != TENSORFLOW)
}

fn fits(format: &ModelFormat, config: &proto::ModelConfig, entries: &[FileEntry]) -> bool {
    let named = (!format.platform.is_empty() && config.platform == format.platform)
        || config.default_model_filename == format.filename;
    ["", format.backend].contains(&config.backend.as_str())
        && (named || (is_open(config) && format.is_among(entries)))
}

/// Whether the configuration does not state the kind of the model.
fn is_open(config: &proto::ModelConfig) -> bool {
    config.backend.is_empty() && config.platform.is_empty() && config.default_model_filename.is_empty()
}

fn fill(field: &mut String, value: &str) {
    if field.is_empty() {
        value.clone_into(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(name: &str, versions: &[(i64, &[&str])]) -> ModelLayout {
        let entry = |name: &&str| FileEntry {
            name: name.trim_end_matches('/').to_owned(),
            is_directory: name.ends_with('/'),
        };
        let versions = versions.iter().map(|(version, files)| (*version, files.iter().map(entry).collect()));
        ModelLayout { name: name.to_owned(), versions: versions.collect() }
    }

    /// Backend, platform and file name after completion.
    fn completed(text: &str, layout: &ModelLayout) -> Result<[String; 3], ConfigErrors> {
        let mut config = proto::text::parse(text.as_bytes()).unwrap().config;
        complete_backend_fields(&mut config, layout)?;
        assert_eq!(config.name, layout.name);
        Ok([config.backend, config.platform, config.default_model_filename])
    }

    #[test]
    fn a_model_file_determines_backend_and_platform_without_a_configuration() {
        for (file, wanted) in [
            ("model.savedmodel/", ["tensorflow", "tensorflow_savedmodel", "model.savedmodel"]),
            ("model.graphdef", ["tensorflow", "tensorflow_graphdef", "model.graphdef"]),
            ("model.plan", ["tensorrt", "tensorrt_plan", "model.plan"]),
            ("model.onnx", ["onnxruntime", "onnxruntime_onnx", "model.onnx"]),
            ("model.onnx/", ["onnxruntime", "onnxruntime_onnx", "model.onnx"]),
            ("model.xml", ["openvino", "", "model.xml"]),
            ("model.pt", ["pytorch", "pytorch_libtorch", "model.pt"]),
            ("model.pt2", ["pytorch", "torch_aoti", "model.pt2"]),
            ("model.py", ["python", "", "model.py"]),
            ("xgboost.ubj", ["fil", "", "xgboost.ubj"]),
            ("xgboost.json", ["fil", "", "xgboost.json"]),
            ("model.txt", ["fil", "", "model.txt"]),
            ("model.txt checkpoint.tl", ["fil", "", "checkpoint.tl"]),
            ("checkpoint.tl model.py", ["python", "", "model.py"]),
            // If two files fit, the earlier format counts.
            ("model.py model.onnx", ["onnxruntime", "onnxruntime_onnx", "model.onnx"]),
        ] {
            let files: Vec<_> = file.split(' ').collect();
            assert_eq!(completed("", &layout("m", &[(1, &files)])).unwrap(), wanted, "{file}");
        }
    }

    #[test]
    fn a_model_file_of_another_kind_determines_nothing() {
        for file in
            ["model.savedmodel", "model.graphdef/", "model.plan/", "model.pt/", "model.pt2/", "weights.bin"]
        {
            assert!(completed("", &layout("m", &[(1, &[file])])).is_err(), "{file}");
        }
    }

    #[test]
    fn a_file_with_another_name_is_named_with_what_to_do() {
        for (versions, remedy) in [
            (
                &[(1, &["old.onnx"][..]), (2, &["readme.txt", "resnet.onnx"])][..],
                " The directory '2' has resnet.onnx: rename it to model.onnx, or set backend: 'onnxruntime' and \
                 default_model_filename: 'resnet.onnx' in config.pbtxt.",
            ),
            (
                &[(1, &[])],
                " The directory '1' is empty: put the file of the model into it, such as model.onnx.",
            ),
            (
                &[(1, &["weights.bin"])],
                " The directory '1' has weights.bin, and none of model.plan, model.onnx, model.xml, model.pt, model.pt2, \
                 model.py: set 'backend' in config.pbtxt.",
            ),
            (&[], ""),
        ] {
            let error = completed("", &layout("m", versions)).unwrap_err().to_string();
            let (_, told) = error.split_once("'model.<backend_name>'.").unwrap();
            assert_eq!(told, remedy, "{versions:?}");
        }
    }

    #[test]
    fn one_field_determines_the_others_without_a_model_file() {
        for (text, wanted) in [
            ("platform: 'tensorflow_graphdef'", ["tensorflow", "tensorflow_graphdef", "model.graphdef"]),
            (
                "default_model_filename: 'model.savedmodel'",
                ["tensorflow", "tensorflow_savedmodel", "model.savedmodel"],
            ),
            ("platform: 'tensorrt_plan'", ["tensorrt", "tensorrt_plan", "model.plan"]),
            ("platform: 'onnxruntime_onnx'", ["onnxruntime", "onnxruntime_onnx", "model.onnx"]),
            ("backend: 'onnxruntime'", ["onnxruntime", "onnxruntime_onnx", "model.onnx"]),
            (
                "backend: 'onnxruntime' default_model_filename: 'x.onnx'",
                ["onnxruntime", "onnxruntime_onnx", "x.onnx"],
            ),
            ("default_model_filename: 'model.onnx'", ["onnxruntime", "onnxruntime_onnx", "model.onnx"]),
            ("backend: 'openvino'", ["openvino", "", "model.xml"]),
            ("backend: 'pytorch'", ["pytorch", "pytorch_libtorch", "model.pt"]),
            ("platform: 'libtorch'", ["pytorch", "pytorch_libtorch", "model.pt"]),
            ("platform: 'torch_aoti'", ["pytorch", "torch_aoti", "model.pt2"]),
            (
                "backend: 'pytorch' default_model_filename: 'model.pt2'",
                ["pytorch", "torch_aoti", "model.pt2"],
            ),
            ("backend: 'python'", ["python", "", "model.py"]),
            ("backend: 'python' default_model_filename: 'x.py'", ["python", "", "x.py"]),
            ("default_model_filename: 'model.py'", ["python", "", "model.py"]),
            ("default_model_filename: 'xgboost.json'", ["fil", "", "xgboost.json"]),
            // This step adds nothing and refuses nothing.
            ("backend: 'fil'", ["fil", "", ""]),
            ("backend: 'identity'", ["identity", "", ""]),
            ("platform: 'ensemble'", ["", "ensemble", ""]),
            ("platform: 'other'", ["", "other", ""]),
        ] {
            assert_eq!(completed(text, &layout("m", &[])).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn an_explicit_tensorflow_backend_still_looks_at_the_file() {
        let layout = layout("m", &[(1, &["model.savedmodel/"])]);
        assert_eq!(
            completed("backend: 'tensorflow'", &layout).unwrap(),
            ["tensorflow", "tensorflow_savedmodel", "model.savedmodel"]
        );
    }

    #[test]
    fn the_highest_version_decides() {
        let two = layout("m", &[(2, &["model.py"]), (10, &["model.onnx"])]);
        assert_eq!(completed("", &two).unwrap()[0], "onnxruntime");
        assert_eq!(completed("version_policy { specific { versions: 2 } }", &two).unwrap()[0], "python");
        let empty_latest = layout("m", &[(1, &["model.onnx"]), (2, &[])]);
        assert_eq!(completed("", &empty_latest).unwrap()[0], "onnxruntime");
    }

    #[test]
    fn the_directory_name_is_used_last() {
        assert_eq!(completed("", &layout("a.b.c", &[(1, &[])])).unwrap(), ["b.c", "", "model.b.c"]);
        let error = completed("", &layout("plain", &[(1, &[])])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Invalid model name: Could not determine backend for model 'plain' with no backend in model \
             configuration. Expected model name of the form 'model.<backend_name>'. The directory '1' is empty: put the file of the \
             model into it, such as model.onnx."
        );
    }
}
