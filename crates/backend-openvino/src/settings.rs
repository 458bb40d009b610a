//! Reads and checks the parameters of a model, which are those of Triton's backend for OpenVINO.
use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf};

use config::{ConfigErrors, KnownConfigNames, ModelConfig, rule, server_parameters};
use inference::backend::Implementation;
use native_backend::ParameterReader;
use vocabulary::Error;

use crate::ov::CompileOptions;

/// The backend's name in configurations.
pub(crate) const BACKEND_NAME: &str = "openvino";

/// The backend whose models may name OpenVINO as an accelerator.
pub(crate) const ONNX_RUNTIME: &str = "onnxruntime";

/// The backend of Triton for models of TensorFlow. OpenVINO runs them.
pub(crate) const TENSORFLOW: &str = "tensorflow";

/// The settings that `--backend-config` and the parameters of a model may contain.
pub(crate) const KNOWN_NAMES: KnownConfigNames = KnownConfigNames {
    settings: &["default-max-batch-size", Implementation::SETTING, "library", "max-request-rows"],
    parameters: &[
        "AUTOCOMPLETE_BATCH",
        BATCH_PADDING,
        COMPILATION_THREADS,
        EXTENSION,
        BF16,
        "ITERATION_DONE_OUTPUT",
        THREADS,
        STREAMS,
        HINT,
        RESHAPE,
        SKIP_BATCH,
        DEVICE,
    ],
};

const HINT: &str = "PERFORMANCE_HINT";
const THREADS: &str = "INFERENCE_NUM_THREADS";
const STREAMS: &str = "NUM_STREAMS";
const COMPILATION_THREADS: &str = "COMPILATION_NUM_THREADS";
const BF16: &str = "HINT_BF16";
const EXTENSION: &str = "CPU_EXTENSION_PATH";
const SKIP_BATCH: &str = "SKIP_OV_DYNAMIC_BATCHSIZE";
const BATCH_PADDING: &str = "ENABLE_BATCH_PADDING";
const RESHAPE: &str = "RESHAPE_IO_LAYERS";
const DEVICE: &str = "TARGET_DEVICE";

/// Parameters of Triton's backend for TensorFlow that choose a part of a model, and the only value that OpenVINO has.
const PARTS_OF_TENSORFLOW: [(&str, &str); 2] =
    [("TF_GRAPH_TAG", "serve"), ("TF_SIGNATURE_DEF", "serving_default")];

/// The property that keeps the library from computing in BF16.
const PRECISION: &str = "INFERENCE_PRECISION_HINT";

/// What the parameters of a model say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenVinoSettings {
    /// A library of operators.
    pub(crate) extension: Option<PathBuf>,
    /// Whether the first dimension of the inputs stays as the file has it.
    pub(crate) keeps_batch: bool,
    /// Whether the inputs get the shapes of the configuration.
    pub(crate) reshapes: bool,
    /// `LATENCY`, `THROUGHPUT` or `CUMULATIVE_THROUGHPUT`.
    hint: Option<String>,
    /// Threads of all runs of a compiled model.
    threads: Option<usize>,
    /// `AUTO`, `NUMA` or a number.
    streams: Option<String>,
    may_use_bf16: bool,
    /// Parameters that have no effect, with the reason.
    without_effect: Vec<(&'static str, &'static str)>,
}

impl OpenVinoSettings {
    /// Reads the parameters.
    ///
    /// # Errors
    /// All values that are refused, with their fields.
    pub(crate) fn of(parameters: &BTreeMap<String, String>) -> Result<Self, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        errors.begin(rule::PARAMETER);
        let mut reader = ParameterReader { values: parameters, errors: &mut errors };
        let pads = reader.read(BATCH_PADDING, |value| yes_or_no(BATCH_PADDING, value));
        reader.read(DEVICE, device);
        for (name, only) in PARTS_OF_TENSORFLOW {
            reader.read(name, |value| part_of_tensorflow(name, only, value));
        }
        let compiles = reader.read(COMPILATION_THREADS, |value| count(COMPILATION_THREADS, value));
        let settings = Self {
            extension: reader.read(EXTENSION, extension),
            keeps_batch: reader.read(SKIP_BATCH, |value| yes_or_no(SKIP_BATCH, value)).unwrap_or_default(),
            reshapes: reader.read(RESHAPE, |value| yes_or_no(RESHAPE, value)).unwrap_or_default(),
            hint: reader.read(HINT, hint),
            threads: reader.read(THREADS, |value| count(THREADS, value)).filter(|&count| count > 0),
            streams: reader.read(STREAMS, streams),
            may_use_bf16: reader.read(BF16, bf16).unwrap_or_default(),
            without_effect: [
                compiles.map(|_| (COMPILATION_THREADS, "OpenVINO has no such property of the CPU")),
                pads.filter(|&pads| pads).map(|_| (BATCH_PADDING, "smaller batches run without padding")),
            ]
            .into_iter()
            .flatten()
            .collect(),
        };
        if pads == Some(true) && settings.keeps_batch {
            let text = format!(
                "the parameter '{BATCH_PADDING}' is not supported together with '{SKIP_BATCH}': batches are not padded"
            );
            errors.push_error(&format!("parameters.{BATCH_PADDING}"), &Error::unsupported(text));
        }
        if errors.is_empty() { Ok(settings) } else { Err(errors) }
    }

    /// How a model is compiled that computes with `budget` threads unless the parameters set a number.
    pub(crate) fn compile_options(&self, budget: NonZeroUsize) -> CompileOptions {
        let threads = self.threads.and_then(NonZeroUsize::new).unwrap_or(budget);
        let mut options = CompileOptions::processors(threads);
        if let Some(hint) = &self.hint {
            options.set(HINT, hint);
            // The hint for many runs at a time chooses the number of streams.
            if hint != "LATENCY" {
                options.unset(STREAMS);
            }
        }
        if let Some(streams) = &self.streams {
            options.set(STREAMS, streams);
        }
        if self.may_use_bf16 {
            options.unset(PRECISION);
        }
        options
    }

    /// Parameters that are accepted and have no effect, with the reason.
    pub(crate) fn without_effect(&self) -> &[(&'static str, &'static str)] {
        &self.without_effect
    }

    /// Whether a compiled model is meant to run several requests at a time.
    pub(crate) fn wants_streams(&self) -> bool {
        match (self.streams.as_deref(), self.hint.as_deref()) {
            (Some(streams), _) => !matches!(streams, "0" | "1"),
            (None, hint) => hint.is_some_and(|hint| hint != "LATENCY"),
        }
    }
}

