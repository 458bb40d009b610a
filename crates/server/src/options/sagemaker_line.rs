//! The command line of the program `serve`, which SageMaker starts without options: they are variables.

use std::{collections::BTreeMap, ffi::OsString, fs, path::Path};

use super::environment::ProcessEnvironment;
use super::refusal::BadOption;
use super::table::NO_COPYING_THREADS;
use super::tokenizer::ArgumentTokens;

/// Where the platform puts the models of an endpoint.
const REPOSITORY: &str = "/opt/ml/model";

/// The repository of a multi-model endpoint: an empty one. Each model that the platform loads is a repository of its own.
const EMPTY_REPOSITORY: &str = "/tmp/sagemaker";

const MULTI_MODEL: &str = "SAGEMAKER_MULTI_MODEL";
const DEFAULT_MODEL: &str = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME";
const PING_MODE: &str = "SAGEMAKER_TRITON_OVERRIDE_PING_MODE";
const FURTHER_OPTIONS: &str = "SAGEMAKER_TRITON_ADDITIONAL_ARGS";

/// The values of `SAGEMAKER_TRITON_INFERENCE_TYPE`.
const INFERENCE_TYPES: [&str; 3] = ["infer", "generate", "generate_stream"];

/// The options of every endpoint.
const FIXED: [&str; 3] = ["--allow-sagemaker=true", "--allow-http=false", "--model-control-mode=explicit"];

/// A variable that becomes an option.
struct MappedVariable {
    name: &'static str,
    /// The option with everything before the value.
    option: &'static str,
    /// The value without the variable. `None`: the option is not given then.
    default: Option<&'static str>,
}

const fn mapped(name: &'static str, option: &'static str, default: Option<&'static str>) -> MappedVariable {
    MappedVariable { name, option, default }
}

/// As Triton: docker/sagemaker/serve. The first name says "disable" there, too, and its value is that of the option.
const MAPPED: &[MappedVariable] = &[
    mapped("SAGEMAKER_TRITON_DISABLE_MODEL_NAMESPACING", "--model-namespacing=", Some("true")),
    mapped("SAGEMAKER_BIND_TO_PORT", "--sagemaker-port=", None),
    mapped("SAGEMAKER_SAFE_PORT_RANGE", "--sagemaker-safe-port-range=", None),
    mapped("SAGEMAKER_TRITON_ALLOW_GRPC", "--allow-grpc=", Some("false")),
    mapped("SAGEMAKER_TRITON_ALLOW_METRICS", "--allow-metrics=", Some("false")),
    mapped("SAGEMAKER_TRITON_METRICS_PORT", "--metrics-port=", None),
    mapped("SAGEMAKER_TRITON_GRPC_PORT", "--grpc-port=", None),
    mapped("SAGEMAKER_TRITON_THREAD_COUNT", "--sagemaker-thread-count=", None),
    mapped("SAGEMAKER_TRITON_LOG_VERBOSE", "--log-verbose=", Some("true")),
    mapped("SAGEMAKER_TRITON_LOG_INFO", "--log-info=", None),
    mapped("SAGEMAKER_TRITON_LOG_WARNING", "--log-warning=", None),
    mapped("SAGEMAKER_TRITON_LOG_ERROR", "--log-error=", None),
    mapped(
        "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE",
        "--backend-config=python,shm-default-byte-size=",
        Some("16777216"),
    ),
    mapped(
        "SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE",
        "--backend-config=python,shm-growth-byte-size=",
        Some("1048576"),
    ),
    mapped("SAGEMAKER_TRITON_TENSORFLOW_VERSION", "--backend-config=tensorflow,version=", None),
];

/// Variables that have an effect in Triton only, each with the reason.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT", NO_COPYING_THREADS),
    ("SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT", "no graphics processors are used"),
];

/// The variables of `serve` among those of a process. `value` returns the value of a variable that is set.
pub(super) fn variables(value: impl Fn(&str) -> Option<String>) -> BTreeMap<&'static str, String> {
    let names = MAPPED.iter().map(|variable| variable.name);
    let names = names.chain(WITHOUT_EFFECT.iter().map(|(name, _)| *name)).chain([
        MULTI_MODEL,
        PING_MODE,
        FURTHER_OPTIONS,
    ]);
    names.filter_map(|name| Some((name, value(name)?))).collect()
}

