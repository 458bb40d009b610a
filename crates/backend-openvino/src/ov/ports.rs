//! The inputs and outputs of a model.
use std::ptr::{self, NonNull};

use vocabulary::{Name, Shape};

use super::{
    OpenVino, OvError, PortElement,
    failure::not_null,
    sys::{self, PortCountFunction, PortFunction},
};

/// Inputs and outputs of a model, in its own order. Tensors of a run have these positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelPorts {
    /// What every run needs.
    pub(crate) inputs: Vec<ModelPort>,
    /// What every run computes.
    pub(crate) outputs: Vec<ModelPort>,
}

impl ModelPorts {
    /// For each output the input that it is. A tensor has its names alone in a model, so they are one if they share a
    /// name.
    pub(super) fn returned_inputs(&self) -> Vec<Option<usize>> {
        let input = |output: &ModelPort| {
            self.inputs.iter().position(|input| output.name.is_some() && input.name == output.name)
        };
        self.outputs.iter().map(input).collect()
    }
}

/// One input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelPort {
    /// One of its names, always the same one; `None` if it has none. The C interface tells no more than one.
    pub(crate) name: Option<Name>,
    /// The type of its elements.
    pub(crate) element: PortElement,
    /// Its shape; -1 stands for a dimension that is not fixed. `None` if not even the number of dimensions is.
    pub(crate) shape: Option<Shape>,
}

impl ModelPort {
    /// Whether all its dimensions are known.
    pub(super) fn has_fixed_shape(&self) -> bool {
        self.shape.as_ref().is_some_and(|shape| shape.iter().all(|&dim| dim >= 0))
    }
}

/// The functions that describe the inputs or the outputs of a model.
pub(super) struct PortGroup<'a, T> {
    pub(super) openvino: &'a OpenVino,
    /// The live model.
    pub(super) model: NonNull<T>,
    pub(super) count: PortCountFunction<T>,
    pub(super) port: PortFunction<T>,
    /// Whether they are inputs or outputs, for errors.
    pub(super) kind: &'static str,
}

impl<T> PortGroup<'_, T> {
    /// Reads all of the group.
    pub(super) fn read(&self) -> Result<Vec<ModelPort>, OvError> {
        let mut count = 0;
        // SAFETY: the model lives; `count` is writable.
        let status = unsafe { (self.count)(self.model.as_ptr(), &raw mut count) };
        self.openvino.check(status, || format!("count the {}s", self.kind))?;
        (0..count).map(|index| self.read_one(index)).collect()
    }

    fn read_one(&self, index: usize) -> Result<ModelPort, OvError> {
        let mut port = ptr::null_mut();
        // SAFETY: the model lives, `index` is below the count, `port` is writable.
        let status = unsafe { (self.port)(self.model.as_ptr(), index, &raw mut port) };
        self.openvino.check(status, || format!("read {} {index}", self.kind))?;
        let port = OwnedPort { pointer: not_null(port, self.kind)?, openvino: self.openvino };
        Ok(ModelPort { name: port.name(), element: port.element()?, shape: port.shape()? })
    }
}

/// The library's description of an input or output.
pub(super) struct OwnedPort<'a> {
    pub(super) pointer: NonNull<sys::ov_output_const_port>,
    pub(super) openvino: &'a OpenVino,
}

impl OwnedPort<'_> {
    /// The only reason for which the call fails is that there is no name.
    pub(super) fn name(&self) -> Option<Name> {
        let mut text = ptr::null_mut();
        // SAFETY: the port lives; `text` is writable. The text belongs to this function.
        unsafe {
            let status =
                (self.openvino.functions().ov_port_get_any_name)(self.pointer.as_ptr(), &raw mut text);
            self.openvino.check(status, String::new).ok()?;
            let name = self.openvino.take_text(text).ok()?;
            Some(Name::new(&name.to_string_lossy()))
        }
    }

    fn element(&self) -> Result<PortElement, OvError> {
        let mut number = 0;
        // SAFETY: the port lives; `number` is writable.
        let status = unsafe {
            (self.openvino.functions().ov_port_get_element_type)(self.pointer.as_ptr(), &raw mut number)
        };
        self.openvino.check(status, || "read an element type".to_owned())?;
        Ok(self.openvino.element_numbers().element(number))
    }

    fn shape(&self) -> Result<Option<Shape>, OvError> {
        let unknown = sys::ov_dimension { min: 0, max: -1 };
        let mut partial = sys::ov_partial_shape { rank: unknown, dims: ptr::null_mut() };
        // SAFETY: the port lives; `partial` is writable.
        let status = unsafe {
            (self.openvino.functions().ov_port_get_partial_shape)(self.pointer.as_ptr(), &raw mut partial)
        };
        self.openvino.check(status, || "read a shape".to_owned())?;
        let sys::ov_partial_shape { rank, dims } = partial;
        let rank = usize::try_from(rank.min).ok().filter(|_| rank.min == rank.max);
        let shape = rank.map(|rank| {
            // SAFETY: a shape with that many dimensions has an array of them; one without any may have no array.
            let dims = if rank == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(dims, rank) } };
            dims.iter().map(|dim| if dim.min == dim.max { dim.min } else { -1 }).collect()
        });
        // SAFETY: the call above has filled it; freed once, after the dimensions have been copied.
        unsafe { (self.openvino.functions().ov_partial_shape_free)(&raw mut partial) };
        Ok(shape)
    }
}

impl Drop for OwnedPort<'_> {
    fn drop(&mut self) {
        // SAFETY: this value owns the port and frees it once.
        unsafe { (self.openvino.functions().ov_output_const_port_free)(self.pointer.as_ptr()) };
    }
}