/// Whether a configuration of ONNX Runtime asks for OpenVINO: it has this accelerator for the processor.
pub(crate) fn is_accelerator_of(declared: &proto::ModelConfig) -> bool {
    let policy = declared.optimization.as_ref().and_then(|policy| policy.execution_accelerators.as_ref());
    let accelerators = policy.map(|policy| &policy.cpu_execution_accelerator);
    declared.backend == ONNX_RUNTIME
        && accelerators.is_some_and(|all| all.iter().any(|accelerator| accelerator.name == BACKEND_NAME))
}

/// The parameters that OpenVINO does not have, of a model whose configuration is for another backend, with the reason why
/// they have no effect.
pub(crate) fn of_other_backends(declared: &proto::ModelConfig) -> Vec<(String, &'static str)> {
    let parts = PARTS_OF_TENSORFLOW.map(|(name, _)| name);
    let known = [KNOWN_NAMES.parameters, &parts, &server_parameters()].concat();
    let is_unknown = |name: &&String| !known.contains(&name.as_str());
    let is_of_other = [ONNX_RUNTIME, TENSORFLOW].contains(&declared.backend.as_str());
    let parameters = declared.parameters.keys().filter(|_| is_of_other);
    parameters.filter(is_unknown).map(|name| (name.clone(), "OpenVINO runs the model")).collect()
}

/// Checks what a configuration asks of a backend, and this one does not do.
///
/// # Errors
/// The first of these fields.
pub(crate) fn check_fields(config: &ModelConfig) -> Result<(), Error> {
    let is_own = |name: &str| config.backend == ONNX_RUNTIME && name == BACKEND_NAME;
    let mut accelerators = config.cpu_accelerators.iter();
    if let Some(accelerator) = accelerators.find(|accelerator| !is_own(&accelerator.name)) {
        let text = format!("unknown Execution Accelerator '{}' is requested", accelerator.name);
        return Err(Error::invalid(text));
    }
    if let Some(library) = config.op_library_filenames.first() {
        let text = format!(
            "model '{}' names '{library}' in model_operations: OpenVINO takes operators from {EXTENSION}",
            config.name
        );
        return Err(Error::unsupported(text));
    }
    Ok(())
}

/// The texts of refusals are those of Triton's backend.
fn refused(name: &str, wanted: &str, value: &str) -> Error {
    Error::invalid(format!("expected the parameter '{name}' to be {wanted}, got {value}"))
}

fn yes_or_no(name: &str, value: &str) -> Result<bool, Error> {
    match value.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(refused(name, "either YES or NO", value)),
    }
}

fn count(name: &str, value: &str) -> Result<usize, Error> {
    let number = value.parse::<u16>().map(usize::from);
    number.map_err(|_| refused(name, "a non-negative number", value))
}

fn hint(value: &str) -> Result<String, Error> {
    let hint = value.to_ascii_uppercase();
    match hint.as_str() {
        "LATENCY" | "THROUGHPUT" | "CUMULATIVE_THROUGHPUT" => Ok(hint),
        _ => Err(refused(HINT, "LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT", value)),
    }
}

fn streams(value: &str) -> Result<String, Error> {
    let streams = value.to_ascii_uppercase();
    let is_valid = matches!(streams.as_str(), "AUTO" | "NUMA") || streams.parse::<u16>().is_ok();
    if is_valid { Ok(streams) } else { Err(refused(STREAMS, "either AUTO/NUMA/<int_value>", value)) }
}

