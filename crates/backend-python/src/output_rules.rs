//! How the outputs of a model are compared with its configuration.
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use config::ModelConfig;
use vocabulary::{Error, FailureReason};

use crate::wire::messages::WireTensor;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct OutputRules {
    /// An output that contradicts the configuration is an error. Otherwise the log has one warning.
    pub(crate) are_strict: bool,
    has_warned: AtomicBool,
}

impl OutputRules {
    pub(crate) fn new(are_strict: bool) -> Self {
        Self { are_strict, has_warned: AtomicBool::new(false) }
    }

    /// Compares an output with the configuration.
    ///
    /// # Errors
    /// The output contradicts the configuration, and the rules are strict.
    pub(crate) fn check(&self, tensor: &WireTensor<'_>, config: &ModelConfig) -> Result<(), Error> {
        let Some(contradiction) = contradiction(tensor, config) else { return Ok(()) };
        if self.are_strict {
            return Err(Error::internal(contradiction).because(FailureReason::Backend));
        }
        if !self.has_warned.swap(true, Relaxed) {
            log::warn!(
                "{contradiction}; the response has the output as it is (parameter STRICT_OUTPUTS makes it an error)"
            );
        }
        Ok(())
    }
}

fn contradiction(tensor: &WireTensor<'_>, config: &ModelConfig) -> Option<String> {
    let output = config.outputs.iter().find(|output| *output.name == *tensor.name)?;
    let what = || format!("output '{}' of model '{}'", output.name, config.name);
    if output.datatype != tensor.datatype {
        return Some(format!(
            "{} has datatype {}, but the configuration has {}",
            what(),
            tensor.datatype.protocol_name(),
            output.datatype.protocol_name()
        ));
    }
    let dims = output.reshape.as_ref().unwrap_or(&output.dims);
    let has_batch_dimension = config.max_batch_size.is_some() && !output.is_shape_tensor;
    let shape = match (&tensor.shape[..], has_batch_dimension) {
        (shape, false) => Some(shape),
        ([_, shape @ ..], true) => Some(shape),
        ([], true) => None,
    };
    let fits = shape.is_some_and(|shape| {
        shape.len() == dims.len() && shape.iter().zip(dims).all(|(is, dim)| *dim == -1 || is == dim)
    });
    (!fits).then(|| {
        let batch = if has_batch_dimension { "a batch of " } else { "" };
        format!(
            "{} has shape {:?}, but the configuration has {batch}{:?}",
            what(),
            &tensor.shape[..],
            &dims[..]
        )
    })
}
