//! Finds out whether the rows of a graph's tensors are independent of each other, by running the graph.
//!
//! An open first dimension need not be a batch dimension: a graph may compute a sum, a maximum or a recurrence along
//! it. If requests were joined along such a dimension, they would get wrong answers. A probe computes two inputs alone
//! and together. It costs as much as a few requests of few rows.
use vocabulary::{DataType, Shape};

use crate::{AlignedBuffer, Feed, FeedValue, Graph, GraphOutput, LibraryFailure, StringTensor, ValueKind};

/// The result of the probes of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rows {
    /// Two inputs together have the same results as each input alone.
    Independent,
    /// The results differ. Contains a description of the difference.
    Mixed(String),
    /// The graph runs with none of the tried inputs, or its results differ from run to run. Contains the reason.
    Unknown(String),
}

/// Rows of an input, and the size of its other open dimensions. Graphs that refuse one size may accept another.
const SIZES: [(i64, i64); 5] = [(1, 4), (1, 1), (2, 8), (1, 64), (1, 224)];

/// The probe tries no inputs with more elements.
const MAX_ELEMENTS: usize = 1 << 20;

/// The permitted difference between numbers that are computed in another order, or quantised by another range: relative
/// to the number, and to the largest number of the output.
const TOLERANCE: (f64, f64) = (0.05, 0.02);

/// Runs the graph with generated inputs. Its inputs and outputs must be tensors with an open first dimension.
/// The failure of a run is no error of the model, and should not be logged as one.
pub fn probe(graph: &mut impl Graph) -> Rows {
    let mut reason = "its inputs are too large".to_owned();
    for size in SIZES {
        match Probe::new(graph, size).and_then(|mut probe| probe.compare()) {
            Ok(rows) => return rows,
            Err(failure) => reason = failure,
        }
    }
    Rows::Unknown(reason)
}

/// Inputs of one size.
struct Probe<'a, G> {
    graph: &'a mut G,
    rows: i64,
    inputs: Vec<ProbeInput>,
}

struct ProbeInput {
    datatype: DataType,
    /// The shape without the rows.
    item: Shape,
    /// Elements of one input alone.
    elements: usize,
}

/// An output: its shape, and its elements in the form of the protocols.
struct Answer {
    datatype: DataType,
    shape: Shape,
    bytes: Vec<u8>,
}

impl<'a, G: Graph> Probe<'a, G> {
    fn new(graph: &'a mut G, (rows, open): (i64, i64)) -> Result<Self, String> {
        let mut inputs = Vec::new();
        for slot in &graph.signature().inputs {
            let ValueKind::Tensor(element, dims) = &slot.kind else {
                return Err(format!("input '{}' is no tensor", slot.name));
            };
            let datatype =
                element.datatype().ok_or_else(|| format!("input '{}' has no datatype", slot.name))?;
            let dims = dims.get(1..).unwrap_or(&[]);
            let item: Shape = dims.iter().map(|&dim| if dim < 0 { open } else { dim }).collect();
            let elements = item.iter().try_fold(rows, |count, &dim| count.checked_mul(dim));
            let elements = elements.and_then(|count| usize::try_from(count).ok());
            let elements = elements.filter(|&count| count <= MAX_ELEMENTS);
            let elements = elements.ok_or_else(|| format!("input '{}' is too large", slot.name))?;
            inputs.push(ProbeInput { datatype, item, elements });
        }
        Ok(Self { graph, rows, inputs })
    }

    /// # Errors
    /// Why the graph does not run with inputs of this size.
    fn compare(&mut self) -> Result<Rows, String> {
        let mut alone = |which| self.run(&[which]).map_err(|failure| failure.message);
        let (first, second) = (alone(0)?, alone(1)?);
        let mixed = match self.run(&[0, 1]) {
            Ok(both) => self.difference(&first, &second, &both),
            Err(failure) => Some(format!("it fails for two requests together: {}", failure.message)),
        };
        let Some(mixed) = mixed else { return Ok(Rows::Independent) };
        // A graph with random numbers gives other results in the second run.
        let again = self.run(&[0]).map_err(|failure| failure.message)?;
        let is_random = first.iter().zip(&again).any(|(one, other)| !one.agrees(&other.bytes));
        Ok(if is_random {
            Rows::Unknown("it gives other results each time".to_owned())
        } else {
            Rows::Mixed(mixed)
        })
    }

