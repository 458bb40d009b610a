//! Makes the input tensors of a run from the requests of a batch, with at most one copy.
//!
//! If a request runs alone, the runtime uses its input in place, unless the input has several pieces or its address is
//! not aligned for its datatype. Inputs of several requests are copied piece by piece into a buffer that the instance
//! keeps. Foreign memory is always copied, unless its owner allows that libraries use it in place: a graph may read an
//! input twice, and rely on finding the same bytes. There is one exception to the copy for several requests: the inputs are states that an earlier run gave to the same sequences in the same
//! order. The output of that run then contains them as a whole, and the runtime uses it in place. Strings are always
//! copied, because the runtime has its own form for them.
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use inference::backend::Execution;
use smallvec::SmallVec;
use vocabulary::{DataType, Error, FailureReason, Shape, Tensor, TensorMemory};

use crate::{
    batch_inputs::compose,
    ort::{AlignedBuffer, InputValue, OutputValue, Runtime, Strings},
    plan::{ExecutionPlan, FeedPlan, FeedSource},
    strings,
};

/// Bytes copied between requests and runtime since the start, for tests and benchmarks.
#[derive(Debug, Default)]
pub(crate) struct CopiedBytes(AtomicU64);

impl CopiedBytes {
    /// Adds to the count.
    pub(crate) fn add(&self, bytes: usize) {
        self.0.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Relaxed);
    }

    /// The count.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// For each request of a batch, the error that answers it although the batch runs.
pub(crate) type RequestErrors = SmallVec<[Option<Error>; 4]>;

/// The source of all feeds of a batch.
pub(crate) struct Gathering<'a> {
    /// The runtime that the tensors are made for.
    pub(crate) runtime: &'a Runtime,
    /// The feeds of the instance.
    pub(crate) plan: &'a ExecutionPlan,
    /// The requests, in the order of their rows.
    pub(crate) executions: &'a [Execution],
    /// For each state, the output of an earlier run whose parts are still states of sequences.
    pub(crate) carried: &'a [Option<Arc<OutputValue>>],
    /// Counts the copied bytes.
    pub(crate) copied_bytes: &'a CopiedBytes,
}

