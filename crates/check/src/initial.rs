//! Writes a configuration for a model that has none.
use std::{
    path::Path,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use config::{Completion, ConfigSource, DeclaredConfig, ModelLayout, declare, rule};
use inference::backend::{Backend, ModelSource};
use proto::{ModelConfig, text::write};
use repository::layout;

use crate::{CheckOptions, CheckReport, Finding, Severity, backend_choice::built_in, effective::check_one};

/// A configuration for a model, in the text form with comments.
///
/// It has what the model's file tells. `opens_for` lets the backend open the model if its files alone do not tell, and says
/// how long that may take: a model in Python then runs `auto_complete_config`. What takes longer is left behind.
///
/// # Errors
/// The findings that stand against the model.
pub fn initial_config(
    directory: &Path,
    opens_for: Option<Duration>,
    options: &CheckOptions,
) -> Result<String, CheckReport> {
    let ignored = CheckOptions { must_be_complete: false, ..options.clone() };
    let model = check_one(directory, &ignored)?;
    let refuse = |text: String| {
        let finding = Finding::new(Severity::Error, rule::CONFIGURATION, &model.directory, text);
        CheckReport { models: 1, findings: vec![finding.about(&model.name)] }
    };
    let (versions, _) =
        layout::versions(&model.directory).map_err(|error| refuse(error.message.to_string()))?;
    let Some(&version) = versions.keys().next_back() else {
        return Err(refuse(layout::without_versions(&model.directory)));
    };
    let layout = ModelLayout { name: model.name.to_string(), versions };
    let missing = ConfigSource::Missing(&model.directory);
    let declared =
        declare(missing, &layout, Completion::Auto).map_err(|errors| refuse(errors.to_string()))?;
    let mut source = layout::model_source(&model.name, version, &model.directory, declared.config.clone());
    let backend = built_in(options, &mut source);
    let Some(backend) = backend else {
        return Err(refuse(format!(
            "the backend '{}' of the model is not built in, and does not tell what the model's file says",
            declared.config.backend
        )));
    };
    let told = completed(&backend, source, &declared, opens_for).map_err(&refuse)?;
    Ok(rendered(&declared, told))
}

/// What the backend tells of a model.
struct ToldConfig {
    config: ModelConfig,
    /// Inputs or outputs are missing that the backend would add.
    is_partial: bool,
}

fn completed(
    backend: &Arc<dyn Backend>,
    source: ModelSource,
    declared: &DeclaredConfig,
    opens_for: Option<Duration>,
) -> Result<ToldConfig, String> {
    let mut config = declared.to_be_completed();
    let failed = |error: vocabulary::Error| error.message.to_string();
    let inspection = backend.inspect(&source).map_err(failed)?;
    if let Some(inspection) = &inspection {
        inspection.complete_config(&mut config).map_err(failed)?;
    }
    let tells_all = inspection.is_some_and(|inspection| inspection.completes_all());
    if let Some(limit) = opens_for.filter(|_| !tells_all) {
        let config = opened(backend.clone(), source, declared.to_be_completed(), limit)?;
        return Ok(ToldConfig { config, is_partial: false });
    }
    Ok(ToldConfig { config, is_partial: !tells_all })
}

/// What the backend tells of a model that it opens, on a thread of its own.
fn opened(
    backend: Arc<dyn Backend>,
    source: ModelSource,
    mut config: ModelConfig,
    limit: Duration,
) -> Result<ModelConfig, String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let completed = backend.open(&source).and_then(|model| model.complete_config(&mut config));
        let told = completed.map(|_| config).map_err(|error| error.message.to_string());
        // Nobody waits after the limit.
        let _ = sender.send(told);
    });
    match receiver.recv_timeout(limit) {
        Ok(told) => told,
        Err(RecvTimeoutError::Timeout) => {
            Err(format!("the model has not told its configuration within {} s", limit.as_secs_f64()))
        }
        Err(RecvTimeoutError::Disconnected) => Err("the backend has not told the configuration".to_owned()),
    }
}

/// The text of a configuration with what was told. Defaults are left out.
fn rendered(declared: &DeclaredConfig, told: ToldConfig) -> String {
    let ToldConfig { config: told, is_partial } = told;
    let is_empty = told.input.is_empty() && told.output.is_empty();
    let config = ModelConfig {
        name: declared.config.name.clone(),
        backend: declared.config.backend.clone(),
        max_batch_size: told.max_batch_size,
        input: told.input,
        // A list that lacks outputs would hide them.
        output: if is_partial { Vec::new() } else { told.output },
        scheduling_choice: told.scheduling_choice,
        model_transaction_policy: told.model_transaction_policy,
        ..ModelConfig::default()
    };
    // Without the line, the limit of requests is not that of batches.
    let has_limit = config.backend == "onnxruntime" && config.max_batch_size > 0;
    let mut text = write(&config, |path| {
        let says_why = has_limit && path == "max_batch_size";
        says_why
            .then(|| "of a batch and of a request; without this line, requests may have more rows".to_owned())
    });
    if config.max_batch_size == 0 && !is_empty {
        text.push_str("\n# The model is served without batches. Dims include all dimensions of the tensors.\nmax_batch_size: 0\n");
    }
    if is_empty {
        text.push_str(
            "\n# The model does not tell its inputs and outputs. Describe them:\n#\n# input {\n#   name: \"INPUT0\"\n#   \
             data_type: TYPE_FP32\n#   dims: [ -1 ]\n# }\n# output {\n#   name: \"OUTPUT0\"\n#   data_type: TYPE_FP32\n#   dims: [ \
             -1 ]\n# }\n",
        );
    } else if is_partial {
        text.push_str(
            "\n# The graph's file does not tell the shapes of all outputs. The server completes them when it loads the \
             model.\n",
        );
    }
    text
}
