//! What the file of a graph says of a model, before the runtime has opened it.
use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::{Component, Path, PathBuf},
};

use config::{ConfigErrors, ModelConfig, rule};
use inference::backend::{ModelInspection, ModelSource};
use native_backend::{
    DefaultBatchSize, DimsRule, Rows, check_config, check_iteration, complete, is_complete,
};
use vocabulary::Error;

use crate::{
    external_data,
    graph_file::{self, GraphFile},
    settings,
};

const DEFAULT_FILE: &str = "model.onnx";

/// The graph of a version, read from its file.
pub(crate) struct OnnxInspection {
    graph: GraphFile,
    file: PathBuf,
    op_directories: Vec<PathBuf>,
    default_max_batch_size: DefaultBatchSize,
}

impl OnnxInspection {
    /// Reads the graph of a version. Libraries of custom operators may be in `op_directories`.
    ///
    /// # Errors
    /// The errors of opening the model, as far as its files tell them.
    pub(crate) fn of(source: &ModelSource, op_directories: Vec<PathBuf>) -> Result<Self, Error> {
        let file = model_file(source)?;
        settings::maps_external_data(&source.declared)?;
        let graph = graph_file::read(&file)
            .map_err(|error| Error::internal(format!("unable to read '{}': {error}", file.display())))?
            .ok_or_else(|| Error::invalid(format!("'{}' is not an ONNX model", file.display())))?;
        let default_max_batch_size = DefaultBatchSize::of(&source.settings)?;
        Ok(Self { graph, file, op_directories, default_max_batch_size })
    }
}

impl OnnxInspection {
    /// The configuration without the outputs whose shapes the file does not tell.
    fn known(&self, config: &ModelConfig) -> ModelConfig {
        let GraphFile { signature, unknown_shapes } = &self.graph;
        let mut known = config.clone();
        let is_there = |name: &str| signature.outputs.iter().any(|slot| slot.name == *name);
        known.outputs.retain(|output| !unknown_shapes.contains(&output.name) || !is_there(&output.name));
        known
    }
}

impl ModelInspection for OnnxInspection {
    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<Option<NonZeroU32>, Error> {
        if is_complete(config) {
            return Ok(None);
        }
        let GraphFile { signature, unknown_shapes } = &self.graph;
        let is_known = |name: &str| !unknown_shapes.iter().any(|unknown| *unknown == *name);
        let declared_names: Vec<_> = config.output.iter().map(|output| output.name.clone()).collect();
        // The runtime derives the shapes that the file leaves open. They do not keep the model from batching.
        let mut known = signature.clone();
        known.outputs.retain(|slot| is_known(&slot.name));
        let request_rows = complete(config, &known, self.default_max_batch_size, || {
            Rows::Unknown("nothing was run".to_owned())
        })?;
        config.output.retain(|output| is_known(&output.name) || declared_names.contains(&output.name));
        Ok(request_rows)
    }

    fn completes_all(&self) -> bool {
        self.graph.unknown_shapes.is_empty()
    }

    fn check(&self, config: &ModelConfig, errors: &mut ConfigErrors) {
        let (known, signature) = (self.known(config), &self.graph.signature);
        let before = errors.problems().len();
        check_config(&known, signature, DimsRule::Covered, errors);
        if errors.problems().len() == before {
            check_iteration(config, signature)
                .err()
                .iter()
                .for_each(|error| errors.push_error("parameters", error));
        }
        let settings = settings::session_settings(config, NonZeroUsize::MIN, &self.op_directories);
        settings.err().into_iter().for_each(|refused| errors.absorb(refused));
        errors.begin(rule::EXTERNAL_DATA);
        match external_data::missing(&self.file) {
            Ok(missing) => {
                for location in missing {
                    let text = format!(
                        "the graph of model '{}' refers to the file '{location}', which is not beside '{}'",
                        config.name,
                        self.file.display()
                    );
                    errors.invalid("", text);
                }
            }
            Err(error) => errors.invalid("", format!("unable to read '{}': {error}", self.file.display())),
        }
    }

    /// Outputs with dims that the file leaves open: the load accepts them if the runtime derives the same dims.
    fn doubt(&self, config: &ModelConfig, doubts: &mut ConfigErrors) {
        check_config(&self.known(config), &self.graph.signature, DimsRule::Exact, doubts);
    }
}

/// The graph's file: the configured path below the version's directory, or `model.onnx`. If that is a directory, the
/// file `model.onnx` in it.
///
/// # Errors
/// UNAVAILABLE if there is no file, INVALID_ARG if it is not a regular file, UNSUPPORTED for a path outside the version's
/// directory.
pub(crate) fn model_file(source: &ModelSource) -> Result<PathBuf, Error> {
    let configured = match source.declared.default_model_filename.as_str() {
        "" => DEFAULT_FILE,
        name => name,
    };
    let inside = Path::new(configured)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !inside {
        return Err(Error::unsupported(format!(
            "default_model_filename '{configured}' of model '{}' leads out of the version directory",
            source.name
        )));
    }
    let mut file = source.version_directory.join(configured);
    if file.is_dir() {
        file.push(DEFAULT_FILE);
    }
    if !file.exists() {
        let (file, name) = (file.display(), &source.name);
        let remedy = other_graph(&source.version_directory)
            .map(|other| {
                format!(": there is {other}; rename it, or set default_model_filename in config.pbtxt")
            })
            .unwrap_or_default();
        return Err(Error::unavailable(format!(
            "unable to find '{file}' for model instance '{name}'{remedy}"
        )));
    }
    // A pipe or a device could block the load for ever.
    if !file.is_file() {
        return Err(Error::invalid(format!("'{}' is not a regular file", file.display())));
    }
    Ok(file)
}

/// A file that is probably the graph.
fn other_graph(directory: &Path) -> Option<String> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names.into_iter().find(|name| name.ends_with(".onnx"))
}