    /// The outputs of a run with those of the two inputs.
    fn run(&mut self, which: &[u32]) -> Result<Vec<Answer>, LibraryFailure> {
        let mut buffers: Vec<AlignedBuffer> = self.inputs.iter().map(|_| AlignedBuffer::default()).collect();
        let mut feeds = Vec::new();
        let rows = self.rows * i64::try_from(which.len()).unwrap_or(1);
        for (slot, (input, buffer)) in self.inputs.iter().zip(&mut buffers).enumerate() {
            let shape: Shape = std::iter::once(rows).chain(input.item.iter().copied()).collect();
            let elements =
                which.iter().flat_map(|&which| (0..input.elements).map(move |at| number(which, slot, at)));
            let value = match input.datatype.byte_size() {
                Some(size) => {
                    let bytes: Vec<u8> = elements.flat_map(|number| encode(input.datatype, number)).collect();
                    debug_assert_eq!(bytes.len(), input.elements * which.len() * size);
                    let place = buffer.first(bytes.len());
                    place.copy_from_slice(&bytes);
                    FeedValue::Host { datatype: input.datatype, shape, bytes: place }
                }
                None => {
                    let mut strings = self.graph.strings(&shape)?;
                    for (at, number) in elements.enumerate() {
                        strings.string(at, 1)?.copy_from_slice(&[b'0' + number % 2]);
                    }
                    FeedValue::Strings { shape, strings }
                }
            };
            feeds.push(Feed { slot, value });
        }
        let wanted: Vec<usize> = (0..self.graph.signature().outputs.len()).collect();
        let places: Vec<_> = wanted.iter().map(|_| None).collect();
        let outputs = self.graph.run(&feeds, &wanted, &places)?;
        outputs.iter().flatten().map(Answer::of).collect()
    }

    /// The first difference between the joint outputs and the outputs of each input alone.
    fn difference(&self, first: &[Answer], second: &[Answer], both: &[Answer]) -> Option<String> {
        let names = self.graph.signature().outputs.iter().map(|slot| &slot.name);
        for (name, ((first, second), both)) in names.zip(first.iter().zip(second).zip(both)) {
            let has_rows = |answer: &Answer, rows| answer.shape.first() == Some(&rows);
            if !has_rows(first, self.rows) || !has_rows(second, self.rows) || !has_rows(both, 2 * self.rows) {
                return Some(format!("the rows of output '{name}' are not those of the inputs"));
            }
            let together = [&first.bytes[..], &second.bytes].concat();
            if !both.agrees(&together) {
                return Some(format!(
                    "output '{name}' is another one for two requests together than for each alone"
                ));
            }
        }
        None
    }
}

impl Answer {
    fn of(output: &impl GraphOutput) -> Result<Self, LibraryFailure> {
        let (datatype, shape) = (output.datatype(), Shape::from_slice(output.shape()));
        let bytes = if datatype == DataType::Bytes {
            let count = shape.iter().map(|&dim| usize::try_from(dim).unwrap_or(0)).product();
            let mut bytes = Vec::new();
            output.append_strings(0..count, &mut bytes)?;
            bytes
        } else {
            output.as_ref().to_vec()
        };
        Ok(Self { datatype, shape, bytes })
    }

    /// Whether those elements equal its own, within the tolerance for numbers.
    fn agrees(&self, bytes: &[u8]) -> bool {
        if self.bytes.len() != bytes.len() {
            return false;
        }
        let (Some(own), Some(others)) = (floats(self.datatype, &self.bytes), floats(self.datatype, bytes))
        else {
            return self.bytes == bytes;
        };
        let finite = own.iter().chain(&others).filter(|number| number.is_finite());
        let largest = finite.fold(0_f64, |largest, number| largest.max(number.abs()));
        let (relative, absolute) = TOLERANCE;
        own.iter().zip(&others).all(|(one, other)| {
            let is_close = (one - other).abs() <= relative * one.abs().max(other.abs()) + absolute * largest;
            is_close || one == other || one.is_nan() && other.is_nan()
        })
    }
}