fn bf16(value: &str) -> Result<bool, Error> {
    if value.eq_ignore_ascii_case("yes") { Ok(true) } else { Err(refused(BF16, "YES", value)) }
}

fn device(value: &str) -> Result<(), Error> {
    if value.eq_ignore_ascii_case("cpu") {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "the parameter '{DEVICE}' is '{value}', but models are served on the CPU only"
    )))
}

fn part_of_tensorflow(name: &str, only: &str, value: &str) -> Result<(), Error> {
    if value == only {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "the parameter '{name}' is '{value}', but OpenVINO, which runs the model, knows only '{only}'"
    )))
}

fn extension(value: &str) -> Result<PathBuf, Error> {
    let path = PathBuf::from(value);
    if path.is_absolute() && path.is_file() {
        return Ok(path);
    }
    Err(refused(EXTENSION, "the absolute path of a file", value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(entries: &[(&str, &str)]) -> Result<OpenVinoSettings, ConfigErrors> {
        OpenVinoSettings::of(&entries.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
    }

    fn options(entries: &[(&str, &str)]) -> CompileOptions {
        settings(entries).unwrap().compile_options(NonZeroUsize::new(3).unwrap())
    }

    fn three_threads() -> CompileOptions {
        CompileOptions::processors(NonZeroUsize::new(3).unwrap())
    }

    #[test]
    fn without_parameters_a_model_has_the_threads_of_its_instance() {
        assert_eq!(options(&[]), three_threads());
        assert_eq!(options(&[(THREADS, "0")]), three_threads());
        assert_eq!(options(&[(THREADS, "1")]), CompileOptions::processors(NonZeroUsize::MIN));
    }

    #[test]
    fn parameters_become_properties_of_the_library() {
        let mut wanted = three_threads();
        wanted.set(HINT, "LATENCY");
        wanted.set(STREAMS, "AUTO");
        wanted.unset(PRECISION);
        let entries = [(HINT, "latency"), (STREAMS, "auto"), (BF16, "yes"), (DEVICE, "cpu")];
        assert_eq!(options(&entries), wanted);
        let mut wanted = three_threads();
        wanted.set(HINT, "THROUGHPUT");
        wanted.unset(STREAMS);
        assert_eq!(options(&[(HINT, "THROUGHPUT")]), wanted);
    }

    #[test]
    fn streams_are_wanted_by_their_number_or_by_the_hint() {
        let wanted = |entries: &[_]| settings(entries).unwrap().wants_streams();
        assert!(!wanted(&[]) && !wanted(&[(STREAMS, "1")]) && !wanted(&[(HINT, "LATENCY")]));
        assert!(wanted(&[(STREAMS, "2")]) && wanted(&[(STREAMS, "AUTO")]) && wanted(&[(HINT, "THROUGHPUT")]));
        assert!(!wanted(&[(HINT, "THROUGHPUT"), (STREAMS, "1")]));
    }

    #[test]
    fn refused_values_are_named_with_what_is_expected() {
        for (name, value, part) in [
            (THREADS, "-1", "'INFERENCE_NUM_THREADS' to be a non-negative number, got -1"),
            (COMPILATION_THREADS, "x", "'COMPILATION_NUM_THREADS' to be a non-negative number, got x"),
            (HINT, "fast", "'PERFORMANCE_HINT' to be LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT, got fast"),
            (STREAMS, "many", "'NUM_STREAMS' to be either AUTO/NUMA/<int_value>, got many"),
            (BF16, "no", "'HINT_BF16' to be YES, got no"),
            (SKIP_BATCH, "1", "'SKIP_OV_DYNAMIC_BATCHSIZE' to be either YES or NO, got 1"),
            (RESHAPE, "", "'RESHAPE_IO_LAYERS' to be either YES or NO, got "),
            (
                EXTENSION,
                "/nowhere/ops.so",
                "'CPU_EXTENSION_PATH' to be the absolute path of a file, got /nowhere",
            ),
            (DEVICE, "GPU", "'TARGET_DEVICE' is 'GPU', but models are served on the CPU only"),
        ] {
            let errors = settings(&[(name, value)]).unwrap_err().to_string();
            assert!(errors.contains(part), "{errors}");
        }
        let errors = settings(&[(BATCH_PADDING, "YES"), (SKIP_BATCH, "YES")]).unwrap_err().to_string();
        assert!(errors.contains("batches are not padded"), "{errors}");
    }

    #[test]
    fn parameters_without_effect_are_known() {
        let names = |entries: &[_]| {
            let settings = settings(entries).unwrap();
            settings.without_effect().iter().map(|(name, _)| *name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[(BATCH_PADDING, "NO"), (HINT, "LATENCY")]), [""; 0]);
        let both = [(BATCH_PADDING, "YES"), (COMPILATION_THREADS, "2")];
        assert_eq!(names(&both), [COMPILATION_THREADS, BATCH_PADDING]);
    }
}
