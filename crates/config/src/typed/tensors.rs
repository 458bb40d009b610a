//! Inputs and outputs of the model and of batches.
use std::sync::Arc;

use proto::{ModelTensorReshape, batch_input::Kind as BatchKind};
use vocabulary::{Name, Shape};

use super::{
    super::{BatchInput, BatchInputKind, BatchOutput, InputSpec, OutputSpec},
    ConfigConversion,
};

impl ConfigConversion<'_> {
    pub(super) fn inputs(&mut self, config: &proto::ModelConfig) -> Vec<InputSpec> {
        let mut inputs = Vec::with_capacity(config.input.len());
        for (position, input) in config.input.iter().enumerate() {
            if proto::model_input::Format::try_from(input.format).is_err() {
                self.wrong(&format!("input[{position}].format"), &format!("has no value {}", input.format));
            }
            inputs.push(InputSpec {
                name: self.name(&format!("input[{position}].name"), &input.name),
                datatype: self.datatype(&format!("input[{position}].data_type"), input.data_type),
                dims: input.dims.iter().copied().collect(),
                reshape: shape(input.reshape.as_ref()),
                optional: input.optional,
                allow_ragged_batch: input.allow_ragged_batch,
                is_shape_tensor: input.is_shape_tensor,
            });
        }
        inputs
    }

    pub(super) fn outputs(&mut self, config: &proto::ModelConfig) -> Vec<OutputSpec> {
        let mut outputs = Vec::with_capacity(config.output.len());
        for (position, output) in config.output.iter().enumerate() {
            outputs.push(OutputSpec {
                name: self.name(&format!("output[{position}].name"), &output.name),
                datatype: self.datatype(&format!("output[{position}].data_type"), output.data_type),
                dims: output.dims.iter().copied().collect(),
                reshape: shape(output.reshape.as_ref()),
                label_filename: Some(output.label_filename.clone()).filter(|path| !path.is_empty()),
                labels: Arc::default(),
                is_shape_tensor: output.is_shape_tensor,
            });
        }
        outputs
    }

    pub(super) fn batch_inputs(&mut self, config: &proto::ModelConfig) -> Vec<BatchInput> {
        let mut batch_inputs = Vec::with_capacity(config.batch_input.len());
        for (position, input) in config.batch_input.iter().enumerate() {
            let field = format!("batch_input[{position}]");
            batch_inputs.push(BatchInput {
                kind: match input.kind() {
                    BatchKind::BatchElementCount => BatchInputKind::ElementCount,
                    BatchKind::BatchAccumulatedElementCount => BatchInputKind::AccumulatedElementCount,
                    BatchKind::BatchAccumulatedElementCountWithZero => {
                        BatchInputKind::AccumulatedElementCountWithZero
                    }
                    BatchKind::BatchMaxElementCountAsShape => BatchInputKind::MaxElementCountAsShape,
                    BatchKind::BatchItemShape => BatchInputKind::ItemShape,
                    BatchKind::BatchItemShapeFlatten => BatchInputKind::ItemShapeFlatten,
                },
                target_names: input.target_name.iter().map(|name| self.name(&field, name)).collect(),
                datatype: self.datatype(&field, input.data_type),
                source_input: self.source(&field, &input.source_input),
            });
        }
        batch_inputs
    }

    pub(super) fn batch_outputs(&mut self, config: &proto::ModelConfig) -> Vec<BatchOutput> {
        let mut batch_outputs = Vec::with_capacity(config.batch_output.len());
        for (position, output) in config.batch_output.iter().enumerate() {
            let field = format!("batch_output[{position}]");
            batch_outputs.push(BatchOutput {
                target_names: output.target_name.iter().map(|name| self.name(&field, name)).collect(),
                source_input: self.source(&field, &output.source_input),
            });
        }
        batch_outputs
    }

    fn source(&mut self, field: &str, names: &[String]) -> Name {
        debug_assert_eq!(names.len(), 1, "a rule demands one source");
        names.first().map(|name| self.name(field, name)).unwrap_or_default()
    }
}

fn shape(reshape: Option<&ModelTensorReshape>) -> Option<Shape> {
    reshape.map(|reshape| reshape.shape.iter().copied().collect())
}
