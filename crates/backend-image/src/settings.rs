//! What a model does with pictures, from its configuration.
use std::num::NonZeroU32;

use config::{InputSpec, ModelConfig, OutputSpec, Scheduling, SettingRefusal};
use vocabulary::{DataType, Name, Shape};

use crate::{
    layout::{PictureLayout, PixelValues},
    parameters::{MAX_PIXELS, MEAN, PictureParameters, ResizeMode, SCALE, STD},
};

/// The backend's name in configurations.
pub(crate) const BACKEND_NAME: &str = "image";

/// The checked configuration of one model.
#[derive(Debug)]
pub(crate) struct PictureSettings {
    pub(crate) model: Name,
    pub(crate) input: Name,
    pub(crate) output: Name,
    pub(crate) datatype: DataType,
    /// The shape of the output that clients see, without the batch dimension.
    pub(crate) dims: Shape,
    /// `None`: tensors have no batch dimension.
    pub(crate) max_batch_size: Option<NonZeroU32>,
    pub(crate) layout: PictureLayout,
    pub(crate) resize: ResizeMode,
    pub(crate) values: PixelValues,
    pub(crate) max_pixels: u64,
}

/// The longest side of an output.
const MAX_SIDE: u32 = 65535;

impl PictureSettings {
    /// Checks the configuration of a model.
    ///
    /// # Errors
    /// The rule that the configuration breaks.
    pub(crate) fn of(config: &ModelConfig) -> Result<Self, SettingRefusal> {
        let refuse = |field: &str, rule: &str| {
            let text = format!("model '{}' of backend '{BACKEND_NAME}' {rule}", config.name);
            SettingRefusal { field: field.to_owned(), text }
        };
        let [input] = &config.inputs[..] else {
            return Err(refuse("input", &format!("must have one input, but it has {}", config.inputs.len())));
        };
        let [output] = &config.outputs[..] else {
            return Err(refuse(
                "output",
                &format!("must have one output, but it has {}", config.outputs.len()),
            ));
        };
        check_input(input).map_err(|rule| refuse("input[0]", &rule))?;
        if !config.batch_inputs.is_empty() || !config.batch_outputs.is_empty() {
            let field = if config.batch_inputs.is_empty() { "batch_output" } else { "batch_input" };
            return Err(refuse(field, "must not have batch_input or batch_output"));
        }
        if let Scheduling::Sequence(_) = config.scheduling {
            return Err(refuse(
                "sequence_batching",
                "must not have sequence_batching, because pictures do not depend on each other",
            ));
        }
        let dims = output.reshape.as_ref().unwrap_or(&output.dims);
        let layout = layout(output, dims).map_err(|rule| refuse("output[0]", &rule))?;
        let parameters = PictureParameters { model: &config.name, values: &config.parameters };
        let max_pixels = parameters.max_pixels()?;
        if u64::from(layout.width) * u64::from(layout.height) > max_pixels {
            let rule = format!(
                "must not have an output of more pixels than parameter '{MAX_PIXELS}' allows ({max_pixels}), but the dims of \
                 '{}' are {dims:?}",
                output.name
            );
            return Err(refuse("output[0].dims", &rule));
        }
        Ok(Self {
            model: config.name.clone(),
            input: input.name.clone(),
            output: output.name.clone(),
            datatype: output.datatype,
            dims: output.client_shape(dims, false),
            max_batch_size: config.max_batch_size,
            layout,
            resize: parameters.resize()?,
            values: pixel_values(&parameters, output, layout.channels)?,
            max_pixels,
        })
    }
}

/// Returns the broken rule.
fn check_input(input: &InputSpec) -> Result<(), String> {
    let name = &input.name;
    let dims = input.reshape.as_ref().unwrap_or(&input.dims);
    if input.datatype != DataType::Bytes || dims[..] != [1] {
        return Err(format!(
            "must have an input of TYPE_STRING with dims [1], one picture for each row, but '{name}' is {} with dims \
             {dims:?}",
            input.datatype.config_name()
        ));
    }
    if input.optional {
        return Err(format!("must not have an optional input, but '{name}' is optional"));
    }
    Ok(())
}

/// Returns the broken rule.
fn layout(output: &OutputSpec, dims: &Shape) -> Result<PictureLayout, String> {
    let name = &output.name;
    if !matches!(output.datatype, DataType::Uint8 | DataType::Fp32) {
        return Err(format!(
            "must have an output of TYPE_UINT8 or TYPE_FP32, but '{name}' is {}",
            output.datatype.config_name()
        ));
    }
    let layout = PictureLayout::of(dims).filter(|layout| layout.width.max(layout.height) <= MAX_SIDE);
    layout.ok_or_else(|| {
        format!(
            "must have an output with dims [H, W, C] or [C, H, W], C being 3 for colours or 1 for grey, and H and W from 1 \
             to {MAX_SIDE}, but the dims of '{name}' are {dims:?}"
        )
    })
}

fn pixel_values(
    parameters: &PictureParameters<'_>,
    output: &OutputSpec,
    channels: usize,
) -> Result<PixelValues, SettingRefusal> {
    if output.datatype == DataType::Fp32 {
        let (mean, std) = (parameters.mean(channels)?, parameters.std(channels)?);
        return Ok(PixelValues::normalised(parameters.scale()?, &mean, &std));
    }
    for parameter in [MEAN, STD] {
        parameters.refuse_for_bytes(parameter, &output.name)?;
    }
    // 1 is the default, and changes nothing.
    if parameters.scale()? != 1.0 {
        parameters.refuse_for_bytes(SCALE, &output.name)?;
    }
    Ok(PixelValues::Bytes)
}
