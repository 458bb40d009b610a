//! Runs with and without the wrapper, for benchmarks: what the wrapper costs.
use std::{collections::BTreeMap, num::NonZeroUsize, path::Path, sync::Arc};

use native_backend::LibrarySearch;
use vocabulary::{DataType, Error, ForeignMemory};

use crate::{
    library,
    ov::{BareRun, CompileOptions, CompiledModel, InferRequest, ModelGraph, OutputTarget, OvInput, RunPlace},
};

/// A model of FP32 tensors with one input and one output, with a request for each way to run it.
pub struct RunOverhead {
    model: Arc<CompiledModel>,
    bare: BareRun,
    wrapped: InferRequest,
    input_shape: Vec<i64>,
    output_shape: Vec<i64>,
    input: ForeignMemory,
    output: ForeignMemory,
}

impl RunOverhead {
    /// Reads a model and compiles it for one thread, for a batch of that many rows.
    ///
    /// # Errors
    /// A missing library, a missing model, or a model that has other inputs and outputs.
    pub fn open(library: &Path, model: &Path, rows: u32) -> Result<Self, Error> {
        let search = LibrarySearch { named: Some(library.to_owned()), ..LibrarySearch::default() };
        let openvino = library::open(&search, &BTreeMap::new())?;
        let mut graph = ModelGraph::read(&openvino, model)?;
        let dims = graph.ports()?.inputs.first().and_then(|port| port.shape.clone());
        let mut shape = dims.ok_or_else(|| Error::invalid("the model has no input of known rank"))?;
        if let Some(batch) = shape.first_mut() {
            *batch = rows.into();
        }
        graph.reshape(&[(0, shape)])?;
        let model = CompiledModel::compile(&graph, &CompileOptions::processors(NonZeroUsize::MIN))?;
        let ports = model.ports();
        let dims = |ports: &[crate::ov::ModelPort]| match ports {
            [port] if port.element.datatype() == Some(DataType::Fp32) => {
                port.shape.as_ref().map(|dims| dims.to_vec())
            }
            _ => None,
        };
        let refusal =
            || Error::invalid("the model has other tensors than one FP32 input and one FP32 output");
        let input_shape = dims(&ports.inputs).ok_or_else(refusal)?;
        let output_shape = dims(&ports.outputs).ok_or_else(refusal)?;
        let zeros = |shape: &[i64]| {
            let count =
                shape.iter().try_fold(1, |count: usize, &dim| count.checked_mul(usize::try_from(dim).ok()?));
            count.and_then(|count| ForeignMemory::zeroed(count.checked_mul(4)?)).ok_or_else(refusal)
        };
        Ok(Self {
            bare: BareRun::new(InferRequest::new(&model)?)?,
            wrapped: InferRequest::new(&model)?,
            input: zeros(&input_shape)?,
            output: zeros(&output_shape)?,
            input_shape,
            output_shape,
            model,
        })
    }

    /// How many values an input has.
    pub fn input_len(&self) -> usize {
        self.input.byte_size() / 4
    }

    /// Runs the bare calls that often, over the same tensors.
    ///
    /// # Errors
    /// Those of the library.
    pub fn run_bare(&mut self, rounds: u32) -> Result<(), Error> {
        (0..rounds).try_for_each(|_| Ok(self.bare.run()?))
    }

    /// Runs through the wrapper that often, over the same input and into the same place.
    ///
    /// # Errors
    /// Those of the library.
    pub fn run_wrapped(&mut self, rounds: u32) -> Result<(), Error> {
        let openvino = self.model.openvino();
        let (inputs, outputs) = (&self.input_shape, &self.output_shape);
        let refusal = || Error::internal("memory of the heap is aligned");
        for _ in 0..rounds {
            let input = OvInput::over_foreign(openvino, DataType::Fp32, inputs, &self.input)?;
            let place = RunPlace::over_foreign(openvino, DataType::Fp32, outputs, &self.output)?;
            let target = OutputTarget::Place(place.ok_or_else(refusal)?);
            self.wrapped.run(&[input.ok_or_else(refusal)?], &[target])?;
        }
        Ok(())
    }

    /// The output for an input, which has as many values as the model needs.
    ///
    /// # Errors
    /// Those of the library; another number of values.
    pub fn compute(&mut self, input: &[f32]) -> Result<Vec<f32>, Error> {
        let bytes: Vec<u8> = input.iter().flat_map(|value| value.to_ne_bytes()).collect();
        if bytes.len() != self.input.byte_size() {
            let needed = self.input.byte_size() / 4;
            return Err(Error::invalid(format!("{} values for an input of {needed}", input.len())));
        }
        self.input.write(&bytes.into())?;
        self.run_wrapped(1)?;
        let bytes = self.output.read()?;
        Ok(bytes
            .chunks_exact(4)
            .map(|value| f32::from_ne_bytes([value[0], value[1], value[2], value[3]]))
            .collect())
    }
}
