//! The settings of `--backend-config=python,...` and the parameters of a model.
use std::{collections::BTreeMap, time::Duration};

use config::KnownConfigNames;
use inference::backend::Implementation;
use vocabulary::{Error, ErrorCode};

use crate::{
    environment_settings::EnvironmentSettings,
    sandbox::{SandboxMode, SandboxSettings},
};

/// The names that this backend understands.
pub(crate) const KNOWN_NAMES: KnownConfigNames = KnownConfigNames {
    settings: &[
        "archive-limit-bytes",
        "environments",
        "environments-directory",
        "environments-timeout-seconds",
        "error-paths",
        Implementation::SETTING,
        "pip-index-url",
        "python-executable",
        "sandbox",
        "sandbox-directory",
        "sandbox-max-memory-bytes",
        "sandbox-max-open-files",
        "sandbox-max-processes",
        "sandbox-user",
        "shared-memory-limit-bytes",
        "shm-default-byte-size",
        "shm-growth-byte-size",
        "shm-region-prefix-name",
        "shm_message_queue_size",
        "stub-timeout-seconds",
        "thread-pool-size",
    ],
    parameters: &[
        EXECUTION_ENV_PATH,
        "FORCE_CPU_ONLY_INPUT_TENSORS",
        MAX_CONCURRENT_EXECUTIONS,
        MAX_EXECUTE_PROCESSOR_SECONDS,
        MAX_EXECUTE_SECONDS,
        MAX_MEMORY_BYTES,
        PYTHON_EXECUTABLE,
        SANDBOX,
        STRICT_OUTPUTS,
    ],
};

/// The names that the backend `pytorch` understands. It has no settings of its own: those of `python` apply.
pub(crate) const PYTORCH_NAMES: KnownConfigNames = KnownConfigNames {
    settings: &[],
    parameters: &[
        "DISABLE_CUDNN",
        "DISABLE_OPTIMIZED_EXECUTION",
        "ENABLE_CACHE_CLEANING",
        "ENABLE_JIT_EXECUTOR",
        "ENABLE_JIT_PROFILING",
        "ENABLE_NVFUSER",
        "ENABLE_TENSOR_FUSER",
        "ENABLE_WEIGHT_SHARING",
        EXECUTION_ENV_PATH,
        "INFERENCE_MODE",
        "INTER_OP_THREAD_COUNT",
        "INTRA_OP_THREAD_COUNT",
        MAX_EXECUTE_PROCESSOR_SECONDS,
        MAX_EXECUTE_SECONDS,
        MAX_MEMORY_BYTES,
        "NUM_INTEROP_THREADS",
        "NUM_THREADS",
        PYTHON_EXECUTABLE,
        SANDBOX,
        STRICT_OUTPUTS,
        "TORCH_COMPILE_OPTIONAL_PARAMETERS",
    ],
};

pub(crate) const EXECUTION_ENV_PATH: &str = "EXECUTION_ENV_PATH";
pub(crate) const PYTHON_EXECUTABLE: &str = "PYTHON_EXECUTABLE";
const MAX_CONCURRENT_EXECUTIONS: &str = "MAX_CONCURRENT_EXECUTIONS";
const MAX_EXECUTE_PROCESSOR_SECONDS: &str = "MAX_EXECUTE_PROCESSOR_SECONDS";
const MAX_EXECUTE_SECONDS: &str = "MAX_EXECUTE_SECONDS";
const MAX_MEMORY_BYTES: &str = "MAX_MEMORY_BYTES";
pub(crate) const SANDBOX: &str = "SANDBOX";
const STRICT_OUTPUTS: &str = "STRICT_OUTPUTS";

/// The settings of the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PythonSettings {
    /// How long a worker may take to start.
    pub(crate) process_timeout: Duration,
    /// How long a model may take to finalize. Without a setting it is less than the time that the server has for its end
    /// (`--exit-timeout-secs`, 30): a model that hangs must not make an orderly stop fail.
    pub(crate) finalize_timeout: Duration,
    /// The most bytes in each of the two areas that a worker shares with the server.
    pub(crate) area_limit: usize,
    /// The most bytes of the files of an environment in an archive.
    pub(crate) archive_limit: u64,
    /// The most requests to other models at the same time that wait on threads of a worker.
    pub(crate) thread_pool_size: usize,
    /// The interpreter, unless the model names one.
    pub(crate) python_executable: Option<String>,
    /// The texts of exceptions have no directories of the server, only paths in the repository.
    pub(crate) relative_error_paths: bool,
    pub(crate) sandbox: SandboxSettings,
    pub(crate) environments: EnvironmentSettings,
}

const MIB: u64 = 1 << 20;

