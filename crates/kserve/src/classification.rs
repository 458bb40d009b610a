//! The classification extension: the best classes of an output, as text, in place of its elements.
use std::{cmp::Ordering, fmt::Display, num::NonZeroU64};

use vocabulary::{DataType, Error, Shape, Tensor};

use crate::long_write::LongWrite;

/// Outputs with more elements in a row are refused: sorting them would block the endpoint.
const MAX_ELEMENTS: usize = 1_000_000;

/// The most bytes of the text of a value and its index: the largest double, with six decimals.
const MOST_TEXT: usize = 350;

/// The `classes` largest elements of each row of `output`, each as `value:index` or `value:index:label`, best first.
///
/// The result is a BYTES tensor of shape `[rows, n]`, or `[n]` for a model without batch dimension (`batched`), where
/// n is at most the number of elements of a row. Equal values keep their order. Labels are taken by index, where
/// `labels` has that index. `long` is for an output that takes long.
///
/// # Errors
/// INVALID_ARG for datatypes without numbers (BOOL, FP16, BF16, BYTES) and for rows of more than a million elements; what
/// [`LongWrite::make_room`] refuses.
pub(crate) fn classify(
    output: &Tensor,
    classes: NonZeroU64,
    batched: bool,
    labels: &[String],
    mut long: Option<&mut LongWrite<'_>>,
) -> Result<Tensor, Error> {
    let (rows, row_shape) = match output.shape() {
        [rows, rest @ ..] if batched && *rows > 0 => (Some(*rows), rest),
        shape => (None, shape),
    };
    let row_len =
        row_shape.iter().try_fold(1, |len: usize, &dim| len.checked_mul(usize::try_from(dim).ok()?));
    let rank = rank_for(output.datatype())?;
    let row_len = row_len.filter(|&len| len <= MAX_ELEMENTS).ok_or_else(too_large)?;
    let shown = usize::try_from(classes.get()).map_or(row_len, |classes| classes.min(row_len));

    let data = output.host()?.contiguous();
    let row_bytes = row_len * output.datatype().byte_size().unwrap_or(1);
    let mut serialized = Vec::new();
    for row in 0..rows.map_or(1, |rows| usize::try_from(rows).unwrap_or(1)) {
        let Some(row) = data.get(row * row_bytes..(row + 1) * row_bytes) else {
            return Err(Error::internal(format!(
                "Failed to write 'data' field: output tensor shape does not match size of output for '{}'",
                output.name()
            )));
        };
        rank(row, (shown, labels), &mut serialized, long.as_deref_mut())?;
    }
    if let Some(long) = long {
        long.keep(serialized.len());
    }
    let width = i64::try_from(shown).expect("at most a million");
    let shape: Shape = rows.into_iter().chain([width]).collect();
    Ok(Tensor::new(output.name().clone(), DataType::Bytes, shape, serialized))
}

fn too_large() -> Error {
    Error::invalid("classification output tensor too large")
}

/// Appends the best classes of one row, each with its length before it: `(row, (how many, labels), target, long)`.
type RankFn = fn(&[u8], (usize, &[String]), &mut Vec<u8>, Option<&mut LongWrite<'_>>) -> Result<(), Error>;

fn rank_for(datatype: DataType) -> Result<RankFn, Error> {
    Ok(match datatype {
        DataType::Uint8 => |row, best, to, long| rank(row, (u8::from_le_bytes, Ord::cmp), best, to, long),
        DataType::Uint16 => |row, best, to, long| rank(row, (u16::from_le_bytes, Ord::cmp), best, to, long),
        DataType::Uint32 => |row, best, to, long| rank(row, (u32::from_le_bytes, Ord::cmp), best, to, long),
        DataType::Uint64 => |row, best, to, long| rank(row, (u64::from_le_bytes, Ord::cmp), best, to, long),
        DataType::Int8 => |row, best, to, long| rank(row, (i8::from_le_bytes, Ord::cmp), best, to, long),
        DataType::Int16 => |row, best, to, long| rank(row, (i16::from_le_bytes, Ord::cmp), best, to, long),
        DataType::Int32 => |row, best, to, long| rank(row, (i32::from_le_bytes, Ord::cmp), best, to, long),
        DataType::Int64 => |row, best, to, long| rank(row, (i64::from_le_bytes, Ord::cmp), best, to, long),
        DataType::Fp32 => |row, best, to, long| rank(row, (single, order), best, to, long),
        DataType::Fp64 => |row, best, to, long| rank(row, (double, order), best, to, long),
        DataType::Bool | DataType::Fp16 | DataType::Bf16 | DataType::Bytes => {
            return Err(Error::invalid(format!(
                "class result not available for output due to unsupported type '{}'",
                datatype.protocol_name()
            )));
        }
    })
}

/// A float that is printed with six decimals.
#[derive(Clone, Copy)]
struct Decimal(f64);

impl Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            value if value.is_nan() => f.write_str("nan"),
            value if value.is_infinite() => f.write_str(if value > 0.0 { "inf" } else { "-inf" }),
            value => write!(f, "{value:.6}"),
        }
    }
}

