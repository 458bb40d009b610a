//! Element types by the numbers of OpenVINO's C interface, and their datatypes.
use std::{
    fmt::Write,
    ptr::{self, NonNull},
};

use vocabulary::DataType;

use super::{
    OvError,
    failure::{check, not_null},
    sys::{self, FunctionTable, ov_element_type},
};
use crate::element_names::element_names;

/// The type of the elements of an input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortElement {
    /// A type that the protocols have.
    Known(DataType),
    /// A type without a datatype, or no fixed type, by the number of this release of the library.
    Other(u32),
}

impl PortElement {
    /// The datatype; `None` if the element type has none.
    pub(crate) fn datatype(self) -> Option<DataType> {
        match self {
            Self::Known(datatype) => Some(datatype),
            Self::Other(_) => None,
        }
    }

    /// The protocol's name, or the library's number for a type that the protocols lack.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Known(datatype) => datatype.protocol_name().to_owned(),
            Self::Other(number) => format!("OPENVINO_{number}"),
        }
    }
}

/// The numbers of element types in one release of the library, in the order of [`DataType::ALL`].
///
/// Releases have changed the numbers, the last time 2025.1, and the library does not tell which it has. With other
/// numbers a run would take integers for floats. So the library is asked: it reads a graph with an input of each type,
/// and tells the types of the inputs by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ElementNumbers(Vec<ov_element_type>);

impl ElementNumbers {
    /// Asks the library.
    pub(super) fn of(functions: &FunctionTable, core: NonNull<sys::ov_core>) -> Result<Self, OvError> {
        let step = || "ask for the numbers of element types".to_owned();
        let (text, mut model) = (graph_of_all_types(), ptr::null_mut());
        // SAFETY: the core lives; the text is as long as the argument says and is copied; there are no weights; `model`
        // is writable.
        let status = unsafe {
            (functions.ov_core_read_model_from_memory_buffer)(
                core.as_ptr(),
                text.as_ptr().cast(),
                text.len(),
                ptr::null(),
                &raw mut model,
            )
        };
        check(functions, status, step)?;
        let model = not_null(model, "model")?;
        let numbers = (0..DataType::ALL.len()).map(|index| {
            let (mut port, mut number) = (ptr::null_mut(), 0);
            // SAFETY: the model lives and has as many inputs; `port` and `number` are writable. The port belongs to
            // this function, which frees it once.
            unsafe {
                let status = (functions.ov_model_const_input_by_index)(model.as_ptr(), index, &raw mut port);
                check(functions, status, step)?;
                let status = (functions.ov_port_get_element_type)(port, &raw mut number);
                (functions.ov_output_const_port_free)(port);
                check(functions, status, step)?;
            }
            Ok(number)
        });
        let numbers = numbers.collect::<Result<Vec<_>, OvError>>();
        // SAFETY: this function owns the model and frees it once.
        unsafe { (functions.ov_model_free)(model.as_ptr()) };
        Ok(Self(numbers?))
    }

    /// The library's number for a datatype.
    pub(super) fn number(&self, datatype: DataType) -> Result<ov_element_type, OvError> {
        let position = DataType::ALL.iter().position(|&other| other == datatype);
        let number = position.and_then(|position| self.0.get(position)).copied();
        number.ok_or_else(|| {
            OvError::invalid_argument(format!("no element type for {}", datatype.protocol_name()))
        })
    }

    /// The element type of a number.
    pub(super) fn element(&self, number: ov_element_type) -> PortElement {
        let position = self.0.iter().position(|&other| other == number);
        position.map_or(PortElement::Other(number), |position| PortElement::Known(DataType::ALL[position]))
    }
}

/// A graph in the library's own format (IR 11), with an input of each datatype in the order of [`DataType::ALL`].
fn graph_of_all_types() -> String {
    let (mut layers, mut edges) = (String::new(), String::new());
    for (position, datatype) in DataType::ALL.into_iter().enumerate() {
        let (element, precision) = element_names(datatype);
        let (input, result) = (2 * position, 2 * position + 1);
        let port = format!(r#"<port id="0" precision="{precision}"><dim>1</dim></port>"#);
        let _ = writeln!(
            layers,
            r#"<layer id="{input}" name="{element}" type="Parameter" version="opset1">
<data shape="1" element_type="{element}"/><output>{port}</output></layer>
<layer id="{result}" name="of_{element}" type="Result" version="opset1"><input>{port}</input></layer>"#
        );
        let _ =
            writeln!(edges, r#"<edge from-layer="{input}" from-port="0" to-layer="{result}" to-port="0"/>"#);
    }
    format!(
        r#"<?xml version="1.0"?><net name="types" version="11"><layers>{layers}</layers><edges>{edges}</edges></net>"#
    )
}