/// A small number for an element. Most elements of the other input have another number.
fn number(which: u32, slot: usize, at: usize) -> u8 {
    let seed = u64::from(which) << 40 | (slot as u64) << 32 | at as u64;
    let mixed = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

/// The bytes of an element. Integers are 0 or 1: larger ones may be beyond a table in the graph. Other numbers are
/// between -1 and 1.
fn encode(datatype: DataType, number: u8) -> Vec<u8> {
    let bit = number % 2;
    let float = (f32::from(number) - 127.5) / 128.;
    match datatype {
        DataType::Fp32 => float.to_le_bytes().to_vec(),
        DataType::Fp64 => f64::from(float).to_le_bytes().to_vec(),
        DataType::Bf16 => float.to_le_bytes()[2..].to_vec(),
        // Sign, an exponent from -3 to 0, and the highest bits of the mantissa.
        DataType::Fp16 => {
            let number = u16::from(number);
            ((number & 0x80) << 8 | (12 + (number >> 5 & 3)) << 10 | (number & 0x1F) << 5)
                .to_le_bytes()
                .to_vec()
        }
        _ => {
            let mut bytes = vec![0; datatype.byte_size().unwrap_or(1)];
            bytes[0] = bit;
            bytes
        }
    }
}

/// The elements as numbers, if the datatype has fractions.
fn floats(datatype: DataType, bytes: &[u8]) -> Option<Vec<f64>> {
    let halves = || bytes.as_chunks::<2>().0.iter().map(|half| u16::from_le_bytes(*half));
    match datatype {
        DataType::Fp64 => {
            Some(bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
        }
        DataType::Fp32 => {
            Some(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes).into()).collect())
        }
        DataType::Bf16 => Some(halves().map(|half| f32::from_bits(u32::from(half) << 16).into()).collect()),
        DataType::Fp16 => Some(halves().map(half_to_float).collect()),
        _ => None,
    }
}

fn half_to_float(half: u16) -> f64 {
    let sign = if half & 0x8000 == 0 { 1. } else { -1. };
    let (exponent, mantissa) = (i32::from(half >> 10 & 0x1F), f64::from(half & 0x3FF));
    sign * match exponent {
        0 => mantissa * 2_f64.powi(-24),
        31 if mantissa == 0. => f64::INFINITY,
        31 => f64::NAN,
        _ => (1. + mantissa / 1024.) * 2_f64.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_read_as_the_numbers_they_are() {
        let numbers = [0x0000, 0x3C00, 0xC000, 0x3555, 0x0001, 0x7BFF, 0x7C00].map(half_to_float);
        assert_eq!(numbers[..3], [0., 1., -2.]);
        assert!((numbers[3] - 1. / 3.).abs() < 1e-4);
        assert_eq!(numbers[4..], [2_f64.powi(-24), 65504., f64::INFINITY]);
        assert!(half_to_float(0x7E00).is_nan());
    }

    #[test]
    fn made_up_numbers_are_small_and_differ_between_the_inputs() {
        for datatype in DataType::ALL.into_iter().filter(|datatype| datatype.byte_size().is_some()) {
            let elements = |which| {
                (0..64).flat_map(move |at| encode(datatype, number(which, 0, at))).collect::<Vec<_>>()
            };
            assert_ne!(elements(0), elements(1), "{datatype:?}");
            for number in floats(datatype, &elements(0)).unwrap_or_default() {
                assert!(number.abs() <= 2., "{datatype:?}: {number}");
            }
        }
    }

    #[test]
    fn numbers_agree_within_what_another_order_of_computing_changes() {
        let answer = |numbers: &[f32]| Answer {
            datatype: DataType::Fp32,
            shape: Shape::from_slice(&[1]),
            bytes: numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        };
        let agree = |one: &[f32], other: &[f32]| answer(one).agrees(&answer(other).bytes);
        assert!(agree(&[1., 1e-6, f32::NAN], &[1.01, -1e-6, f32::NAN]));
        assert!(agree(&[f32::INFINITY], &[f32::INFINITY]));
        assert!(!agree(&[1., 0.5], &[1., 0.6]));
        assert!(!agree(&[1e-6, 2e-6], &[1e-6, 3e-6]));
        assert!(!agree(&[1.], &[f32::NAN]));
        assert!(!agree(&[1.], &[1., 1.]));
    }
}
