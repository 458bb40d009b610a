//! The inputs of a model, as the server reports them, and the shapes for a request.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// A model's inputs as its metadata and configuration describe them.
#[derive(Debug, PartialEq)]
pub(crate) struct TargetModel {
    pub(crate) inputs: Vec<ModelInput>,
    pub(crate) outputs: Vec<ModelInput>,
    /// 0 if the model has no batch dimension.
    pub(crate) max_batch_size: u64,
    pub(crate) traits: ModelTraits,
}

/// What the configuration says about the requests that a model takes.
#[derive(Debug, PartialEq, Default, Clone)]
pub(crate) struct ModelTraits {
    /// Inputs that a request may leave out.
    pub(crate) optional_inputs: BTreeSet<String>,
    /// Requests must belong to sequences.
    pub(crate) has_sequences: bool,
    /// A request has any number of responses.
    pub(crate) is_decoupled: bool,
    pub(crate) has_cache: bool,
    /// The models of an ensemble.
    pub(crate) composing_models: Vec<String>,
}

/// One input or output. -1 in `shape` stands for any size. If the model has a batch dimension, it comes first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelInput {
    pub(crate) name: String,
    pub(crate) datatype: String,
    pub(crate) shape: Vec<i64>,
}

impl TargetModel {
    /// Reads the bodies of `GET /v2/models/M` and `GET /v2/models/M/config`.
    pub(crate) fn from_json(metadata: &[u8], config: &[u8]) -> Result<TargetModel> {
        let metadata: Value = serde_json::from_slice(metadata).context("the model metadata is not JSON")?;
        let config: Value = serde_json::from_slice(config).context("the model configuration is not JSON")?;
        let inputs = metadata["inputs"].as_array().context("the model metadata names no inputs")?;
        let outputs = metadata["outputs"].as_array().into_iter().flatten();
        Ok(TargetModel {
            inputs: inputs.iter().map(tensor_from_json).collect::<Result<_>>()?,
            outputs: outputs.map(tensor_from_json).collect::<Result<_>>()?,
            max_batch_size: config["max_batch_size"].as_u64().unwrap_or(0),
            traits: traits_from_json(&config),
        })
    }

    /// Reads the responses of `ModelMetadata` and `ModelConfig`.
    pub(crate) fn from_messages(
        metadata: proto::ModelMetadataResponse,
        config: proto::ModelConfigResponse,
    ) -> TargetModel {
        let tensors = |tensors: Vec<proto::model_metadata_response::TensorMetadata>| {
            let read = |tensor: proto::model_metadata_response::TensorMetadata| ModelInput {
                name: tensor.name,
                datatype: tensor.datatype,
                shape: tensor.shape,
            };
            tensors.into_iter().map(read).collect()
        };
        let config = config.config.unwrap_or_default();
        TargetModel {
            inputs: tensors(metadata.inputs),
            outputs: tensors(metadata.outputs),
            max_batch_size: u64::try_from(config.max_batch_size).unwrap_or(0),
            traits: traits_from_message(config),
        }
    }

    /// Checks what the command line says about the inputs.
    ///
    /// # Errors
    /// A shape belongs to no input, or the batch is larger than the model accepts.
    pub(crate) fn check(&self, batch: u64, shapes: &BTreeMap<String, Vec<i64>>) -> Result<()> {
        if let Some(unknown) =
            shapes.keys().find(|name| !self.inputs.iter().any(|input| &input.name == *name))
        {
            bail!("--shape names '{unknown}', but the model's inputs are {}", self.names());
        }
        match self.max_batch_size {
            0 => ensure!(batch == 1, "the model has no batch dimension: --batch must be 1"),
            most => ensure!(batch <= most, "the model takes batches of at most {most}, --batch is {batch}"),
        }
        Ok(())
    }