impl PythonSettings {
    /// Reads the settings. Those that have no meaning here are checked too, because they are checked in Triton.
    ///
    /// # Errors
    /// INVALID_ARG for a value that is not allowed.
    pub(crate) fn of(settings: &BTreeMap<String, String>) -> Result<Self, Error> {
        let number = |name: &str, default: i64| match settings.get(name) {
            None => Ok(default),
            Some(text) => text.trim().parse::<i64>().map_err(|_| {
                Error::invalid(format!("the setting '{name}' of backend 'python' is no number: '{text}'"))
            }),
        };
        let at_least = |name: &str, default: i64, least: i64, refusal: &str| {
            let value = number(name, default)?;
            if value < least { Err(Error::invalid(refusal.to_owned())) } else { Ok(value.unsigned_abs()) }
        };
        let default_bytes = MIB.cast_signed();
        at_least(
            "shm-default-byte-size",
            default_bytes,
            default_bytes,
            "shm-default-byte-size can't be smaller than 4 MiBs",
        )?;
        let refusal = "shm-growth-byte-size can't be smaller than or equal to zero.";
        at_least("shm-growth-byte-size", default_bytes, 1, refusal)?;
        let refusal = "shm_message_queue_size can't be smaller than or equal to zero.";
        at_least("shm_message_queue_size", 1000, 1, refusal)?;
        let refusal = "stub-timeout-seconds can't be smaller than or equal to zero.";
        let timeout = at_least("stub-timeout-seconds", 30, 1, refusal)?;
        let to_finalize = at_least("stub-timeout-seconds", 20, 1, refusal)?;
        let threads = at_least("thread-pool-size", 32, 1, "thread-pool-size can't be less than 1.")?;
        let refusal = "shared-memory-limit-bytes can't be smaller than 1 MiB";
        let limit = at_least("shared-memory-limit-bytes", 4 << 30, default_bytes, refusal)?;
        let refusal = "archive-limit-bytes can't be smaller than 1 MiB";
        let archive_limit = at_least("archive-limit-bytes", 32 << 30, default_bytes, refusal)?;
        if settings.get("shm-region-prefix-name").is_some_and(String::is_empty) {
            return Err(Error::invalid("shm-region-prefix-name must at least contain one character."));
        }
        let relative_error_paths = match settings.get("error-paths").map(String::as_str) {
            None | Some("absolute") => false,
            Some("relative") => true,
            Some(other) => {
                let rule = "which is neither 'absolute' nor 'relative'";
                let text = format!("the setting 'error-paths' of backend 'python' is '{other}', {rule}");
                return Err(Error::invalid(text));
            }
        };
        Ok(Self {
            process_timeout: Duration::from_secs(timeout),
            finalize_timeout: Duration::from_secs(to_finalize),
            area_limit: usize::try_from(limit).unwrap_or(usize::MAX),
            archive_limit,
            thread_pool_size: usize::try_from(threads).unwrap_or(usize::MAX),
            python_executable: settings.get("python-executable").filter(|path| !path.is_empty()).cloned(),
            relative_error_paths,
            sandbox: SandboxSettings::of(settings)?,
            environments: EnvironmentSettings::of(settings)?,
        })
    }
}

/// The parameters of a model that concern its workers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PythonParameters {
    /// How long one execution may take.
    pub(crate) execute_limit: Option<Duration>,
    /// The processor time that a worker may use for one execution.
    pub(crate) processor_limit: Option<Duration>,
    /// The memory that a worker may have for its own data.
    pub(crate) memory_limit: Option<u64>,
    /// The most executions at the same time of a model whose `execute` is a coroutine.
    pub(crate) concurrent_executions: Option<usize>,
    /// Outputs that contradict the configuration are errors. Otherwise the log has a warning.
    pub(crate) strict_outputs: bool,
    /// The sandbox that the model wants.
    pub(crate) sandbox: SandboxMode,
}

