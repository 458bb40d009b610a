//! The inputs and outputs of a model as native instances know them.
use native_backend::{ElementType, GraphValue, OtherKind, Signature, ValueKind};
use vocabulary::{DataType, Error, Name, Shape};

use crate::ov::{self, ModelGraph, ModelPort, OvError};

/// The signature of a graph. Each input and output has the name by which the configuration knows it, or else the one
/// that the library tells. A slot is the position in the library's own order.
///
/// # Errors
/// INVALID_ARGUMENT for an input or output without a name, and the library's errors.
pub(crate) fn signature(graph: &ModelGraph, declared: &proto::ModelConfig) -> Result<Signature, Error> {
    let mut ports = graph.ports()?;
    let inputs = declared.input.iter().map(|input| input.name.as_str());
    rename(&mut ports.inputs, inputs, |name| graph.input_position(name))?;
    let outputs = declared.output.iter().map(|output| output.name.as_str());
    rename(&mut ports.outputs, outputs, |name| graph.output_position(name))?;
    let values = |ports: &[ModelPort], side: &str, kind: fn(&ModelPort) -> ValueKind| {
        let value = |(position, port): (usize, &ModelPort)| {
            let name = port.name.clone().ok_or_else(|| unnamed(side, position, &declared.name))?;
            Ok(GraphValue { name, kind: kind(port) })
        };
        ports.iter().enumerate().map(value).collect::<Result<Vec<_>, Error>>()
    };
    Ok(Signature {
        inputs: values(&ports.inputs, "input", input_kind)?,
        overridable: Vec::new(),
        outputs: values(&ports.outputs, "output", output_kind)?,
    })
}

/// The error of an input or output without a name.
pub(crate) fn unnamed(side: &str, position: usize, model: &str) -> Error {
    Error::invalid(format!("{side} {position} of model '{model}' has no name; save the model with names"))
}

/// Gives ports the configured names that the library knows as further names of them.
fn rename<'a>(
    ports: &mut [ModelPort],
    configured: impl Iterator<Item = &'a str>,
    position: impl Fn(&str) -> Result<Option<usize>, OvError>,
) -> Result<(), OvError> {
    for name in configured {
        if ports.iter().any(|port| port.name.as_ref().is_some_and(|told| *told == *name)) {
            continue;
        }
        if let Some(port) = position(name)?.and_then(|position| ports.get_mut(position)) {
            port.name = Some(Name::new(name));
        }
    }
    Ok(())
}

fn input_kind(port: &ModelPort) -> ValueKind {
    let element = match port.element {
        ov::PortElement::Known(datatype) => datatype.into(),
        ov::PortElement::Other(_) => ElementType::new(None, port.element.name()),
    };
    tensor_value(element, port.shape.clone())
}

fn output_kind(port: &ModelPort) -> ValueKind {
    unreadable_output(port.element.datatype()).unwrap_or_else(|| input_kind(port))
}

/// A tensor of an element type and a shape, `None` for any rank.
pub(crate) fn tensor_value(element: ElementType, shape: Option<Shape>) -> ValueKind {
    match shape {
        Some(shape) => ValueKind::Tensor(element, shape),
        None => {
            let tensor = "a known number of dimensions";
            ValueKind::Other(OtherKind { name: "of any rank".into(), noun: "shape", tensor })
        }
    }
}

/// An output that cannot be read because of its type.
pub(crate) fn unreadable_output(datatype: Option<DataType>) -> Option<ValueKind> {
    (datatype == Some(DataType::Bytes)).then(|| {
        ValueKind::Other(OtherKind {
            name: "string".into(),
            noun: "OpenVINO element type",
            tensor: "a type of numbers, because OpenVINO's C interface cannot read strings",
        })
    })
}
