//! From the tensors of a run to the responses of its requests, without a copy.
//!
//! A response's output is a range of the memory that the runtime allocated; the memory is freed when the last response
//! that has a part of it is gone. Only strings are copied, into the form the protocols have for them.
use std::ops::Range;

use bytes::Bytes;
use inference::{DataType, Error, FailureReason, Name, Shape, Tensor, backend::Execution};
use smallvec::SmallVec;

use crate::{
    gather::Copies,
    ort::Output,
    plan::{FetchPlan, Plan},
};

/// One request of a batch and the outputs it has been given so far.
pub(crate) struct Share<'a> {
    /// The request.
    pub(crate) execution: &'a Execution,
    /// Rows it brought.
    pub(crate) rows: i64,
    /// Its outputs.
    pub(crate) outputs: Vec<Tensor>,
}

/// A request's part of an output.
struct Part {
    /// Positions of its elements.
    elements: Range<usize>,
    /// The shape its client sees.
    shape: Shape,
}

/// Gives every request that wants it its part of an output.
///
/// # Errors
/// INTERNAL if the output is not as large as the batch needs; nobody has received anything then.
pub(crate) fn scatter(
    plan: &Plan,
    fetch: &FetchPlan,
    output: Output,
    shares: &mut [Share<'_>],
    copies: &Copies,
) -> Result<(), Error> {
    let parts = parts(plan, fetch, &output, shares)?;
    let datatype = output.datatype();
    let wanting =
        shares.iter_mut().zip(parts).filter(|(share, _)| share.execution.request.wants(&fetch.spec.name));
    let Some(size) = datatype.byte_size() else {
        let (total, all) = (output.strings_len()?, count(output.shape()).max(1));
        for (share, part) in wanting {
            // Exact for a request that runs alone, a good guess otherwise.
            let mut bytes = Vec::with_capacity(total / all * part.elements.len() + total % all);
            output.append_strings(part.elements, &mut bytes)?;
            copies.add(bytes.len());
            share.outputs.push(tensor(fetch, datatype, part.shape, bytes.into()));
        }
        return Ok(());
    };
    let whole = Bytes::from_owner(output);
    for (share, part) in wanting {
        let bytes = whole.slice(part.elements.start * size..part.elements.end * size);
        share.outputs.push(tensor(fetch, datatype, part.shape, bytes));
    }
    Ok(())
}

/// Which part of the output belongs to whom, and in which shape.
fn parts(
    plan: &Plan,
    fetch: &FetchPlan,
    output: &Output,
    shares: &[Share<'_>],
) -> Result<SmallVec<[Part; 4]>, Error> {
    let (name, shape) = (&fetch.spec.name, output.shape());
    let batched = plan.max_rows.is_some();
    if let Some(source) = &fetch.scatter {
        return parts_like(plan, fetch, shape, source, shares);
    }
    if fetch.scalar || shape.is_empty() {
        // One element for the whole batch: everybody's.
        if fetch.spec.dims.is_empty() {
            let text =
                format!("Failed to find the scalar output dimension for {name} in the model configuration.");
            return Err(Error::internal(text).because(FailureReason::Backend));
        }
        return Ok(shares.iter().map(|_| Part { elements: 0..1, shape: fetch.spec.dims.clone() }).collect());
    }
    if !batched {
        let elements = 0..count(shape);
        return Ok(shares
            .iter()
            .map(|_| Part { elements: elements.clone(), shape: fetch.spec.outward(shape) })
            .collect());
    }
    let (total, item) = (shares.iter().map(|share| share.rows).sum::<i64>(), &shape[1..]);
    if shape[0] != total {
        return Err(mismatch(plan, name, shape, &format!("{total} rows")));
    }
    let (seen, inner) = (fetch.spec.outward(item), count(item));
    let mut end = 0;
    let part = |share: &Share<'_>| {
        let start = end;
        end += inner * usize::try_from(share.rows).unwrap_or(0);
        let shape = std::iter::once(share.rows).chain(seen.iter().copied()).collect();
        Part { elements: start..end, shape }
    };
    Ok(shares.iter().map(part).collect())
}

/// Parts whose open dimensions are those of an input, and which follow each other without gaps.
fn parts_like(
    plan: &Plan,
    fetch: &FetchPlan,
    whole: &[i64],
    source: &Name,
    shares: &[Share<'_>],
) -> Result<SmallVec<[Part; 4]>, Error> {
    let (name, batched) = (&fetch.spec.name, plan.max_rows.is_some());
    let (available, mut end) = (count(whole), 0);
    let mut parts = SmallVec::new();
    for share in shares {
        let like = share.execution.request.input(source).map_or(&[][..], Tensor::shape);
        let mut shape = fetch.full_dims(batched);
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

fn mismatch(plan: &Plan, output: &str, shape: &[i64], needed: &str) -> Error {
    let model = &plan.model;
    Error::internal(format!(
        "output '{output}' of model '{model}' has shape {shape:?}, which cannot give {needed}"
    ))
    .because(FailureReason::Backend)
}

fn count(shape: &[i64]) -> usize {
    shape.iter().map(|&dim| usize::try_from(dim).unwrap_or(0)).product()
}

fn tensor(fetch: &FetchPlan, datatype: DataType, shape: Shape, bytes: Bytes) -> Tensor {
    Tensor::new(fetch.spec.name.clone(), datatype, shape, bytes)
}