impl PythonParameters {
    /// Reads the parameters of a configuration.
    ///
    /// # Errors
    /// INVALID_ARG or UNSUPPORTED for a value that is not allowed.
    pub(crate) fn of(config: &proto::ModelConfig) -> Result<Self, Error> {
        let text = |name: &str| config.parameters.get(name).map(|value| value.string_value.as_str());
        let refused = |name: &str, value: &str, rule: &str| {
            Error::invalid(format!(
                "parameter '{name}' of model '{}' has the value '{value}', {rule}",
                config.name
            ))
        };
        let seconds = |name: &str| -> Result<Option<Duration>, Error> {
            let Some(value) = text(name) else { return Ok(None) };
            let limit = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            let limit = limit.filter(|limit| !limit.is_zero());
            limit.map(Some).ok_or_else(|| refused(name, value, "which is no positive number of seconds"))
        };
        let count = |name: &str| -> Result<Option<u64>, Error> {
            let Some(value) = text(name) else { return Ok(None) };
            let count = value.parse().ok().filter(|count| *count > 0);
            count.map(Some).ok_or_else(|| refused(name, value, "which is no number from 1"))
        };
        match text("FORCE_CPU_ONLY_INPUT_TENSORS") {
            None | Some("yes" | "no") => {}
            Some(other) => {
                let text = format!("Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: {other}'");
                return Err(Error::new(ErrorCode::Unsupported, text));
            }
        }
        let strict_outputs = match text(STRICT_OUTPUTS) {
            None | Some("no") => false,
            Some("yes") => true,
            Some(other) => return Err(refused(STRICT_OUTPUTS, other, "which is neither 'yes' nor 'no'")),
        };
        let sandbox = match text(SANDBOX) {
            None => SandboxMode::Off,
            Some(value) => value.parse().map_err(|rule| refused(SANDBOX, value, rule))?,
        };
        Ok(Self {
            execute_limit: seconds(MAX_EXECUTE_SECONDS)?,
            processor_limit: seconds(MAX_EXECUTE_PROCESSOR_SECONDS)?,
            memory_limit: count(MAX_MEMORY_BYTES)?,
            concurrent_executions: count(MAX_CONCURRENT_EXECUTIONS)?
                .map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
            strict_outputs,
            sandbox,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<PythonSettings, String> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        PythonSettings::of(&pairs.collect()).map_err(|error| error.with_code())
    }

    fn parameters(pairs: &[(&str, &str)]) -> Result<PythonParameters, String> {
        let parameter = |value: &str| proto::ModelParameter { string_value: value.to_owned() };
        let parameters = pairs.iter().map(|(key, value)| ((*key).to_owned(), parameter(value))).collect();
        let config = proto::ModelConfig { name: "m".to_owned(), parameters, ..Default::default() };
        PythonParameters::of(&config).map_err(|error| error.with_code())
    }

    #[test]
    fn settings_have_the_defaults_and_refusals_of_triton() {
        let defaults = settings(&[]).expect("no setting is required");
        assert_eq!((defaults.process_timeout.as_secs(), defaults.thread_pool_size), (30, 32));
        assert_eq!(defaults.finalize_timeout.as_secs(), 20);
        let given = settings(&[("stub-timeout-seconds", "40")]).expect("the setting is valid");
        assert_eq!((given.process_timeout.as_secs(), given.finalize_timeout.as_secs()), (40, 40));
        for (name, value, text) in [
            ("shm-default-byte-size", "1000", "shm-default-byte-size can't be smaller than 4 MiBs"),
            ("shm-growth-byte-size", "0", "shm-growth-byte-size can't be smaller than or equal to zero."),
            ("shm-region-prefix-name", "", "shm-region-prefix-name must at least contain one character."),
            ("stub-timeout-seconds", "0", "stub-timeout-seconds can't be smaller than or equal to zero."),
            ("archive-limit-bytes", "1000", "archive-limit-bytes can't be smaller than 1 MiB"),
            (
                "error-paths",
                "short",
                "the setting 'error-paths' of backend 'python' is 'short', which is neither 'absolute' nor 'relative'",
            ),
            ("thread-pool-size", "0", "thread-pool-size can't be less than 1."),
            ("thread-pool-size", "x", "the setting 'thread-pool-size' of backend 'python' is no number: 'x'"),
        ] {
            assert_eq!(settings(&[(name, value)]), Err(format!("Invalid argument: {text}")));
        }
    }

    #[test]
    fn limits_of_a_model_are_positive_numbers() {
        let read =
            parameters(&[("MAX_EXECUTE_SECONDS", "0.5"), ("MAX_MEMORY_BYTES", "1000")]).expect("they fit");
        assert_eq!((read.execute_limit, read.memory_limit), (Some(Duration::from_millis(500)), Some(1000)));
        for (name, value) in [
            ("MAX_EXECUTE_SECONDS", "0"),
            ("MAX_EXECUTE_SECONDS", "soon"),
            ("MAX_EXECUTE_SECONDS", "-1"),
            ("MAX_EXECUTE_PROCESSOR_SECONDS", "1e400"),
            ("MAX_MEMORY_BYTES", "0"),
            ("MAX_CONCURRENT_EXECUTIONS", "many"),
            ("STRICT_OUTPUTS", "maybe"),
        ] {
            let refusal = parameters(&[(name, value)]).expect_err("it is refused");
            assert!(refusal.contains(&format!("'{name}' of model 'm' has the value '{value}'")), "{refusal}");
        }
        assert_eq!(
            parameters(&[("FORCE_CPU_ONLY_INPUT_TENSORS", "often")]),
            Err("Unsupported: Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: often'".to_owned())
        );
    }
}