/// The command line of a server for SageMaker. `given` are the arguments of `serve`: options there take precedence over
/// variables. The environment gets the default model, the mode of pings, and the warnings about variables.
///
/// # Errors
/// The platform has given no model that can be the default, a folder cannot be read or made, or a variable has none of its
/// values.
pub fn sagemaker_line(
    given: Vec<OsString>,
    environment: &mut ProcessEnvironment,
) -> Result<Vec<OsString>, BadOption> {
    line_with(Path::new(REPOSITORY), Path::new(EMPTY_REPOSITORY), given, environment)
}

fn line_with(
    repository: &Path,
    empty_repository: &Path,
    given: Vec<OsString>,
    environment: &mut ProcessEnvironment,
) -> Result<Vec<OsString>, BadOption> {
    if ArgumentTokens::new(given.iter().cloned())?.asks_for_text() {
        return Ok(given);
    }
    let variables = &environment.sagemaker;
    let mut line: Vec<_> = FIXED.map(str::to_owned).into();
    for MappedVariable { name, option, default } in MAPPED {
        let value = variables.get(name).map(String::as_str).or(*default);
        line.extend(value.map(|value| format!("{option}{value}")));
    }
    for (name, reason) in WITHOUT_EFFECT.iter().filter(|(name, _)| variables.contains_key(name)) {
        environment.warnings.push(format!("Warning: {name} has no effect: {reason}"));
    }
    let further = variables.get(FURTHER_OPTIONS).map(String::as_str).unwrap_or_default();
    line.extend(further.split_whitespace().map(str::to_owned));
    let multi_model = variables.get(MULTI_MODEL).is_some_and(|value| value == "true");
    // A multi-model endpoint answers pings before it has a model, and while it loads one.
    let ping_mode = variables.get(PING_MODE).cloned().or_else(|| environment.sagemaker_ping_mode.take());
    environment.sagemaker_ping_mode = ping_mode.or_else(|| multi_model.then(|| "live".to_owned()));
    check_inference_type(environment)?;
    let used = if multi_model {
        fs::create_dir_all(empty_repository).map_err(|error| {
            BadOption::build(format!("cannot make the folder {}: {error}", empty_repository.display()))
        })?;
        empty_repository
    } else {
        let model = default_model(repository, environment)?;
        line.push(format!("--load-model={model}"));
        environment.sagemaker_default_model = Some(model);
        repository
    };
    line.push(format!("--model-repository={}", used.display()));
    Ok(line.into_iter().map(OsString::from).chain(given).collect())
}

fn check_inference_type(environment: &ProcessEnvironment) -> Result<(), BadOption> {
    match environment.sagemaker_inference_type.as_deref() {
        Some(other) if !INFERENCE_TYPES.contains(&other) => {
            let known = INFERENCE_TYPES.join(", ");
            let text = format!("SAGEMAKER_TRITON_INFERENCE_TYPE: '{other}' is none of {known}");
            Err(BadOption::build(text))
        }
        Some(_) | None => Ok(()),
    }
}

