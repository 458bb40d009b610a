//! Distributes the tensors of a run to the responses of its requests and to the states of their sequences, without a
//! copy.
//!
//! A response's output is a range of the memory that the library allocated. The memory is freed when the last response
//! and the last sequence that share it are dropped. Only strings are copied, into the form of the protocols.
use std::{
    ops::Range,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use inference::backend::Execution;
use smallvec::SmallVec;
use vocabulary::{DataType, Error, FailureReason, ForeignMemory, Name, Shape, Tensor};

use crate::{
    CopiedBytes, GraphOutput, LibraryFailure,
    plan::{AnswerPlan, ExecutionPlan, FetchPlan, StatePlan},
};

/// One request of a batch and its results so far.
pub(crate) struct ScatterTarget<'a> {
    /// The request.
    pub(crate) execution: &'a Execution,
    /// The number of its rows.
    pub(crate) rows: i64,
    /// Its outputs.
    pub(crate) outputs: Vec<Tensor>,
    /// The new states of its sequence, under the names of the outputs.
    pub(crate) states: Vec<Tensor>,
    /// Whether this was its last run.
    pub(crate) is_done: bool,
}

/// A request's part of an output.
struct Part {
    /// Positions of its elements.
    elements: Range<usize>,
    /// The shape of the part.
    shape: Shape,
}

type OutputParts = SmallVec<[Part; 4]>;

