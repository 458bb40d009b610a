//! The minimal cost of a run: the runtime alone, with inputs and outputs already in memory.
//!
//! Benchmarks compare the server with this baseline. It uses the same wrapper as the backend.
use std::{num::NonZeroUsize, path::Path, sync::Arc};

use native_backend::{AlignedBuffer, LibrarySearch, ValueKind};
use vocabulary::{DataType, Error, ForeignMemory};

use crate::{
    library,
    ort::{InputValue, OutputPlace, OutputValue, RunInput, RunTensor, Session, SessionOptions},
};

/// A session with zeros as inputs. Every run overwrites the same outputs.
pub struct BareLoop {
    session: Arc<Session>,
    inputs: Vec<BaselineInput>,
    outputs: Vec<OutputValue>,
}

struct BaselineInput {
    datatype: DataType,
    shape: Vec<i64>,
    bytes: AlignedBuffer,
    len: usize,
}

impl BareLoop {
    /// Loads a graph. A symbolic dimension becomes `rows` in the first position and 1 in other positions.
    ///
    /// # Errors
    /// A missing library, a missing graph, or an input of strings, which a run cannot reuse.
    pub fn open(
        search: &LibrarySearch,
        model: &Path,
        rows: u32,
        threads: NonZeroUsize,
    ) -> Result<Self, Error> {
        let runtime = library::open(search, &std::collections::BTreeMap::new(), None)?;
        let sleeping = ["session.intra_op.allow_spinning", "session.inter_op.allow_spinning"];
        let entry = |key: &str| Some((std::ffi::CString::new(key).ok()?, c"0".to_owned()));
        let options = SessionOptions {
            intra_threads: threads.get(),
            inter_threads: threads.get(),
            entries: sleeping.into_iter().filter_map(entry).collect(),
            ..SessionOptions::default()
        };
        let session = Session::load(&runtime, model, &options)?;
        let mut inputs = Vec::new();
        for slot in &session.signature().inputs {
            let ValueKind::Tensor(element, dims) = &slot.kind else {
                return Err(Error::invalid(format!("input '{}' is no tensor", slot.name)));
            };
            let datatype = element.datatype();
            let Some((datatype, size)) =
                datatype.and_then(|datatype| Some((datatype, datatype.byte_size()?)))
            else {
                return Err(Error::invalid(format!("input '{}' does not hold numbers", slot.name)));
            };
            let known = |(at, &dim): (usize, &i64)| {
                if dim >= 0 {
                    dim
                } else if at == 0 {
                    rows.into()
                } else {
                    1
                }
            };
            let shape: Vec<i64> = dims.iter().enumerate().map(known).collect();
            let len = shape.iter().map(|&dim| usize::try_from(dim).unwrap_or(0)).product::<usize>() * size;
            inputs.push(BaselineInput { datatype, shape, bytes: AlignedBuffer::default(), len });
        }
        Ok(Self { session, inputs, outputs: Vec::new() })
    }

    /// Runs a graph of one input and one output of the same shape `count` times, with both in memory that may be used in
    /// place. Returns the number of runs.
    ///
    /// # Errors
    /// The errors of the runtime, and memory that does not fit the input or may not be used in place.
    pub fn run_in_place(
        &mut self,
        input: &ForeignMemory,
        output: &ForeignMemory,
        count: u32,
    ) -> Result<u32, Error> {
        let runtime = self.session.runtime();
        let unfit = || Error::invalid("the memory does not fit the only input and the only output");
        let [BaselineInput { datatype, shape, .. }] = &self.inputs[..] else { return Err(unfit()) };
        let value = InputValue::over_foreign(runtime, *datatype, shape, input)?;
        let inputs = [RunInput { slot: 0, tensor: RunTensor::Numbers(value) }];
        let place = OutputPlace::over(runtime, *datatype, shape, output)?;
        let places = [Some(place)];
        for _ in 0..count {
            self.session.run(None, &inputs, &[0], &places)?;
        }
        Ok(count)
    }

    /// Runs `count` times. Returns the number of runs.
    ///
    /// # Errors
    /// The errors of the runtime.
    pub fn run(&mut self, count: u32) -> Result<u32, Error> {
        let Self { session, inputs, outputs } = self;
        let wanted: Vec<usize> = (0..session.signature().outputs.len()).collect();
        let mut feeds = Vec::new();
        for (slot, input) in inputs.iter_mut().enumerate() {
            let bytes = input.bytes.first(input.len);
            let value = InputValue::over(session.runtime(), input.datatype, &input.shape, bytes)?;
            feeds.push(RunInput { slot, tensor: RunTensor::Numbers(value) });
        }
        for _ in 0..count {
            if outputs.is_empty() {
                let places: Vec<_> = wanted.iter().map(|_| None).collect();
                outputs.extend(session.run(None, &feeds, &wanted, &places)?.into_iter().flatten());
            } else {
                session.run_again(&feeds, &wanted, outputs)?;
            }
        }
        Ok(count)
    }
}