impl<'a> Gathering<'a> {
    /// The tensor for one input; `None` if no request has the input. Sets `request_errors` for requests whose strings
    /// or whose memory cannot be read. Their elements are empty strings or zeros.
    ///
    /// # Errors
    /// An error that affects the whole batch.
    pub(crate) fn feed(
        &self,
        feed: &FeedPlan,
        buffer: &'a mut AlignedBuffer,
        request_errors: &mut RequestErrors,
    ) -> Result<Option<InputValue<'a>>, Error> {
        if let FeedSource::Batch(kind, source) = &feed.source {
            let shapes: SmallVec<[&[i64]; 8]> = self
                .executions
                .iter()
                .filter_map(|execution| execution.request.input(source))
                .map(Tensor::shape)
                .collect();
            let composition = compose(*kind, feed.datatype, self.plan.max_rows.is_some(), &shapes);
            let place = buffer.first(composition.bytes.len());
            place.copy_from_slice(&composition.bytes);
            return Ok(Some(InputValue::over(self.runtime, feed.datatype, &composition.shape, place)?));
        }
        let parts: SmallVec<[&Tensor; 8]> =
            self.executions.iter().filter_map(|execution| execution.request.input(&feed.name)).collect();
        if parts.is_empty() {
            return Ok(None);
        }
        if parts.len() != self.executions.len() {
            let (name, model) = (&feed.name, &self.plan.model);
            return Err(request_error(format!(
                "input '{name}' is not in every request of a batch for '{model}'"
            )));
        }
        let shape = self.shape(feed, &parts)?;
        if feed.datatype == DataType::Bytes {
            return self.strings(feed, &shape, &parts, request_errors).map(Some);
        }
        if let [only] = &parts[..]
            && let TensorMemory::Foreign(memory) = only.memory()
            && let Some(value) = InputValue::over_foreign(self.runtime, feed.datatype, &shape, memory)?
        {
            return Ok(Some(value));
        }
        let bytes = match self.in_one_range(feed, &parts) {
            Some(bytes) => bytes,
            None => self.copy(&parts, buffer, request_errors),
        };
        Ok(Some(InputValue::over(self.runtime, feed.datatype, &shape, bytes)?))
    }

    /// The shape of the whole input.
    fn shape(&self, feed: &FeedPlan, parts: &[&Tensor]) -> Result<Shape, Error> {
        match &feed.source {
            FeedSource::Scalar => Ok(Shape::new()),
            FeedSource::Ragged => Ok(Shape::from_slice(&[parts.iter().map(|part| elements(part)).sum()])),
            FeedSource::Rows | FeedSource::Batch(..) => {
                let mut shape = Shape::from_slice(parts[0].shape());
                for part in &parts[1..] {
                    match (shape.split_first_mut(), part.shape().split_first()) {
                        (Some((rows, dims)), Some((more, others))) if *dims == *others => *rows += more,
                        _ => {
                            let (name, model) = (&feed.name, &self.plan.model);
                            let text =
                                format!("input '{name}' has different shapes in a batch for '{model}'");
                            return Err(request_error(text));
                        }
                    }
                }
                Ok(shape)
            }
        }
    }

    /// The bytes of all parts in one range, if the runtime can use them where they are.
    fn in_one_range(&self, feed: &FeedPlan, parts: &[&'a Tensor]) -> Option<&'a [u8]> {
        if let [only] = parts
            && let TensorMemory::Host(data) = only.memory()
        {
            let bytes: Option<&'a [u8]> = match data.pieces() {
                [] => Some(&[]),
                [piece] => Some(piece),
                _ => None,
            };
            if let Some(bytes) = bytes.filter(|bytes| InputValue::fits(feed.datatype, bytes)) {
                return Some(bytes);
            }
        }
        self.whole(feed, parts)
    }

    /// Copies the bytes of all parts into `buffer`.
    fn copy(
        &self,
        parts: &[&Tensor],
        buffer: &'a mut AlignedBuffer,
        request_errors: &mut RequestErrors,
    ) -> &'a [u8] {
        let len = parts.iter().map(|part| part.byte_size()).sum();
        let place = buffer.first(len);
        let mut rest = &mut *place;
        for (part, request_error) in parts.iter().zip(request_errors) {
            let (target, after) = rest.split_at_mut(part.byte_size());
            if let Err(error) = part.copy_to(target) {
                target.fill(0);
                *request_error = Some(error);
            }
            rest = after;
        }
        self.copied_bytes.add(len);
        place
    }

    /// The bytes of the carried output, if the parts are all of it in its order.
    fn whole(&self, feed: &FeedPlan, parts: &[&Tensor]) -> Option<&'a [u8]> {
        let output: &'a OutputValue = self.carried.get(feed.state?)?.as_ref()?;
        let whole: &'a [u8] = output.as_ref();
        let mut rest = whole;
        for part in parts {
            let TensorMemory::Host(data) = part.memory() else { return None };
            let [piece] = data.pieces() else { return None };
            // Both pieces are alive, so equal addresses mean the same memory.
            if piece.as_ptr() != rest.as_ptr() {
                return None;
            }
            rest = rest.get(piece.len()..)?;
        }
        (rest.is_empty() && InputValue::fits(feed.datatype, whole)).then_some(whole)
    }

    fn strings(
        &self,
        feed: &FeedPlan,
        shape: &[i64],
        parts: &[&Tensor],
        request_errors: &mut RequestErrors,
    ) -> Result<InputValue<'a>, Error> {
        let mut target = Strings::new(self.runtime, shape)?;
        let mut first = 0;
        for (part, request_error) in parts.iter().zip(request_errors) {
            let count = usize::try_from(elements(part)).unwrap_or(0);
            let data = part.host();
            match data.and_then(|data| strings::fill(&mut target, first, count, &feed.name, &data)) {
                Ok(copied) => self.copied_bytes.add(copied),
                Err(error) => *request_error = Some(error),
            }
            first += count;
        }
        Ok(target.finish())
    }
}

/// The number of elements of a tensor whose shape has been checked.
pub(crate) fn elements(tensor: &Tensor) -> i64 {
    tensor.shape().iter().product()
}

fn request_error(text: String) -> Error {
    Error::internal(text).because(FailureReason::Backend)
}
