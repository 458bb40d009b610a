//! Warns about names in a configuration that only a backend can check and that look misspelt.
//!
//! A configuration may contain parameters for other readers. So this module warns about a name that the backend does
//! not know only if the name is close to one that the backend knows.
use proto::{did_you_mean, nearest};

use super::typed::{MOST_UNREAD_RESPONSES, caching, memory};

/// The parameters that the server reads itself, for models of every backend.
const OF_THE_SERVER: [&str; 9] = [
    caching::TIME_TO_LIVE,
    caching::STALE_TIME,
    caching::MAX_ANSWER_BYTES,
    caching::QUOTA_BYTES,
    caching::DECOUPLED,
    MOST_UNREAD_RESPONSES,
    memory::PINNED,
    memory::PRIORITY,
    "TRITON_BATCH_STRATEGY_PATH",
];

/// The names of the parameters that the server reads itself, for models of every backend.
pub const fn server_parameters() -> [&'static str; 9] {
    OF_THE_SERVER
}

/// The settings of `--backend-config` that are accepted for each backend: the server sets them, or they are for GPUs and
/// have no effect.
pub const SETTINGS_OF_ALL_BACKENDS: [&str; 3] =
    ["auto-complete-config", "backend-directory", "min-compute-capability"];

/// The names that a backend understands. A name that ends in an asterisk matches every name with that prefix.
#[derive(Debug, Clone, Copy)]
pub struct KnownConfigNames {
    /// Settings of `--backend-config`, besides [`SETTINGS_OF_ALL_BACKENDS`].
    pub settings: &'static [&'static str],
    /// Parameters of a model's configuration, including those of the server itself.
    pub parameters: &'static [&'static str],
}

/// Accelerators of Triton's backends for instances on GPUs.
const GPU_ACCELERATORS: [&str; 5] = ["tensorrt", "cuda", "auto_io", "gpu_io", "auto_mixed_precision"];

/// A name in a configuration that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownConfigName {
    /// The field, such as `parameters.threads`.
    pub field: String,
    /// The warning. It names the model.
    pub text: String,
    /// The name that was probably meant.
    pub suggestion: Option<String>,
}

/// Parameters and accelerators of a configuration that have no effect.
pub fn misspelt_names(
    config: &proto::ModelConfig,
    known: Option<KnownConfigNames>,
) -> Vec<UnknownConfigName> {
    let mut warnings = Vec::new();
    let model = &config.name;
    if let Some(known) = known {
        let parameters = [known.parameters, &OF_THE_SERVER].concat();
        for parameter in config.parameters.keys().filter(|name| !is_among(name, &parameters)) {
            if let Some(near) = nearest(parameter, parameters.iter().copied()) {
                let text = format!(
                    "parameter '{parameter}' of model '{model}' has no effect: backend '{}' does not know it, did you \
                     mean '{near}'?",
                    config.backend
                );
                let field = format!("parameters.{parameter}");
                warnings.push(UnknownConfigName { field, text, suggestion: Some(near.to_owned()) });
            }
        }
    }
    let accelerators = config.optimization.iter().filter_map(|policy| policy.execution_accelerators.as_ref());
    for accelerator in accelerators.flat_map(|all| &all.gpu_execution_accelerator) {
        let name = &accelerator.name;
        let near = nearest(name, GPU_ACCELERATORS).filter(|near| near != name);
        let suggestion = near.map(str::to_owned);
        let near = did_you_mean(near);
        let text = format!(
            "accelerator '{name}' of model '{model}' has no effect: it is for instances on GPUs, and there are none{near}"
        );
        let field = "optimization.execution_accelerators.gpu_execution_accelerator".to_owned();
        warnings.push(UnknownConfigName { field, text, suggestion });
    }
    warnings
}

/// The warning about a `--backend-config` setting that the backend does not know. The backend must know all its
/// settings.
pub fn unknown_setting(backend: &str, setting: &str, known: KnownConfigNames) -> Option<String> {
    if is_among(setting, known.settings) || is_among(setting, &SETTINGS_OF_ALL_BACKENDS) {
        return None;
    }
    let near = nearest(setting, known.settings.iter().copied().chain(SETTINGS_OF_ALL_BACKENDS));
    let near = did_you_mean(near);
    Some(format!(
        "--backend-config={backend},{setting} has no effect: the backend does not know the setting{near}"
    ))
}

/// The warning about a model that enables the response cache on a server without one.
pub fn unused_cache(model: &str) -> String {
    format!(
        "model '{model}' enables the response cache, which has no effect: the server has none (--cache-config)"
    )
}

/// A known name that ends in an asterisk matches every name with that prefix.
fn is_among(name: &str, known: &[&str]) -> bool {
    known.iter().any(|known| match known.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *known,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: KnownConfigNames = KnownConfigNames {
        settings: &["default-max-batch-size", "session.*"],
        parameters: &["execution_mode", "intra_op_thread_count", "session.*"],
    };

    fn warnings(text: &str) -> Vec<String> {
        let config = proto::text::parse(format!("name: 'm' backend: 'b' {text}").as_bytes()).unwrap().config;
        misspelt_names(&config, Some(KNOWN)).into_iter().map(|name| name.text).collect()
    }

    #[test]
    fn a_misspelt_parameter_is_reported_and_an_unknown_one_is_not() {
        let parameters = |names: &[&str]| -> String {
            names.iter().map(|name| format!("parameters {{ key: '{name}' value {{}} }}")).collect()
        };
        assert!(warnings(&parameters(&["execution_mode", "session.x", "owner"])).is_empty());
        assert_eq!(
            warnings(&parameters(&["intra_op_threads_count"])),
            [
                "parameter 'intra_op_threads_count' of model 'm' has no effect: backend 'b' does not know it, did you mean \
              'intra_op_thread_count'?"
            ]
        );
    }

    #[test]
    fn an_accelerator_for_gpus_gives_a_warning() {
        let text = |name: &str| {
            format!(
                "optimization {{ execution_accelerators {{ gpu_execution_accelerator {{ name: '{name}' }} }} }}"
            )
        };
        let expected = "of model 'm' has no effect: it is for instances on GPUs, and there are none";
        assert_eq!(warnings(&text("tensorrt")), [format!("accelerator 'tensorrt' {expected}")]);
        assert_eq!(
            warnings(&text("tensort")),
            [format!("accelerator 'tensort' {expected}, did you mean 'tensorrt'?")]
        );
    }

    #[test]
    fn an_unknown_setting_gives_a_warning() {
        assert_eq!(unknown_setting("b", "default-max-batch-size", KNOWN), None);
        assert_eq!(unknown_setting("b", "session.y", KNOWN), None);
        assert_eq!(unknown_setting("b", "backend-directory", KNOWN), None);
        let text = |setting| unknown_setting("b", setting, KNOWN).unwrap();
        assert!(text("default-max-batchsize").ends_with("setting, did you mean 'default-max-batch-size'?"));
        assert!(text("colour").ends_with("does not know the setting"));
    }
}
