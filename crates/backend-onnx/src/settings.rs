//! Reads and checks settings of the model configuration and of `--backend-config`.
use std::{collections::BTreeMap, ffi::CString, num::NonZeroUsize, path::PathBuf, thread};

use config::{ConfigErrors, KnownConfigNames, ModelConfig, rule};
use inference::backend::Implementation;
use native_backend::{ParameterReader, boolean, integer, threads};
use vocabulary::Error;

use crate::ort::{GlobalThreads, GraphLevel, SessionOptions};

/// The backend's name in configurations.
pub(crate) const BACKEND_NAME: &str = "onnxruntime";

/// The settings that `--backend-config` and the parameters of a model may contain. The list also has the names that
/// Triton's backend uses for GPUs, which have no effect.
pub(crate) const KNOWN_NAMES: KnownConfigNames = KnownConfigNames {
    settings: &[
        "default-max-batch-size",
        "enable-global-threadpool",
        Implementation::SETTING,
        "inter_op_thread_count",
        "intra_op_thread_count",
        "library",
        "max-request-rows",
        OP_LIBRARY_DIRECTORIES,
        "session.intra_op.allow_spinning",
        "telemetry",
    ],
    parameters: &[
        "AUTOCOMPLETE_BATCH",
        "ITERATION_DONE_OUTPUT",
        MAP_EXTERNAL_DATA,
        "arena_extend_strategy",
        "cudnn_conv_algo_search",
        "do_copy_in_default_stream",
        "enable_mem_arena",
        "enable_mem_pattern",
        "execution_mode",
        "gpu_mem_limit",
        "inter_op_thread_count",
        "intra_op_thread_count",
        "memory.enable_memory_arena_shrinkage",
        "session.*",
    ],
};

const SPINNING: [&str; 2] = ["session.intra_op.allow_spinning", "session.inter_op.allow_spinning"];
/// Setting with directories of libraries of custom operators, separated by colons.
const OP_LIBRARY_DIRECTORIES: &str = "op-library-directories";
/// Parameter that has the runtime map the files of external data.
const MAP_EXTERNAL_DATA: &str = "MAP_EXTERNAL_DATA";
/// Parameter that returns the arena's memory to the system after every run.
const SHRINKAGE: &str = "memory.enable_memory_arena_shrinkage";
/// Parameters that say where a session takes memory from.
const ALLOCATORS: [&str; 3] = ["enable_mem_arena", SHRINKAGE, "session.use_env_allocators"];

/// The pool that all sessions share, if the settings enable it. Without counts it has one thread for every processor
/// that the process may use.
///
/// # Errors
/// A value that is not a number.
pub(crate) fn global_threads(settings: &BTreeMap<String, String>) -> Result<Option<GlobalThreads>, Error> {
    match settings.get("enable-global-threadpool").map(|text| integer(text)).transpose()? {
        None | Some(0) => return Ok(None),
        Some(_) => {}
    }
    let count = |key| settings.get(key).map_or(Ok(None), |text| threads(text));
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Ok(Some(GlobalThreads {
        intra: count("intra_op_thread_count")?.unwrap_or(processors),
        inter: count("inter_op_thread_count")?.unwrap_or(processors),
        spin: settings.get(SPINNING[0]).map_or(Ok(false), |text| boolean(text))?,
    }))
}

/// What the configuration says about the sessions of a model and their runs.
pub(crate) struct SessionSettings {
    pub(crate) options: SessionOptions,
    /// The entry of runs about returning memory, as the runtime's own key and value.
    pub(crate) run_entry: Option<(CString, CString)>,
}

