//! `model_warmup`.
use std::num::NonZeroU32;

use proto::{
    ModelWarmup,
    model_warmup::{Input, input::InputDataType},
};
use vocabulary::DataType;

use super::{
    super::{Warmup, WarmupData, WarmupInput},
    ConfigConversion,
};

impl ConfigConversion<'_> {
    pub(super) fn warmups(&mut self, config: &proto::ModelConfig) -> Vec<Warmup> {
        let mut warmups = Vec::with_capacity(config.model_warmup.len());
        for (position, warmup) in config.model_warmup.iter().enumerate() {
            let field = format!("model_warmup[{position}]");
            warmups.push(Warmup {
                name: self.name(&format!("{field}.name"), &warmup.name),
                batch_size: warmup.batch_size,
                count: NonZeroU32::new(warmup.count).unwrap_or(NonZeroU32::MIN),
                inputs: self.warmup_inputs(&field, warmup),
            });
        }
        warmups
    }

    fn warmup_inputs(&mut self, warmup_field: &str, warmup: &ModelWarmup) -> Vec<WarmupInput> {
        if warmup.batch_size == 0 {
            // As Triton: the content of a skipped sample is not checked.
            return Vec::new();
        }
        let inputs = warmup.inputs.iter();
        inputs.map(|(name, input)| self.warmup_input(warmup_field, name, input)).collect()
    }

    fn warmup_input(&mut self, warmup_field: &str, name: &str, input: &Input) -> WarmupInput {
        let field = format!("{warmup_field}.inputs.{name}");
        let datatype = self.datatype(&format!("{field}.data_type"), input.data_type);
        let data = match &input.input_data_type {
            Some(InputDataType::InputDataFile(file)) => WarmupData::File(file.clone()),
            Some(InputDataType::RandomData(_)) if datatype != DataType::Bytes => WarmupData::Random,
            Some(InputDataType::RandomData(_) | InputDataType::ZeroData(_)) => WarmupData::Zero,
            None => {
                debug_assert!(false, "a rule demands that the data be told");
                WarmupData::Zero
            }
        };
        WarmupInput {
            name: self.given_name(&format!("{warmup_field}.inputs"), name),
            datatype,
            dims: self.made_dims(&format!("{field}.dims"), &input.dims, datatype),
            data,
        }
    }
}
