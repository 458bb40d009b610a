//! The setting of the backend, and the parameters of a model. Names and values are those of the same models in Python.
use std::{collections::BTreeMap, num::NonZeroUsize};

use config::{ConfigErrors, KnownConfigNames, rule};
use inference::backend::Implementation;
use native_backend::{ParameterReader, boolean};
use vocabulary::Error;

/// The backend's name in configurations.
pub(crate) const BACKEND_NAME: &str = "pytorch";

/// Who runs packages of AOTInductor.
const AOT_INDUCTOR: &str = "aotinductor";

/// The settings that `--backend-config` may contain, and the parameters of models, those that only models in Python
/// have included.
pub(crate) const KNOWN_NAMES: KnownConfigNames = KnownConfigNames {
    settings: &[AOT_INDUCTOR, Implementation::SETTING, "library"],
    parameters: &[
        "DISABLE_CUDNN",
        "DISABLE_OPTIMIZED_EXECUTION",
        "ENABLE_CACHE_CLEANING",
        "ENABLE_JIT_EXECUTOR",
        "ENABLE_JIT_PROFILING",
        "ENABLE_NVFUSER",
        "ENABLE_TENSOR_FUSER",
        "ENABLE_WEIGHT_SHARING",
        "EXECUTION_ENV_PATH",
        "INFERENCE_MODE",
        "INTER_OP_THREAD_COUNT",
        "INTRA_OP_THREAD_COUNT",
        "MAX_EXECUTE_PROCESSOR_SECONDS",
        "MAX_EXECUTE_SECONDS",
        "MAX_MEMORY_BYTES",
        "NUM_INTEROP_THREADS",
        "NUM_THREADS",
        "PYTHON_EXECUTABLE",
        "SANDBOX",
        "STRICT_OUTPUTS",
        "TORCH_COMPILE_OPTIONAL_PARAMETERS",
    ],
};

/// Parameters of processes. A model that has one of them has a process.
const OF_PROCESSES: [&str; 8] = [
    "EXECUTION_ENV_PATH",
    "MAX_EXECUTE_PROCESSOR_SECONDS",
    "MAX_EXECUTE_SECONDS",
    "MAX_MEMORY_BYTES",
    "PYTHON_EXECUTABLE",
    "SANDBOX",
    "STRICT_OUTPUTS",
    "TORCH_COMPILE_OPTIONAL_PARAMETERS",
];

/// Switches of TorchScript, of GPUs, and of gradients, which compiled code for the processor does not have.
const WITHOUT_EFFECT: [&str; 9] = [
    "DISABLE_CUDNN",
    "DISABLE_OPTIMIZED_EXECUTION",
    "ENABLE_CACHE_CLEANING",
    "ENABLE_JIT_EXECUTOR",
    "ENABLE_JIT_PROFILING",
    "ENABLE_NVFUSER",
    "ENABLE_TENSOR_FUSER",
    "ENABLE_WEIGHT_SHARING",
    "INFERENCE_MODE",
];

/// Triton has other names for a `model.py` than for the other files. All files take both.
const INTRA_OP: [&str; 2] = ["INTRA_OP_THREAD_COUNT", "NUM_THREADS"];
const INTER_OP: [&str; 2] = ["INTER_OP_THREAD_COUNT", "NUM_INTEROP_THREADS"];

/// Whether the server computes packages itself.
///
/// # Errors
/// INVALID_ARGUMENT for an unknown value of the setting.
pub(crate) fn is_native(settings: &BTreeMap<String, String>) -> Result<bool, Error> {
    match settings.get(AOT_INDUCTOR).map(String::as_str) {
        None | Some("python") => Ok(false),
        Some("native") => Ok(true),
        Some(other) => Err(Error::invalid(format!(
            "the setting '{AOT_INDUCTOR}' of backend '{BACKEND_NAME}' is '{other}', which is neither 'native' nor 'python'"
        ))),
    }
}

/// The parameter of processes that a model has.
pub(crate) fn parameter_of_processes(parameters: &BTreeMap<String, String>) -> Option<&'static str> {
    OF_PROCESSES.into_iter().find(|name| parameters.contains_key(*name))
}

/// What the parameters of a model say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TorchSettings {
    /// Threads of an operator.
    threads: Option<NonZeroUsize>,
}

impl TorchSettings {
    /// Reads the parameters.
    ///
    /// # Errors
    /// All values that are refused, with their fields.
    pub(crate) fn of(parameters: &BTreeMap<String, String>) -> Result<Self, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        errors.begin(rule::PARAMETER);
        let mut reader = ParameterReader { values: parameters, errors: &mut errors };
        for name in WITHOUT_EFFECT {
            reader.read(name, boolean);
        }
        let [_, _] = INTER_OP.map(|name| reader.threads(name));
        let threads = INTRA_OP.map(|name| reader.threads(name));
        let threads = threads.into_iter().flatten().find_map(NonZeroUsize::new);
        if errors.is_empty() { Ok(Self { threads }) } else { Err(errors) }
    }

    /// The threads of an instance whose share of the processors is `budget`.
    pub(crate) fn threads(&self, budget: NonZeroUsize) -> NonZeroUsize {
        self.threads.unwrap_or(budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn packages_run_in_python_unless_a_setting_says_otherwise() {
        assert_eq!(is_native(&map(&[])), Ok(false));
        assert_eq!(is_native(&map(&[("aotinductor", "python")])), Ok(false));
        assert_eq!(is_native(&map(&[("aotinductor", "native")])), Ok(true));
        let error = is_native(&map(&[("aotinductor", "here")])).unwrap_err();
        assert!(
            error.message.ends_with("is 'here', which is neither 'native' nor 'python'"),
            "{}",
            error.message
        );
    }

    #[test]
    fn threads_are_those_of_the_instance_unless_a_parameter_says_otherwise() {
        let budget = NonZeroUsize::new(3).unwrap();
        let threads = |entries: &[_]| TorchSettings::of(&map(entries)).unwrap().threads(budget).get();
        assert_eq!(threads(&[]), 3);
        assert_eq!(threads(&[("INTRA_OP_THREAD_COUNT", "2")]), 2);
        assert_eq!(threads(&[("NUM_THREADS", "2")]), 2);
        assert_eq!(threads(&[("INTRA_OP_THREAD_COUNT", "0"), ("INTER_OP_THREAD_COUNT", "7")]), 3);
    }

    #[test]
    fn refused_values_are_named_with_their_field() {
        let refused = |entries: &[_]| TorchSettings::of(&map(entries)).unwrap_err().to_string();
        assert!(refused(&[("NUM_THREADS", "x")]).contains("failed to convert 'x' to integral number"));
        assert!(refused(&[("INTER_OP_THREAD_COUNT", "y")]).contains("failed to convert 'y'"));
        assert!(refused(&[("INFERENCE_MODE", "z")]).contains("failed to convert 'z' to boolean"));
    }

    #[test]
    fn each_known_parameter_has_a_meaning() {
        let mut meant = [&OF_PROCESSES[..], &WITHOUT_EFFECT, &INTRA_OP, &INTER_OP].concat();
        meant.sort_unstable();
        assert_eq!(meant, KNOWN_NAMES.parameters);
    }

    #[test]
    fn a_parameter_of_processes_is_found() {
        assert_eq!(parameter_of_processes(&map(&[("NUM_THREADS", "1")])), None);
        assert_eq!(parameter_of_processes(&map(&[("SANDBOX", "required")])), Some("SANDBOX"));
    }
}
