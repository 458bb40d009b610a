//! Inputs that describe the composition of the batch to a model.
use config::BatchInputKind;
use smallvec::SmallVec;
use vocabulary::{DataType, Shape};

/// Shape and bytes of a batch input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GatheredInput {
    /// The shape that the kind defines.
    pub(crate) shape: Shape,
    /// INT32 or FP32 elements.
    pub(crate) bytes: Vec<u8>,
}

/// Computes the batch input of that kind. `shapes` are the shapes of its source input, one for each request, with the
/// batch dimension if the model has one.
pub(crate) fn compose(
    kind: BatchInputKind,
    datatype: DataType,
    batched: bool,
    sources: &[&[i64]],
) -> GatheredInput {
    let counts = || sources.iter().map(|shape| shape.iter().product::<i64>());
    let mut sum = 0;
    let mut running = |count: i64| {
        sum += count;
        sum
    };
    let values: SmallVec<[i64; 16]> = match kind {
        BatchInputKind::ElementCount => counts().collect(),
        BatchInputKind::AccumulatedElementCount => counts().map(&mut running).collect(),
        BatchInputKind::AccumulatedElementCountWithZero => {
            std::iter::once(0).chain(counts().map(&mut running)).collect()
        }
        // Only the shape matters. The values are zero.
        BatchInputKind::MaxElementCountAsShape => {
            let largest = counts().max().and_then(|largest| usize::try_from(largest).ok()).unwrap_or(0);
            SmallVec::from_elem(0, largest)
        }
        BatchInputKind::ItemShape | BatchInputKind::ItemShapeFlatten => {
            items(batched, sources).flatten().copied().collect()
        }
    };
    let count = i64::try_from(values.len()).unwrap_or(i64::MAX);
    let shape = match kind {
        BatchInputKind::ItemShape => {
            let rank = items(batched, sources).next().map_or(0, <[i64]>::len);
            let rank = i64::try_from(rank).unwrap_or(i64::MAX);
            Shape::from_slice(&[if rank == 0 { 0 } else { count / rank }, rank])
        }
        _ => Shape::from_slice(&[count]),
    };
    GatheredInput { shape, bytes: encode(datatype, &values) }
}

/// The dims of each row without the batch dimension, row by row.
fn items<'a>(batched: bool, sources: &'a [&'a [i64]]) -> impl Iterator<Item = &'a [i64]> {
    sources.iter().flat_map(move |shape| match shape.split_first() {
        Some((&rows, dims)) if batched => std::iter::repeat_n(dims, usize::try_from(rows).unwrap_or(0)),
        _ => std::iter::repeat_n(*shape, 1),
    })
}

/// Numbers beyond the range of the datatype become its maximum. Such a batch fits in no memory.
fn encode(datatype: DataType, values: &[i64]) -> Vec<u8> {
    if datatype == DataType::Fp32 {
        #[expect(clippy::cast_precision_loss, reason = "the configuration asks for counts as floats")]
        let encoded = values.iter().flat_map(|&value| (value as f32).to_le_bytes());
        return encoded.collect();
    }
    debug_assert_eq!(datatype, DataType::Int32, "the configuration has been validated");
    values.iter().flat_map(|&value| i32::try_from(value).unwrap_or(i32::MAX).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integers(kind: BatchInputKind, sources: &[&[i64]]) -> (Vec<i64>, Vec<i32>) {
        let GatheredInput { shape, bytes } = compose(kind, DataType::Int32, true, sources);
        let values =
            bytes.chunks_exact(4).map(|value| i32::from_le_bytes(value.try_into().unwrap())).collect();
        (shape.to_vec(), values)
    }

    const RAGGED: [&[i64]; 4] = [&[1, 2], &[1, 4], &[1, 1], &[1, 3]];

    #[test]
    fn element_counts_are_plain_summed_or_summed_from_zero() {
        assert_eq!(integers(BatchInputKind::ElementCount, &RAGGED), (vec![4], vec![2, 4, 1, 3]));
        assert_eq!(integers(BatchInputKind::AccumulatedElementCount, &RAGGED), (vec![4], vec![2, 6, 7, 10]));
        assert_eq!(
            integers(BatchInputKind::AccumulatedElementCountWithZero, &RAGGED),
            (vec![5], vec![0, 2, 6, 7, 10])
        );
        assert_eq!(integers(BatchInputKind::MaxElementCountAsShape, &RAGGED), (vec![4], vec![0; 4]));
    }

    #[test]
    fn item_shapes_have_a_row_for_every_row_of_the_batch() {
        let sources: [&[i64]; 2] = [&[2, 3, 5], &[1, 7, 5]];
        assert_eq!(integers(BatchInputKind::ItemShape, &sources), (vec![3, 2], vec![3, 5, 3, 5, 7, 5]));
        assert_eq!(integers(BatchInputKind::ItemShapeFlatten, &sources), (vec![6], vec![3, 5, 3, 5, 7, 5]));
    }

    #[test]
    fn counts_may_be_floats() {
        let composition = compose(BatchInputKind::ElementCount, DataType::Fp32, true, &RAGGED[..1]);
        assert_eq!(composition.bytes, 2.0_f32.to_le_bytes());
    }
}