fn single(bytes: [u8; 4]) -> Decimal {
    Decimal(f32::from_le_bytes(bytes).into())
}

fn double(bytes: [u8; 8]) -> Decimal {
    Decimal(f64::from_le_bytes(bytes))
}

/// NaN ranks below all other values, so that it does not displace the best classes.
fn order(left: &Decimal, right: &Decimal) -> Ordering {
    left.0.partial_cmp(&right.0).unwrap_or_else(|| right.0.is_nan().cmp(&left.0.is_nan()))
}

/// How elements of N bytes are read, and which of two is less.
type ElementOrder<const N: usize, T> = (fn([u8; N]) -> T, fn(&T, &T) -> Ordering);

fn rank<const N: usize, T: Copy + Display>(
    row: &[u8],
    (read, compare): ElementOrder<N, T>,
    (shown, labels): (usize, &[String]),
    to: &mut Vec<u8>,
    mut long: Option<&mut LongWrite<'_>>,
) -> Result<(), Error> {
    let (elements, _) = row.as_chunks::<N>();
    let ranking_bytes = size_of::<(usize, T)>() * elements.len();
    if let Some(long) = &mut long {
        long.make_room(to.len(), ranking_bytes)?;
    }
    let mut ranking: Vec<(usize, T)> = elements.iter().map(|bytes| read(*bytes)).enumerate().collect();
    let best_first =
        |left: &(usize, T), right: &(usize, T)| compare(&right.1, &left.1).then_with(|| left.0.cmp(&right.0));
    if shown > 0 && shown < ranking.len() {
        ranking.select_nth_unstable_by(shown - 1, best_first);
        ranking.truncate(shown);
    }
    ranking.sort_unstable_by(best_first);
    for (index, value) in ranking {
        if let Some(long) = &mut long {
            let label = labels.get(index).map_or(0, String::len);
            long.make_room(to.len() + ranking_bytes, MOST_TEXT + label)?;
        }
        // As Triton: an empty label is none.
        let text = match labels.get(index).filter(|label| !label.is_empty()) {
            Some(label) => format!("{value}:{index}:{label}"),
            None => format!("{value}:{index}"),
        };
        to.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        to.extend_from_slice(text.as_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use vocabulary::{ByteBudget, bytes_elements};

    use super::*;

    fn texts(tensor: &Tensor) -> Vec<String> {
        let data = tensor.host().unwrap().contiguous();
        bytes_elements(&data).map(|element| String::from_utf8(element.unwrap().to_vec()).unwrap()).collect()
    }

    fn classes(count: u64) -> NonZeroU64 {
        NonZeroU64::new(count).unwrap()
    }

    fn int32(shape: &[i64], values: impl IntoIterator<Item = i32>) -> Tensor {
        let bytes: Vec<u8> = values.into_iter().flat_map(i32::to_le_bytes).collect();
        Tensor::new("OUTPUT0".into(), DataType::Int32, shape.into(), bytes)
    }

    #[test]
    fn the_best_come_first_with_the_labels_there_are() {
        let mut labels: Vec<String> = (0..10).map(|index| format!("label{index}")).collect();
        labels[7].clear();
        let all = classify(&int32(&[1, 16], 1..=16), classes(100), true, &labels, None).unwrap();
        assert_eq!((all.datatype(), all.shape()), (DataType::Bytes, &[1, 16][..]));
        let texts = texts(&all);
        assert_eq!(&texts[5..9], ["11:10", "10:9:label9", "9:8:label8", "8:7"]);
        assert_eq!((&*texts[0], &*texts[15]), ("16:15", "1:0:label0"));
    }

    #[test]
    fn each_row_of_a_batch_is_ranked_alone() {
        let output = classify(&int32(&[2, 16], 0..32), classes(2), true, &[], None).unwrap();
        assert_eq!(output.shape(), [2, 2]);
        assert_eq!(texts(&output), ["15:15", "14:14", "31:15", "30:14"]);
    }

    #[test]
    fn floats_have_six_decimals_and_nan_is_last() {
        let bytes: Vec<u8> = [0.1f32, 0.9, f32::NAN, -1.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let output = Tensor::new("OUT".into(), DataType::Fp32, [4].as_slice().into(), bytes);
        let ranked = classify(&output, classes(9), false, &[], None).unwrap();
        assert_eq!(ranked.shape(), [4]);
        assert_eq!(texts(&ranked), ["0.900000:1", "0.100000:0", "-1.000000:3", "nan:2"]);
    }

    #[test]
    fn ties_keep_their_order() {
        let output = classify(&int32(&[4], [7, 9, 7, 9]), classes(3), false, &[], None).unwrap();
        assert_eq!(texts(&output), ["9:1", "9:3", "7:0"]);
    }

    #[test]
    fn what_has_no_order_is_refused() {
        for datatype in [DataType::Bool, DataType::Fp16, DataType::Bf16, DataType::Bytes] {
            let output = Tensor::new("OUT".into(), datatype, [1].as_slice().into(), vec![0; 8]);
            let text = format!(
                "class result not available for output due to unsupported type '{}'",
                datatype.protocol_name()
            );
            assert_eq!(classify(&output, classes(1), false, &[], None).unwrap_err(), Error::invalid(text));
        }
    }

    #[test]
    fn a_huge_row_and_a_shape_that_contradicts_its_data_are_refused() {
        let huge =
            Tensor::new("OUT".into(), DataType::Int8, [1_000_001].as_slice().into(), vec![0; 1_000_001]);
        assert_eq!(classify(&huge, classes(1), false, &[], None).unwrap_err(), too_large());
        assert!(classify(&int32(&[i64::MAX, 4], 0..4), classes(1), true, &[], None).is_err());
        assert!(classify(&int32(&[5], 0..4), classes(1), false, &[], None).is_err());
    }

    #[test]
    fn an_empty_row_has_no_classes() {
        let output = classify(&int32(&[2, 0], []), classes(3), true, &[], None).unwrap();
        assert_eq!((output.shape(), output.byte_size()), (&[2, 0][..], 0));
    }

    #[test]
    fn what_is_ranked_in_pieces_is_the_same_and_reserved() {
        let labels: Vec<String> = (0..30_000).map(|index| format!("label {index}")).collect();
        for (rows, columns) in [(2, 30_000), (60_000, 1)] {
            let values = (0..60_000).map(|index| index * 7919 % 60_000);
            let output = int32(&[rows, columns], values);
            let whole = classify(&output, classes(100_000), true, &labels, None).unwrap();
            let budget = ByteBudget::new(usize::MAX);
            let (pieces, most) = (Cell::new(0), Cell::new(0));
            let goes_on = || {
                pieces.set(pieces.get() + 1);
                most.set(most.get().max(budget.used()));
                true
            };
            let mut long = LongWrite::new(budget.reservation(), &goes_on);
            let ranked = classify(&output, classes(100_000), true, &labels, Some(&mut long)).unwrap();
            assert!(texts(&ranked) == texts(&whole));
            assert_eq!(long.into_reservation().bytes(), whole.byte_size());
            assert!(pieces.get() > 10 && most.get() >= whole.byte_size(), "{} {}", pieces.get(), most.get());

            let little = ByteBudget::new(whole.byte_size() / 2);
            let goes_on = || true;
            let mut long = LongWrite::new(little.reservation(), &goes_on);
            let refused = classify(&output, classes(100_000), true, &labels, Some(&mut long)).unwrap_err();
            assert!(refused.message.contains("--max-inflight-bytes"));
        }
    }
}