/// The model of `/invocations`: that of the variable, or the only one.
fn default_model(repository: &Path, environment: &mut ProcessEnvironment) -> Result<String, BadOption> {
    let place = repository.display();
    if repository.join("config.pbtxt").is_file() {
        let text =
            format!("{place} has a config.pbtxt: it must contain the folder of a model, not its files");
        return Err(BadOption::build(text));
    }
    if let Some(model) = &environment.sagemaker_default_model {
        if repository.join(model).is_dir() {
            return Ok(model.clone());
        }
        return Err(BadOption::build(format!("{DEFAULT_MODEL}: there is no folder {place}/{model}")));
    }
    let unreadable = |error| BadOption::build(format!("cannot read {place}: {error}"));
    let mut folders = Vec::new();
    for entry in fs::read_dir(repository).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if entry.file_type().map_err(unreadable)?.is_dir() {
            folders.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    folders.sort();
    match &folders[..] {
        [] => Err(BadOption::build(format!("there is no model in {place}"))),
        [only] => {
            let text = format!("Warning: {DEFAULT_MODEL} is not set, the default model is '{only}'");
            environment.warnings.push(text);
            Ok(only.clone())
        }
        several => {
            let names = several.join(", ");
            Err(BadOption::build(format!(
                "there are several models in {place}, set {DEFAULT_MODEL}: {names}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Invocation, parse};

    /// The folders that the platform has, and the environment of the container.
    struct Container {
        folder: tempfile::TempDir,
        environment: ProcessEnvironment,
    }

    impl Container {
        fn new(models: &[&str], set: &[(&'static str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            for model in models {
                fs::create_dir_all(folder.path().join("model").join(model)).unwrap();
            }
            let value =
                |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
            let environment = ProcessEnvironment {
                sagemaker_default_model: value(DEFAULT_MODEL),
                sagemaker: variables(value),
                ..ProcessEnvironment::default()
            };
            Self { folder, environment }
        }

        fn serve(&mut self, given: &[&str]) -> Result<Vec<String>, String> {
            let (model, empty) = (self.folder.path().join("model"), self.folder.path().join("empty"));
            let given = given.iter().map(OsString::from).collect();
            let line = line_with(&model, &empty, given, &mut self.environment);
            let line = line.map_err(|error| error.reason().to_owned())?;
            // The server takes each line.
            match parse(line.clone(), &self.environment) {
                Ok(Invocation::Serve(_) | Invocation::Print(_)) => {}
                Err(error) => panic!("{line:?}: {error}"),
            }
            let folder = self.folder.path().display().to_string();
            Ok(line.iter().map(|word| word.to_str().unwrap().replace(&folder, "")).collect())
        }
    }

    #[test]
    fn an_endpoint_without_variables_has_the_only_model_as_its_default() {
        let mut container = Container::new(&["resnet"], &[]);
        fs::write(container.folder.path().join("model/notes.txt"), "").unwrap();
        let expected = [
            "--allow-sagemaker=true",
            "--allow-http=false",
            "--model-control-mode=explicit",
            "--model-namespacing=true",
            "--allow-grpc=false",
            "--allow-metrics=false",
            "--log-verbose=true",
            "--backend-config=python,shm-default-byte-size=16777216",
            "--backend-config=python,shm-growth-byte-size=1048576",
            "--load-model=resnet",
            "--model-repository=/model",
        ];
        assert_eq!(container.serve(&[]).unwrap(), expected);
        assert_eq!(container.environment.sagemaker_default_model.as_deref(), Some("resnet"));
        assert_eq!(container.environment.sagemaker_ping_mode, None);
        let warning =
            "Warning: SAGEMAKER_TRITON_DEFAULT_MODEL_NAME is not set, the default model is 'resnet'";
        assert_eq!(container.environment.warnings, [warning]);
    }

    #[test]
    fn each_variable_becomes_its_option() {
        let set = [
            ("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "b", "--load-model=b"),
            ("SAGEMAKER_TRITON_DISABLE_MODEL_NAMESPACING", "false", "--model-namespacing=false"),
            ("SAGEMAKER_BIND_TO_PORT", "8090", "--sagemaker-port=8090"),
            ("SAGEMAKER_SAFE_PORT_RANGE", "8000-9999", "--sagemaker-safe-port-range=8000-9999"),
            ("SAGEMAKER_TRITON_ALLOW_GRPC", "true", "--allow-grpc=true"),
            ("SAGEMAKER_TRITON_ALLOW_METRICS", "true", "--allow-metrics=true"),
            ("SAGEMAKER_TRITON_METRICS_PORT", "8004", "--metrics-port=8004"),
            ("SAGEMAKER_TRITON_GRPC_PORT", "8003", "--grpc-port=8003"),
            ("SAGEMAKER_TRITON_THREAD_COUNT", "4", "--sagemaker-thread-count=4"),
            ("SAGEMAKER_TRITON_LOG_VERBOSE", "false", "--log-verbose=false"),
            ("SAGEMAKER_TRITON_LOG_INFO", "true", "--log-info=true"),
            ("SAGEMAKER_TRITON_LOG_WARNING", "true", "--log-warning=true"),
            ("SAGEMAKER_TRITON_LOG_ERROR", "false", "--log-error=false"),
            (
                "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE",
                "67108864",
                "--backend-config=python,shm-default-byte-size=67108864",
            ),
            (
                "SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE",
                "4096",
                "--backend-config=python,shm-growth-byte-size=4096",
            ),
            ("SAGEMAKER_TRITON_TENSORFLOW_VERSION", "2", "--backend-config=tensorflow,version=2"),
        ];
        let mut container = Container::new(&["a", "b"], &set.map(|(name, value, _)| (name, value)));
        let line = container.serve(&[]).unwrap();
        assert_eq!(line.len(), FIXED.len() + set.len() + 1, "{line:?}");
        for (name, _, option) in set {
            assert!(line.iter().any(|word| word == option), "{name}: {line:?}");
        }
        assert_eq!(container.environment.warnings, Vec::<String>::new());
    }

    #[test]
    fn variables_without_effect_are_told_and_do_not_stop_the_server() {
        let set = [
            (DEFAULT_MODEL, "m"),
            ("SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT", "2"),
            ("SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT", "0.8"),
        ];
        let mut container = Container::new(&["m"], &set);
        container.serve(&[]).unwrap();
        let expected = [
            "Warning: SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT has no effect: there are no threads for copying inputs \
             and outputs",
            "Warning: SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT has no effect: no graphics processors are used",
        ];
        assert_eq!(container.environment.warnings, expected);
    }

    #[test]
    fn a_multi_model_endpoint_starts_with_an_empty_repository() {
        let mut container = Container::new(&["a", "b"], &[(MULTI_MODEL, "true")]);
        let line = container.serve(&[]).unwrap();
        assert_eq!(line.last().unwrap(), "--model-repository=/empty");
        assert!(container.folder.path().join("empty").is_dir());
        assert!(!line.iter().any(|word| word.starts_with("--load-model")), "{line:?}");
        assert_eq!(container.environment.sagemaker_default_model, None);
        let mut container = Container::new(&["a", "b"], &[(MULTI_MODEL, "false")]);
        assert!(container.serve(&[]).is_err());
    }

    #[test]
    fn a_multi_model_endpoint_answers_pings_without_models_unless_a_variable_says_otherwise() {
        for (multi_model, own, forced, expected) in [
            ("false", None, None, None),
            ("true", None, None, Some("live")),
            ("true", Some("ready"), None, Some("ready")),
            ("true", None, Some("ready"), Some("ready")),
            ("false", Some("ready"), Some("live"), Some("live")),
        ] {
            let mut set = vec![(MULTI_MODEL, multi_model)];
            set.extend(forced.map(|mode| (PING_MODE, mode)));
            let mut container = Container::new(&["m"], &set);
            container.environment.sagemaker_ping_mode = own.map(str::to_owned);
            container.serve(&[]).unwrap();
            assert_eq!(container.environment.sagemaker_ping_mode.as_deref(), expected, "{set:?} {own:?}");
        }
    }

    #[test]
    fn an_unknown_inference_type_is_refused() {
        let mut container = Container::new(&["m"], &[]);
        container.environment.sagemaker_inference_type = Some("stream".to_owned());
        let expected =
            "SAGEMAKER_TRITON_INFERENCE_TYPE: 'stream' is none of infer, generate, generate_stream";
        assert_eq!(container.serve(&[]).unwrap_err(), expected);
    }

    #[test]
    fn options_of_the_line_follow_those_of_variables() {
        let mut container = Container::new(&["m"], &[(FURTHER_OPTIONS, "--id=a  --exit-timeout-secs 5")]);
        let line = container.serve(&["--log-verbose=0"]).unwrap();
        assert!(line.windows(3).any(|words| words == ["--id=a", "--exit-timeout-secs", "5"]), "{line:?}");
        assert_eq!(line.last().unwrap(), "--log-verbose=0");
        assert_eq!(Container::new(&[], &[]).serve(&["--help"]).unwrap(), ["--help"]);
    }

    #[test]
    fn repositories_that_have_no_default_model_are_refused() {
        let refusal = |models: &[&str], set: &[(&'static str, &str)]| {
            let mut container = Container::new(models, set);
            let folder = container.folder.path().display().to_string();
            container.serve(&[]).unwrap_err().replace(&folder, "")
        };
        assert_eq!(refusal(&[], &[]), "cannot read /model: No such file or directory (os error 2)");
        assert_eq!(
            refusal(&["b", "a"], &[]),
            "there are several models in /model, set SAGEMAKER_TRITON_DEFAULT_MODEL_NAME: a, b"
        );
        assert_eq!(
            refusal(&["a"], &[(DEFAULT_MODEL, "b")]),
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME: there is no folder /model/b"
        );
        let mut container = Container::new(&["1"], &[]);
        fs::write(container.folder.path().join("model/config.pbtxt"), "").unwrap();
        let folder = container.folder.path().display().to_string();
        assert_eq!(
            container.serve(&[]).unwrap_err().replace(&folder, ""),
            "/model has a config.pbtxt: it must contain the folder of a model, not its files"
        );
        fs::remove_file(container.folder.path().join("model/config.pbtxt")).unwrap();
        fs::remove_dir(container.folder.path().join("model/1")).unwrap();
        assert_eq!(container.serve(&[]).unwrap_err().replace(&folder, ""), "there is no model in /model");
    }
}
