//! The backend and the forests that it has read.
use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc};

use config::{ConfigErrors, KnownConfigNames, ModelConfig, rule};
use forest::{Forest, ReadOptions};
use inference::backend::{
    Backend, BackendModel, BuiltInstance, InstanceDevice, InstanceSpec, MemoryUsage, ModelInspection,
    ModelSource,
};
use vocabulary::{Error, MemoryKind, Name};

use crate::{
    fit::{self, SHAP_OUTPUT},
    instance::{ForestInstance, ForestInstancePlan, PlannedOutput},
    model_file::ModelFile,
    parameters::{BACKEND_NAME, ForestParameters, KNOWN_NAMES},
};

/// The built-in backend for forests of decision trees.
#[derive(Debug, Clone, Copy, Default)]
pub struct ForestBackend;

impl ForestBackend {
    /// The backend's name in configurations.
    pub const NAME: &str = BACKEND_NAME;

    /// `max_batch_size` of models whose configurations set none.
    pub const DEFAULT_MAX_BATCH_SIZE: u32 = fit::DEFAULT_MAX_BATCH_SIZE;
}

impl Backend for ForestBackend {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn known_names(&self) -> Option<KnownConfigNames> {
        Some(KNOWN_NAMES)
    }

    fn inspect(&self, source: &ModelSource) -> Result<Option<Box<dyn ModelInspection>>, Error> {
        Ok(Some(Box::new(ServedForest::read(source)?)))
    }

    fn open(&self, source: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        let model = ServedForest::read(source)?;
        model.warn();
        Ok(Box::new(model))
    }
}

/// One version of a model. Its instances share the forest.
struct ServedForest {
    name: Name,
    forest: Arc<Forest>,
    parameters: ForestParameters,
    settings: BTreeMap<String, String>,
}

impl ServedForest {
    fn read(source: &ModelSource) -> Result<Self, Error> {
        let parameters = ForestParameters::of(&source.name, &source.parameters())?;
        let file = ModelFile::of(source, &parameters)?;
        let options = ReadOptions {
            allow_unknown_fields: parameters.allows_unknown_fields,
            keep_covers: source.declared.output.iter().any(|output| output.name == SHAP_OUTPUT),
        };
        let forest = Forest::read(file.format, &file.read()?, options)
            .map_err(|error| Error::invalid(format!("unable to read '{}': {error}", file.path.display())))?;
        let settings = source.settings.clone();
        Ok(Self { name: source.name.clone(), forest: Arc::new(forest), parameters, settings })
    }

    fn warn(&self) {
        let names = &self.parameters.without_effect;
        if !names.is_empty() {
            log::warn!("parameters of model '{}' that have no effect here: {}", self.name, names.join(", "));
        }
    }
}

impl ModelInspection for ServedForest {
    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<Option<NonZeroU32>, Error> {
        fit::complete(config, &self.forest, &self.parameters, &self.settings)
    }

    fn check(&self, config: &ModelConfig, errors: &mut ConfigErrors) {
        errors.begin(rule::GRAPH);
        if let Err(refusal) = fit::fits(config, &self.forest, &self.parameters) {
            errors.invalid(&refusal.field, refusal.text);
        }
    }
}

impl BackendModel for ServedForest {
    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<Option<NonZeroU32>, Error> {
        fit::complete(config, &self.forest, &self.parameters, &self.settings)
    }

    fn memory_usage(&self) -> Vec<MemoryUsage> {
        let byte_size = u64::try_from(self.forest.byte_size()).unwrap_or(u64::MAX);
        vec![MemoryUsage { kind: MemoryKind::Cpu, id: 0, byte_size }]
    }

    fn copies_foreign_memory(&self) -> bool {
        true
    }

    fn instance(&self, config: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<BuiltInstance, Error> {
        if let InstanceDevice::Gpu(ordinal) = spec.device {
            let text =
                format!("instance '{}' wants GPU {ordinal}, but forests are computed on the CPU", spec.name);
            return Err(Error::unsupported(text));
        }
        fit::fits(config, &self.forest, &self.parameters)?;
        let [input] = &config.inputs[..] else { return Err(Error::internal("a forest has one input")) };
        let (shap, predictions): (Vec<_>, Vec<_>) =
            config.outputs.iter().partition(|output| output.name == *SHAP_OUTPUT);
        let [output] = predictions[..] else { return Err(Error::internal("a forest has one output")) };
        let planned = |output: &config::OutputSpec| {
            let dims = output.reshape.as_ref().unwrap_or(&output.dims);
            PlannedOutput { name: output.name.clone(), dims: output.client_shape(dims, false) }
        };
        let plan = ForestInstancePlan {
            model: config.name.clone(),
            input: input.name.clone(),
            answer: fit::answer(&self.forest, &self.parameters, output),
            output: planned(output),
            shap: shap.first().map(|output| planned(output)),
            is_batched: config.max_batch_size.is_some(),
            threads: self.parameters.threads.unwrap_or(usize::MAX).min(spec.threads.get()),
        };
        Ok(BuiltInstance::Movable(Box::new(ForestInstance::new(self.forest.clone(), plan))))
    }
}
