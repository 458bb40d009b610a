//! Gives the inputs of a graph the shapes that the configuration asks for, before the graph is compiled.
use vocabulary::{Error, Shape};

use crate::{
    ov::{ModelGraph, ModelPort, OvError},
    settings::OpenVinoSettings,
};

/// Opens the first dimension of all inputs if the configuration has batches. With `RESHAPE_IO_LAYERS`, inputs get the
/// dims of the configuration.
///
/// # Errors
/// INVALID_ARGUMENT if the graph cannot compute with these shapes, and the library's errors.
pub(crate) fn reshape(
    graph: &mut ModelGraph,
    declared: &proto::ModelConfig,
    settings: &OpenVinoSettings,
) -> Result<(), Error> {
    let ports = graph.ports()?.inputs;
    let mut shapes = Vec::new();
    for (position, port) in ports.iter().enumerate() {
        let configured = if settings.reshapes { configured_shape(graph, declared, position)? } else { None };
        let wanted = configured.or_else(|| batched_shape(port, declared, settings));
        shapes
            .extend(wanted.filter(|shape| port.shape.as_ref() != Some(shape)).map(|shape| (position, shape)));
    }
    if shapes.is_empty() {
        return Ok(());
    }
    graph.reshape(&shapes).map_err(|error| {
        let wanted: Vec<_> = shapes.iter().map(|(_, shape)| vocabulary::shape_text(shape)).collect();
        Error::invalid(format!(
            "model '{}' cannot have inputs of the shapes {} that its configuration asks for: {error}",
            declared.name,
            wanted.join(", ")
        ))
    })
}

/// The shape of an input with an open first dimension.
fn batched_shape(
    port: &ModelPort,
    declared: &proto::ModelConfig,
    settings: &OpenVinoSettings,
) -> Option<Shape> {
    let mut shape = port.shape.clone()?;
    if declared.max_batch_size > 0 && !settings.keeps_batch {
        *shape.first_mut()? = -1;
    }
    Some(shape)
}

/// The shape that the configuration describes for the input at a position.
fn configured_shape(
    graph: &ModelGraph,
    declared: &proto::ModelConfig,
    position: usize,
) -> Result<Option<Shape>, OvError> {
    for input in &declared.input {
        if graph.input_position(&input.name)? != Some(position) {
            continue;
        }
        let dims = input.reshape.as_ref().map_or(&input.dims, |reshape| &reshape.shape);
        if dims.is_empty() && input.reshape.is_none() {
            return Ok(None);
        }
        let batch = (declared.max_batch_size > 0).then_some(-1);
        return Ok(Some(batch.into_iter().chain(dims.iter().copied()).collect()));
    }
    Ok(None)
}
