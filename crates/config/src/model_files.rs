//! The files of a model: those in its directory, and the kinds of model files that Triton's backends have.

/// The parts of a model's directory that determine the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelLayout {
    /// Name of the directory. It is the name of the model.
    pub name: String,
    /// The version directories (see [`version_directory`](super::version_directory)) and the entries of each.
    pub versions: std::collections::BTreeMap<i64, Vec<FileEntry>>,
}

/// One file or directory in a version directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Name without path.
    pub name: String,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// The backend of models in Python.
pub(super) const PYTHON: &str = "python";

/// The backend of forests.
pub(super) const FOREST: &str = "fil";

/// The files of forests, in the order in which the search tries them. Unlike Triton, which finds no forests.
pub const FOREST_FILES: [&str; 5] =
    ["xgboost.ubj", "xgboost.json", "checkpoint.tl", "model.txt", "xgboost.model"];

/// The backend of two formats that differ from the others: if a configuration names it, the files still decide.
pub(super) const TENSORFLOW: &str = "tensorflow";

/// A kind of model file, and the configuration that it implies.
#[derive(Debug)]
pub struct ModelFormat {
    /// What runs it.
    pub backend: &'static str,
    /// Empty where the backend has no platform.
    pub platform: &'static str,
    /// Its name in the directory of a version.
    pub filename: &'static str,
    kind: FileKind,
    /// Whether a file with the extension is a model wherever it lies.
    pub is_known_anywhere: bool,
}

/// What a model file is.
#[derive(Debug, Clone, Copy)]
enum FileKind {
    File,
    Directory,
    Either,
}

/// All formats, in the order in which the search tries them.
pub const MODEL_FORMATS: [ModelFormat; 8] = [
    ModelFormat::new(TENSORFLOW, "tensorflow_savedmodel", "model.savedmodel", FileKind::Directory, false),
    ModelFormat::new(TENSORFLOW, "tensorflow_graphdef", "model.graphdef", FileKind::File, false),
    ModelFormat::new("tensorrt", "tensorrt_plan", "model.plan", FileKind::File, true),
    ModelFormat::new("onnxruntime", "onnxruntime_onnx", "model.onnx", FileKind::Either, true),
    ModelFormat::new("openvino", "", "model.xml", FileKind::Either, false),
    ModelFormat::new("pytorch", "pytorch_libtorch", "model.pt", FileKind::File, true),
    ModelFormat::new("pytorch", "torch_aoti", "model.pt2", FileKind::File, true),
    ModelFormat::new(PYTHON, "", "model.py", FileKind::Either, false),
];

impl ModelFormat {
    const fn new(
        backend: &'static str,
        platform: &'static str,
        filename: &'static str,
        kind: FileKind,
        is_known_anywhere: bool,
    ) -> Self {
        Self { backend, platform, filename, kind, is_known_anywhere }
    }

    /// The extension of its name.
    pub fn extension(&self) -> &'static str {
        self.filename.trim_start_matches("model.")
    }

    /// Whether a version has such a file under its usual name.
    pub(super) fn is_among(&self, entries: &[FileEntry]) -> bool {
        entries.iter().any(|entry| {
            let fits = match self.kind {
                FileKind::File => !entry.is_directory,
                FileKind::Directory => entry.is_directory,
                FileKind::Either => true,
            };
            fits && entry.name == self.filename
        })
    }
}