    /// The shape of a tensor of the model, without the batch dimension.
    pub(crate) fn own_shape<'t>(&self, tensor: &'t ModelInput) -> &'t [i64] {
        match self.max_batch_size {
            0 => &tensor.shape,
            _ => tensor.shape.get(1..).unwrap_or_default(),
        }
    }

    /// The shape of a tensor in a request: with the batch dimension, if the model has one.
    ///
    /// # Errors
    /// The batch is too large.
    pub(crate) fn batched(&self, row: &[i64], batch: u64) -> Result<Vec<i64>> {
        let batch = i64::try_from(batch).context("--batch is too large")?;
        let dimension = (self.max_batch_size > 0).then_some(batch);
        Ok(dimension.into_iter().chain(row.iter().copied()).collect())
    }

    /// The shape of a row, with a size for every -1. `origin` names the source of `given`.
    ///
    /// # Errors
    /// A size is missing or contradicts the model.
    pub(crate) fn row_shape(
        &self,
        tensor: &ModelInput,
        given: Option<&Vec<i64>>,
        origin: &str,
    ) -> Result<Vec<i64>> {
        let (own, name) = (self.own_shape(tensor), &tensor.name);
        let shape = match given {
            Some(given) => {
                let fits = |(own, given): (&i64, &i64)| *own == -1 || own == given;
                ensure!(
                    given.len() == own.len() && own.iter().zip(given).all(fits),
                    "{origin} {name}:{given:?} does not fit the model's {own:?}"
                );
                given.clone()
            }
            None => own.to_vec(),
        };
        ensure!(
            shape.iter().all(|&dimension| dimension >= 0),
            "input '{name}' has variable dimensions {own:?}: give all sizes, as in --shape {name}:{}",
            own.iter().map(|size| size.abs().to_string()).collect::<Vec<_>>().join(",")
        );
        Ok(shape)
    }

    fn names(&self) -> String {
        self.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

fn tensor_from_json(tensor: &Value) -> Result<ModelInput> {
    let text = |key: &str| tensor[key].as_str().map(str::to_owned).with_context(|| missing(key));
    let shape = tensor["shape"].as_array().with_context(|| missing("shape"))?;
    let shape: Option<Vec<i64>> = shape.iter().map(Value::as_i64).collect();
    Ok(ModelInput {
        name: text("name")?,
        datatype: text("datatype")?,
        shape: shape.with_context(|| missing("shape"))?,
    })
}

fn traits_from_json(config: &Value) -> ModelTraits {
    let names = |list: &Value, key: &str, wanted: fn(&Value) -> bool| {
        let list = list.as_array().into_iter().flatten().filter(|entry| wanted(entry));
        list.filter_map(|entry| entry[key].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let sequences = &config["sequence_batching"];
    ModelTraits {
        optional_inputs: names(&config["input"], "name", |input| input["optional"] == true)
            .into_iter()
            .collect(),
        // The requests of an iterative sequence come from the scheduler.
        has_sequences: sequences.is_object() && sequences["iterative_sequence"] != true,
        is_decoupled: config["model_transaction_policy"]["decoupled"] == true,
        has_cache: config["response_cache"]["enable"] == true,
        composing_models: names(&config["ensemble_scheduling"]["step"], "model_name", |_| true),
    }
}

fn traits_from_message(config: proto::ModelConfig) -> ModelTraits {
    use proto::model_config::SchedulingChoice;
    let optional = config.input.into_iter().filter(|input| input.optional);
    let mut traits = ModelTraits {
        optional_inputs: optional.map(|input| input.name).collect(),
        is_decoupled: config.model_transaction_policy.is_some_and(|policy| policy.decoupled),
        has_cache: config.response_cache.is_some_and(|cache| cache.enable),
        ..ModelTraits::default()
    };
    match config.scheduling_choice {
        Some(SchedulingChoice::SequenceBatching(batching)) => {
            traits.has_sequences = !batching.iterative_sequence;
        }
        Some(SchedulingChoice::EnsembleScheduling(ensemble)) => {
            traits.composing_models = ensemble.step.into_iter().map(|step| step.model_name).collect();
        }
        Some(SchedulingChoice::DynamicBatching(_)) | None => {}
    }
    traits
}

fn missing(key: &str) -> String {
    format!("the model metadata has a tensor without a proper '{key}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &[u8] = br#"{"name":"m","versions":["1"],"platform":"p",
        "inputs":[{"name":"A","datatype":"FP32","shape":[-1,16]},{"name":"B","datatype":"BYTES","shape":[-1,-1]}],
        "outputs":[]}"#;

    fn batching() -> TargetModel {
        TargetModel::from_json(METADATA, br#"{"max_batch_size":8}"#).unwrap()
    }

    fn shapes(name: &str, shape: &[i64]) -> BTreeMap<String, Vec<i64>> {
        [(name.to_owned(), shape.to_vec())].into()
    }

    #[test]
    fn metadata_and_configuration_make_a_model() {
        let model = batching();
        assert_eq!(model.max_batch_size, 8);
        assert_eq!(
            model.inputs[1],
            ModelInput { name: "B".into(), datatype: "BYTES".into(), shape: vec![-1, -1] }
        );
    }

    #[test]
    fn the_batch_fills_the_first_dimension_and_the_shape_the_rest() {
        let model = batching();
        let row = model.row_shape(&model.inputs[1], Some(&vec![3]), "--shape").unwrap();
        assert_eq!(model.batched(&row, 4).unwrap(), [4, 3]);
        assert_eq!(model.row_shape(&model.inputs[0], None, "--shape").unwrap(), [16]);
    }

    #[test]
    fn a_model_without_batching_is_given_its_whole_shape() {
        let model = TargetModel::from_json(METADATA, b"{}").unwrap();
        let row = model.row_shape(&model.inputs[0], Some(&vec![2, 16]), "--shape").unwrap();
        assert_eq!(model.batched(&row, 1).unwrap(), [2, 16]);
        assert!(model.check(2, &BTreeMap::new()).unwrap_err().to_string().contains("--batch must be 1"));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_name_of_the_input() {
        let refused = |batch, shapes| batching().check(batch, &shapes).unwrap_err().to_string();
        assert!(refused(9, shapes("B", &[1])).contains("at most 8"));
        assert!(refused(1, shapes("C", &[1])).contains("A, B"));
        let model = batching();
        let refused = |index: usize, given: Option<&Vec<i64>>| {
            model.row_shape(&model.inputs[index], given, "--shape").unwrap_err().to_string()
        };
        assert_eq!(
            refused(1, None),
            "input 'B' has variable dimensions [-1]: give all sizes, as in --shape B:1"
        );
        assert!(refused(0, Some(&vec![15])).contains("--shape A:[15] does not fit"));
    }

    #[test]
    fn the_configuration_tells_what_requests_are() {
        let config = br#"{"input":[{"name":"A"},{"name":"B","optional":true}],
            "sequence_batching":{},"model_transaction_policy":{"decoupled":true},
            "response_cache":{"enable":true}}"#;
        let traits = TargetModel::from_json(METADATA, config).unwrap().traits;
        assert_eq!(traits.optional_inputs, ["B".to_owned()].into());
        assert!(traits.has_sequences && traits.is_decoupled && traits.has_cache);
        let iterative = br#"{"sequence_batching":{"iterative_sequence":true}}"#;
        assert!(!TargetModel::from_json(METADATA, iterative).unwrap().traits.has_sequences);
        let ensemble = br#"{"ensemble_scheduling":{"step":[{"model_name":"x"},{"model_name":"y"}]}}"#;
        assert_eq!(TargetModel::from_json(METADATA, ensemble).unwrap().traits.composing_models, ["x", "y"]);
    }

    #[test]
    fn broken_metadata_is_refused() {
        let refused = |metadata: &[u8]| TargetModel::from_json(metadata, b"{}").unwrap_err().to_string();
        assert!(refused(b"<html>").contains("not JSON"));
        assert!(refused(b"{}").contains("names no inputs"));
        assert!(refused(br#"{"inputs":[{"name":"A","shape":[1]}]}"#).contains("'datatype'"));
        assert!(refused(br#"{"inputs":[{"name":"A","datatype":"FP32","shape":["x"]}]}"#).contains("'shape'"));
    }
}