/// Gives every request its part of an output: the requested output, and the state of its sequence. Returns the output
/// if the sequences of several requests share it. The sequences keep it alive, not the return value.
///
/// # Errors
/// INTERNAL if the output is smaller or larger than the batch needs. The shares are unusable then.
pub(crate) fn scatter<O: GraphOutput>(
    plan: &ExecutionPlan,
    fetch: &FetchPlan,
    output: O,
    shares: &mut [ScatterTarget<'_>],
    copied_bytes: &CopiedBytes,
) -> Result<Weak<O>, Error> {
    let datatype = output.datatype();
    let answers = fetch.answer.as_ref().map(|answer| parts(plan, fetch, answer, output.shape(), shares));
    let states = fetch.state.as_ref().map(|state| state_parts(plan, fetch, state, output.shape(), shares));
    let (answers, states) = (answers.transpose()?, states.transpose()?);
    let is_shared = states.is_some() && shares.len() > 1;
    let (content, shared) = OutputContent::of(output, is_shared)?;
    let tensor = |part: &Part, bytes| Tensor::new(fetch.name.clone(), datatype, part.shape.clone(), bytes);
    for (index, share) in shares.iter_mut().enumerate() {
        let state = states.as_ref().map(|parts| &parts[index]);
        let answer = answers.as_ref().map(|parts| &parts[index]);
        let kept = state.map(|part| content.cut(part, copied_bytes)).transpose()?;
        if let Some(part) = answer.filter(|_| share.execution.request.wants(&fetch.name)) {
            let bytes = match (&kept, state) {
                (Some(kept), Some(state)) if state.elements == part.elements => kept.clone(),
                _ => content.cut(part, copied_bytes)?,
            };
            share.outputs.push(tensor(part, bytes));
        }
        share.states.extend(state.zip(kept).map(|(part, bytes)| tensor(part, bytes)));
    }
    Ok(shared)
}

/// Gives the only request its output, which a run has written to foreign memory in this shape.
///
/// # Errors
/// As [`scatter`].
pub(crate) fn scatter_place(
    plan: &ExecutionPlan,
    fetch: &FetchPlan,
    (datatype, shape): (DataType, &[i64]),
    memory: &ForeignMemory,
    shares: &mut [ScatterTarget<'_>],
) -> Result<(), Error> {
    let (Some(answer), 1) = (&fetch.answer, shares.len()) else { return Ok(()) };
    let parts = parts(plan, fetch, answer, shape, shares)?;
    for (share, part) in shares.iter_mut().zip(parts) {
        share.outputs.push(Tensor::new(fetch.name.clone(), datatype, part.shape, memory.clone()));
    }
    Ok(())
}

/// The elements of an output, before they are divided into parts.
enum OutputContent<O> {
    /// All elements, and the size of each.
    Numbers(Bytes, usize),
    /// Strings, and their total size in the form of the protocols.
    Strings(O, usize),
}

/// Bytes of an output that also has another reader.
struct SharedOutput<O>(Arc<O>);

impl<O: AsRef<[u8]>> AsRef<[u8]> for SharedOutput<O> {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl<O: GraphOutput> OutputContent<O> {
    fn of(output: O, is_shared: bool) -> Result<(Self, Weak<O>), LibraryFailure> {
        let Some(size) = output.datatype().byte_size() else {
            let total = output.strings_len()?;
            return Ok((Self::Strings(output, total), Weak::new()));
        };
        if !is_shared {
            return Ok((Self::Numbers(Bytes::from_owner(output), size), Weak::new()));
        }
        let output = Arc::new(output);
        let observer = Arc::downgrade(&output);
        Ok((Self::Numbers(Bytes::from_owner(SharedOutput(output)), size), observer))
    }

    fn cut(&self, part: &Part, copied_bytes: &CopiedBytes) -> Result<Bytes, LibraryFailure> {
        let elements = part.elements.clone();
        match self {
            Self::Numbers(whole, size) => Ok(whole.slice(elements.start * size..elements.end * size)),
            Self::Strings(output, total) => {
                let all = count(output.shape()).max(1);
                // Exact for a request that runs alone, an estimate otherwise.
                let mut bytes = Vec::with_capacity(total / all * elements.len() + total % all);
                output.append_strings(elements, &mut bytes)?;
                copied_bytes.add(bytes.len());
                Ok(bytes.into())
            }
        }
    }
}

/// The part of the output for each request, in the shape that its client receives.
fn parts(
    plan: &ExecutionPlan,
    fetch: &FetchPlan,
    answer: &AnswerPlan,
    shape: &[i64],
    shares: &[ScatterTarget<'_>],
) -> Result<OutputParts, Error> {
    let spec = &answer.spec;
    if let Some(source) = &answer.scatter {
        return parts_like(plan, answer, shape, source, shares);
    }
    if fetch.scalar || shape.is_empty() {
        // The output is one element for the whole batch, and every request receives it.
        if spec.dims.is_empty() {
            let name = &spec.name;
            let text =
                format!("Failed to find the scalar output dimension for {name} in the model configuration.");
            return Err(Error::internal(text).because(FailureReason::Backend));
        }
        return Ok(shares.iter().map(|_| Part { elements: 0..1, shape: spec.dims.clone() }).collect());
    }
    if plan.max_rows.is_none() {
        return Ok(wholes(shape, &spec.client_shape(shape, false), shares));
    }
    rows(plan, &spec.name, shape, &spec.client_shape(&shape[1..], false), shares)
}

/// The part of the output for each sequence, in the shape that the graph has given it.
fn state_parts(
    plan: &ExecutionPlan,
    fetch: &FetchPlan,
    state: &StatePlan,
    shape: &[i64],
    shares: &[ScatterTarget<'_>],
) -> Result<OutputParts, Error> {
    match shape.split_first() {
        Some((_, item)) if plan.max_rows.is_some() => rows(plan, &fetch.name, shape, item, shares),
        Some(_) => Ok(wholes(shape, shape, shares)),
        None if plan.max_rows.is_some() => Err(mismatch(plan, &fetch.name, shape, "rows")),
        None => Ok(wholes(shape, &state.dims, shares)),
    }
}

/// The whole output for each request. Such requests run alone.
fn wholes(shape: &[i64], seen: &[i64], shares: &[ScatterTarget<'_>]) -> OutputParts {
    let whole = |_| Part { elements: 0..count(shape), shape: seen.into() };
    shares.iter().map(whole).collect()
}

/// Consecutive rows. Each has the shape `seen`.
fn rows(
    plan: &ExecutionPlan,
    name: &Name,
    shape: &[i64],
    seen: &[i64],
    shares: &[ScatterTarget<'_>],
) -> Result<OutputParts, Error> {
    let (total, inner) = (shares.iter().map(|share| share.rows).sum::<i64>(), count(&shape[1..]));
    if shape[0] != total {
        return Err(mismatch(plan, name, shape, &format!("{total} rows")));
    }
    let mut end = 0;
    let part = |share: &ScatterTarget<'_>| {
        let start = end;
        end += inner * usize::try_from(share.rows).unwrap_or(0);
        let shape = std::iter::once(share.rows).chain(seen.iter().copied()).collect();
        Part { elements: start..end, shape }
    };
    Ok(shares.iter().map(part).collect())
}

/// Consecutive parts whose open dimensions are those of an input.
fn parts_like(
    plan: &ExecutionPlan,
    answer: &AnswerPlan,
    whole: &[i64],
    source: &Name,
    shares: &[ScatterTarget<'_>],
) -> Result<OutputParts, Error> {
    let (name, batched) = (&answer.spec.name, plan.max_rows.is_some());
    let (available, mut end) = (count(whole), 0);
    let mut parts = OutputParts::new();
    for share in shares {
        let like = share.execution.request.input(source).map_or(&[][..], Tensor::shape);
        let mut shape = answer.full_dims(batched);
        for (dim, &seen) in shape.iter_mut().zip(like) {
            if *dim == -1 {
                *dim = seen;
            }
        }
        let start = end;
        end += count(&shape);
        if shape.contains(&-1) || end > available {
            return Err(mismatch(plan, name, whole, &format!("parts shaped as input '{source}'")));
        }
        parts.push(Part { elements: start..end, shape });
    }
    Ok(parts)
}

fn mismatch(plan: &ExecutionPlan, output: &str, shape: &[i64], needed: &str) -> Error {
    let model = &plan.model;
    Error::internal(format!(
        "output '{output}' of model '{model}' has shape {shape:?}, which cannot give {needed}"
    ))
    .because(FailureReason::Backend)
}

fn count(shape: &[i64]) -> usize {
    shape.iter().map(|&dim| usize::try_from(dim).unwrap_or(0)).product()
}