/// The settings of a session that computes with `budget` threads unless the configuration sets counts of its own.
///
/// # Errors
/// All values that are refused, with their fields.
pub(crate) fn session_settings(
    config: &ModelConfig,
    budget: NonZeroUsize,
    op_directories: &[PathBuf],
) -> Result<SessionSettings, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    errors.begin(rule::PARAMETER);
    for (position, accelerator) in config.cpu_accelerators.iter().enumerate() {
        let field = format!("optimization.execution_accelerators.cpu_execution_accelerator[{position}].name");
        errors.invalid(&field, format!("unknown Execution Accelerator '{}' is requested", accelerator.name));
    }
    let mut parameters = ParameterReader { values: &config.parameters, errors: &mut errors };
    // The backend uses it when it opens the model.
    parameters.read(MAP_EXTERNAL_DATA, boolean);
    let options = SessionOptions {
        graph_level: match config.graph_level {
            Some(-1) => GraphLevel::Basic,
            Some(1) => GraphLevel::Extended,
            Some(2) => GraphLevel::Disabled,
            _ => GraphLevel::All,
        },
        parallel: parameters.read("execution_mode", execution_mode).unwrap_or_default(),
        intra_threads: parameters.threads("intra_op_thread_count").unwrap_or(budget.get()),
        inter_threads: parameters.threads("inter_op_thread_count").unwrap_or(budget.get()),
        memory_arena: parameters.read("enable_mem_arena", boolean),
        process_allocator: !ALLOCATORS.iter().any(|name| config.parameters.contains_key(*name)),
        memory_pattern: parameters.read("enable_mem_pattern", boolean),
        entries: session_entries(&mut parameters),
        op_libraries: parameters
            .accepted("model_operations", op_libraries(&config.op_library_filenames, op_directories))
            .unwrap_or_default(),
        ..SessionOptions::default()
    };
    let run_entry = parameters.read(SHRINKAGE, |value| entry(SHRINKAGE, value));
    if errors.is_empty() { Ok(SessionSettings { options, run_entry }) } else { Err(errors) }
}

/// The directories of libraries of custom operators that the operator of the server names.
pub(crate) fn named_op_directories(settings: &BTreeMap<String, String>) -> impl Iterator<Item = PathBuf> {
    let named = settings.get(OP_LIBRARY_DIRECTORIES).map(std::env::split_paths);
    named.into_iter().flatten().filter(|directory| !directory.as_os_str().is_empty())
}

/// Libraries of custom operators. A name is a path in one of the directories, of which the first that has it counts, or
/// the whole path of a file in one of them.
///
/// # Errors
/// UNSUPPORTED for files outside the directories, NOT_FOUND for files that do not exist.
pub(crate) fn op_libraries(names: &[String], directories: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let shown = || {
        let shown: Vec<_> = directories.iter().map(|place| format!("'{}'", place.display())).collect();
        shown.join(", ")
    };
    let find = |name: &String| {
        let files: Vec<_> =
            directories.iter().filter_map(|place| place.join(name).canonicalize().ok()).collect();
        if files.is_empty() {
            let text = format!("unable to find custom op library '{name}', searched: {}", shown());
            return Err(Error::not_found(text));
        }
        // What a link names must be there, too.
        let allowed: Vec<_> = directories.iter().filter_map(|place| place.canonicalize().ok()).collect();
        let is_allowed = |file: &PathBuf| allowed.iter().any(|place| file.starts_with(place));
        files.into_iter().find(is_allowed).ok_or_else(|| {
            Error::unsupported(format!(
                "custom op library '{name}' is outside of {}; --backend-config=onnxruntime,{OP_LIBRARY_DIRECTORIES}=PATH \
                 allows more directories",
                shown()
            ))
        })
    };
    names.iter().map(find).collect()
}

/// Every `session.` parameter is an entry of the session configuration. Threads do not spin by default, unless a
/// parameter enables it: with several models, a spinning thread takes a processor from threads that compute.
fn session_entries(parameters: &mut ParameterReader<'_>) -> Vec<(CString, CString)> {
    let values = parameters.values;
    let spinning = SPINNING.into_iter().filter(|key| !values.contains_key(*key)).map(|key| (key, "0"));
    let session_entries = values.iter().filter(|(key, _)| key.starts_with("session."));
    let session_entries = session_entries.map(|(key, value)| (key.as_str(), value.as_str()));
    let entries = spinning.chain(session_entries);
    entries
        .filter_map(|(key, value)| parameters.accepted(&format!("parameters.{key}"), entry(key, value)))
        .collect()
}

fn entry(key: &str, value: &str) -> Result<(CString, CString), Error> {
    let text = |text: &str| CString::new(text);
    match (text(key), text(value)) {
        (Ok(key), Ok(value)) => Ok((key, value)),
        _ => Err(Error::invalid(format!("parameter '{}' has a NUL inside", key.escape_default()))),
    }
}

/// Whether the runtime runs independent nodes of a graph at the same time.
fn execution_mode(text: &str) -> Result<bool, Error> {
    match integer(text)? {
        0 => Ok(false),
        1 => Ok(true),
        // The two blanks and the blank before the full stop are Triton's.
        mode => Err(Error::invalid(format!(
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got {mode} ."
        ))),
    }
}

