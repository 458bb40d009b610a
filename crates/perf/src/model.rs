//! The inputs of a model, as the server reports them, and the shapes for a request.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// A model's inputs as its metadata and configuration describe them.
#[derive(Debug, PartialEq)]
pub(crate) struct TargetModel {
    pub(crate) inputs: Vec<ModelInput>,
    /// The names of its outputs.
    pub(crate) outputs: Vec<String>,
    /// 0 if the model has no batch dimension.
    pub(crate) max_batch_size: u64,
}

/// One input. -1 in `shape` stands for any size. If the model has a batch dimension, it comes first.
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
        let inputs = inputs
            .iter()
            .map(|input| {
                let text = |key: &str| input[key].as_str().map(str::to_owned).with_context(|| missing(key));
                let shape = input["shape"].as_array().with_context(|| missing("shape"))?;
                let shape: Option<Vec<i64>> = shape.iter().map(Value::as_i64).collect();
                Ok(ModelInput {
                    name: text("name")?,
                    datatype: text("datatype")?,
                    shape: shape.with_context(|| missing("shape"))?,
                })
            })
            .collect::<Result<_>>()?;
        let outputs = metadata["outputs"].as_array().into_iter().flatten();
        let outputs = outputs.filter_map(|output| output["name"].as_str().map(str::to_owned)).collect();
        let max_batch_size = config["max_batch_size"].as_u64().unwrap_or(0);
        Ok(TargetModel { inputs, outputs, max_batch_size })
    }

    /// Reads the responses of `ModelMetadata` and `ModelConfig`.
    pub(crate) fn from_messages(
        metadata: proto::ModelMetadataResponse,
        config: &proto::ModelConfigResponse,
    ) -> TargetModel {
        let inputs = metadata.inputs.into_iter();
        TargetModel {
            outputs: metadata.outputs.into_iter().map(|output| output.name).collect(),
            inputs: inputs
                .map(|input| ModelInput { name: input.name, datatype: input.datatype, shape: input.shape })
                .collect(),
            max_batch_size: config
                .config
                .as_ref()
                .map_or(0, |config| u64::try_from(config.max_batch_size).unwrap_or(0)),
        }
    }

    /// The inputs of a request, with a size for every -1.
    ///
    /// # Errors
    /// A size is missing or contradicts the model, or the batch is larger than the model accepts.
    pub(crate) fn resolve(&self, batch: u64, shapes: &BTreeMap<String, Vec<i64>>) -> Result<Vec<ModelInput>> {
        if let Some(unknown) =
            shapes.keys().find(|name| !self.inputs.iter().any(|input| &input.name == *name))
        {
            bail!("--shape names '{unknown}', but the model's inputs are {}", self.names());
        }
        match self.max_batch_size {
            0 => ensure!(batch == 1, "the model has no batch dimension: --batch must be 1"),
            most => ensure!(batch <= most, "the model takes batches of at most {most}, --batch is {batch}"),
        }
        self.inputs.iter().map(|input| self.resolve_one(input, batch, shapes.get(&input.name))).collect()
    }

    fn resolve_one(&self, input: &ModelInput, batch: u64, given: Option<&Vec<i64>>) -> Result<ModelInput> {
        let batched = self.max_batch_size > 0;
        let own = if batched { input.shape.get(1..).unwrap_or_default() } else { &input.shape[..] };
        let name = &input.name;
        let mut shape = match given {
            Some(given) => {
                let fits = |(own, given): (&i64, &i64)| *own == -1 || own == given;
                ensure!(
                    given.len() == own.len() && own.iter().zip(given).all(fits),
                    "--shape {name}:{given:?} does not fit the model's {own:?}"
                );
                given.clone()
            }
            None => own.to_vec(),
        };
        ensure!(
            shape.iter().all(|&dimension| dimension >= 0),
            "input '{name}' has variable dimensions {own:?}: give --shape {name}:..."
        );
        if batched {
            shape.insert(0, i64::try_from(batch).context("--batch is too large")?);
        }
        Ok(ModelInput { name: name.clone(), datatype: input.datatype.clone(), shape })
    }

    fn names(&self) -> String {
        self.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

fn missing(key: &str) -> String {
    format!("the model metadata has an input without a proper '{key}'")
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
        let inputs = batching().resolve(4, &shapes("B", &[3])).unwrap();
        assert_eq!(inputs[0].shape, [4, 16]);
        assert_eq!(inputs[1].shape, [4, 3]);
    }

    #[test]
    fn a_model_without_batching_is_given_its_whole_shape() {
        let model = TargetModel::from_json(METADATA, b"{}").unwrap();
        let shapes = [("A".to_owned(), vec![2, 16]), ("B".to_owned(), vec![1, 1])].into();
        assert_eq!(model.resolve(1, &shapes).unwrap()[0].shape, [2, 16]);
        assert!(model.resolve(2, &shapes).unwrap_err().to_string().contains("--batch must be 1"));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_name_of_the_input() {
        let refused = |batch, shapes| batching().resolve(batch, &shapes).unwrap_err().to_string();
        assert!(refused(1, BTreeMap::new()).contains("input 'B' has variable dimensions"));
        assert!(refused(9, shapes("B", &[1])).contains("at most 8"));
        assert!(refused(1, shapes("C", &[1])).contains("A, B"));
        assert!(refused(1, shapes("A", &[15])).contains("does not fit"));
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
