//! Makes the input tensors of a run from the requests of a batch, with at most one copy.
//!
//! If a request runs alone, the library uses its input in place, unless the input has several pieces or its address is
//! not aligned for its datatype. Inputs of several requests are copied piece by piece into a buffer that the instance
//! keeps. Foreign memory is always copied, unless its owner allows that libraries use it in place: a graph may read an
//! input twice, and rely on finding the same bytes. There is one exception to the copy for several requests: the inputs
//! are states that an earlier run gave to the same sequences in the same order. The output of that run then contains them
//! as a whole, and the library uses it in place. Strings are always copied, because a library has its own form for them.
use std::sync::Arc;

use inference::backend::Execution;
use smallvec::SmallVec;
use vocabulary::{DataType, Error, FailureReason, Shape, Tensor, TensorMemory};

use crate::{
    AlignedBuffer, CopiedBytes, FeedValue, Graph,
    batch_inputs::compose,
    in_place::{byte_count, can_be_used, is_aligned},
    plan::{ExecutionPlan, FeedPlan, FeedSource},
    strings,
};

/// For each request of a batch, the error that answers it although the batch runs.
pub(crate) type RequestErrors = SmallVec<[Option<Error>; 4]>;

/// The source of all feeds of a batch.
pub(crate) struct Gathering<'a, 'g, G: Graph> {
    /// The graph that the tensors are made for.
    pub(crate) graph: &'g G,
    /// The feeds of the instance.
    pub(crate) plan: &'g ExecutionPlan,
    /// The requests, in the order of their rows.
    pub(crate) executions: &'a [Execution],
    /// For each state, the output of an earlier run whose parts are still states of sequences.
    pub(crate) carried: &'a [Option<Arc<G::Output>>],
    /// Counts the copied bytes.
    pub(crate) copied_bytes: &'g CopiedBytes,
}

/// The value of a feed of a graph.
type GraphFeed<'a, G> = FeedValue<'a, <G as Graph>::Strings>;

impl<'a, G: Graph> Gathering<'a, '_, G> {
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
    ) -> Result<Option<GraphFeed<'a, G>>, Error> {
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
            return host_value(feed.datatype, composition.shape, place).map(Some);
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
            let strings = self.strings(feed, &shape, &parts, request_errors)?;
            return Ok(Some(FeedValue::Strings { shape, strings }));
        }
        if let [only] = &parts[..]
            && let TensorMemory::Foreign(memory) = only.memory()
            && can_be_used(feed.datatype, &shape, memory)
        {
            return Ok(Some(FeedValue::Foreign { datatype: feed.datatype, shape, memory }));
        }
        let bytes = match self.in_one_range(feed, &parts) {
            Some(bytes) => bytes,
            None => self.copy(&parts, buffer, request_errors),
        };
        host_value(feed.datatype, shape, bytes).map(Some)
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

    /// The bytes of all parts in one range, if a library can use them where they are.
    fn in_one_range(&self, feed: &FeedPlan, parts: &[&'a Tensor]) -> Option<&'a [u8]> {
        if let [only] = parts
            && let TensorMemory::Host(data) = only.memory()
        {
            let bytes: Option<&'a [u8]> = match data.pieces() {
                [] => Some(&[]),
                [piece] => Some(piece),
                _ => None,
            };
            if let Some(bytes) = bytes.filter(|bytes| is_aligned(feed.datatype, bytes)) {
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
        let output: &'a G::Output = self.carried.get(feed.state?)?.as_ref()?;
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
        (rest.is_empty() && is_aligned(feed.datatype, whole)).then_some(whole)
    }

    fn strings(
        &self,
        feed: &FeedPlan,
        shape: &[i64],
        parts: &[&Tensor],
        request_errors: &mut RequestErrors,
    ) -> Result<G::Strings, Error> {
        let mut target = self.graph.strings(shape)?;
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
        Ok(target)
    }
}

/// A tensor that uses these bytes in place.
///
/// # Errors
/// INTERNAL if their number does not fit the shape, or they are not aligned.
fn host_value<S>(datatype: DataType, shape: Shape, bytes: &[u8]) -> Result<FeedValue<'_, S>, Error> {
    if byte_count(datatype, &shape) != Some(bytes.len()) || !is_aligned(datatype, bytes) {
        let (count, name) = (bytes.len(), datatype.protocol_name());
        return Err(request_error(format!("{count} bytes cannot be a {name} tensor of shape {shape:?}")));
    }
    Ok(FeedValue::Host { datatype, shape, bytes })
}

/// The number of elements of a tensor whose shape has been checked.
pub(crate) fn elements(tensor: &Tensor) -> i64 {
    tensor.shape().iter().product()
}

fn request_error(text: String) -> Error {
    Error::internal(text).because(FailureReason::Backend)
}