/// Whether the runtime maps the files of external data into memory. Otherwise the server reads them.
///
/// # Errors
/// A value that is not a boolean.
pub(crate) fn maps_external_data(config: &proto::ModelConfig) -> Result<bool, Error> {
    let parameter = config.parameters.get(MAP_EXTERNAL_DATA);
    parameter.map_or(Ok(false), |parameter| boolean(&parameter.string_value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_global_pool_is_made_only_when_asked_for() {
        assert_eq!(global_threads(&map(&[("intra_op_thread_count", "3")])), Ok(None));
        assert_eq!(global_threads(&map(&[("enable-global-threadpool", "0")])), Ok(None));
        let settings = [("enable-global-threadpool", "1"), ("intra_op_thread_count", "3")];
        let threads = global_threads(&map(&settings)).unwrap().unwrap();
        assert_eq!((threads.intra, threads.spin), (3, false));
        assert!(threads.inter >= 1);
    }

    #[test]
    fn execution_modes_are_zero_and_one() {
        assert_eq!(execution_mode("0"), Ok(false));
        assert_eq!(execution_mode("1"), Ok(true));
        assert_eq!(
            execution_mode("2").unwrap_err().message,
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got 2 ."
        );
        assert_eq!(execution_mode("x").unwrap_err().message, "failed to convert 'x' to integral number");
    }

    #[test]
    fn threads_sleep_unless_a_parameter_lets_them_spin() {
        let entries = |parameters: &[(&str, &str)]| {
            let text = |text: CString| text.into_string().unwrap();
            let mut errors = ConfigErrors::default();
            let entries =
                session_entries(&mut ParameterReader { values: &map(parameters), errors: &mut errors });
            assert!(errors.is_empty());
            entries
                .into_iter()
                .map(|(key, value)| format!("{}={}", text(key), text(value)))
                .collect::<Vec<_>>()
        };
        assert_eq!(entries(&[("other", "1")]), SPINNING.map(|key| format!("{key}=0")));
        assert!(entries(&[(SPINNING[0], "1")]).contains(&format!("{}=1", SPINNING[0])));
        assert!(!entries(&[(SPINNING[0], "1")]).contains(&format!("{}=0", SPINNING[0])));
        assert!(
            entries(&[("session.set_denormal_as_zero", "1")])
                .contains(&"session.set_denormal_as_zero=1".to_owned())
        );
    }

    #[test]
    fn custom_op_libraries_lie_in_the_directories_that_are_allowed() {
        let root = tempfile::tempdir().unwrap();
        let place = |path: &str| root.path().canonicalize().unwrap().join(path);
        let [model, packages] = ["model", "packages"].map(place);
        for file in ["model/own.so", "packages/ops/shared.so", "packages/own.so", "outside.so"].map(place) {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        std::os::unix::fs::symlink(place("outside.so"), place("model/link.so")).unwrap();
        let named = map(&[(OP_LIBRARY_DIRECTORIES, &format!("{}:", packages.display()))]);
        let directories: Vec<_> =
            std::iter::once(model.clone()).chain(named_op_directories(&named)).collect();
        assert_eq!(directories, [model.clone(), packages.clone()]);
        let find = |name: &str| op_libraries(&[name.to_owned()], &directories);
        let whole = packages.join("ops/shared.so");
        for (name, found) in [
            ("own.so", model.join("own.so")),
            ("../packages/own.so", packages.join("own.so")),
            ("ops/shared.so", whole.clone()),
            (whole.to_str().unwrap(), whole.clone()),
        ] {
            assert_eq!(find(name), Ok(vec![found]));
        }
        for name in ["../outside.so", "link.so", place("outside.so").to_str().unwrap()] {
            let outside = find(name).unwrap_err();
            assert_eq!(outside.code, vocabulary::ErrorCode::Unsupported);
            assert!(outside.message.contains(OP_LIBRARY_DIRECTORIES), "{outside}");
        }
        let missing = find("missing.so").unwrap_err();
        assert_eq!(missing.code, vocabulary::ErrorCode::NotFound);
        assert!(
            missing.message.ends_with(&format!("'{}', '{}'", model.display(), packages.display())),
            "{missing}"
        );
    }
}
