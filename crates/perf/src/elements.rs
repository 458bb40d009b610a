//! The elements of tensors: their layout, how they are made, and how they are read from JSON.
//!
//! Elements are in their binary network form: little endian, with a four-byte length before each BYTES element.

use anyhow::{Context, Result, bail, ensure};
use rand::Rng;
use rand::distr::Alphanumeric;
use rand::rngs::StdRng;
use serde_json::Value;

use crate::options::TextContent;

/// The layout of the elements of a datatype.
pub(crate) enum ElementKind {
    Bool,
    Unsigned(usize),
    Signed(usize),
    Half,
    Brain,
    Single,
    Double,
    Text,
}

impl ElementKind {
    pub(crate) fn of(datatype: &str) -> Result<ElementKind> {
        Ok(match datatype {
            "BOOL" => ElementKind::Bool,
            "UINT8" => ElementKind::Unsigned(1),
            "UINT16" => ElementKind::Unsigned(2),
            "UINT32" => ElementKind::Unsigned(4),
            "UINT64" => ElementKind::Unsigned(8),
            "INT8" => ElementKind::Signed(1),
            "INT16" => ElementKind::Signed(2),
            "INT32" => ElementKind::Signed(4),
            "INT64" => ElementKind::Signed(8),
            "FP16" => ElementKind::Half,
            "BF16" => ElementKind::Brain,
            "FP32" => ElementKind::Single,
            "FP64" => ElementKind::Double,
            "BYTES" => ElementKind::Text,
            other => bail!("the model has a tensor of the unknown datatype '{other}'"),
        })
    }

    /// The size of an element, in bytes. `None` if elements differ in length.
    pub(crate) fn width(&self) -> Option<usize> {
        match self {
            ElementKind::Bool => Some(1),
            ElementKind::Unsigned(width) | ElementKind::Signed(width) => Some(*width),
            ElementKind::Half | ElementKind::Brain => Some(2),
            ElementKind::Single => Some(4),
            ElementKind::Double => Some(8),
            ElementKind::Text => None,
        }
    }
}

/// Random elements: floats in [0, 1), integers in 0..100, texts of letters and digits.
pub(crate) fn random_elements(
    kind: &ElementKind,
    elements: usize,
    texts: &TextContent,
    random: &mut StdRng,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..elements {
        match kind {
            ElementKind::Bool => bytes.push(u8::from(random.random::<bool>())),
            ElementKind::Unsigned(width) | ElementKind::Signed(width) => {
                bytes.extend_from_slice(&random.random_range(0..100_u64).to_le_bytes()[..*width]);
            }
            // The exponent of one half, and ten random bits of fraction: [0.5, 1).
            ElementKind::Half => {
                bytes.extend_from_slice(&(0x3800 | random.random_range(0..0x400_u16)).to_le_bytes());
            }
            // The upper half of a single-precision number.
            ElementKind::Brain => bytes.extend_from_slice(&random.random::<f32>().to_le_bytes()[2..]),
            ElementKind::Single => bytes.extend_from_slice(&random.random::<f32>().to_le_bytes()),
            ElementKind::Double => bytes.extend_from_slice(&random.random::<f64>().to_le_bytes()),
            ElementKind::Text => match texts {
                TextContent::Given(text) => push_text(&mut bytes, text.as_bytes()),
                TextContent::OfLength(length) => {
                    let text: Vec<u8> = (0..*length).map(|_| random.sample(Alphanumeric)).collect();
                    push_text(&mut bytes, &text);
                }
            },
        }
    }
    bytes
}

/// Elements of zero. Texts are empty, or those given.
pub(crate) fn zero_elements(kind: &ElementKind, elements: usize, texts: &TextContent) -> Vec<u8> {
    match (kind.width(), texts) {
        (Some(width), _) => vec![0; elements * width],
        (None, TextContent::OfLength(_)) => vec![0; elements * 4],
        (None, TextContent::Given(text)) => {
            let mut bytes = Vec::new();
            (0..elements).for_each(|_| push_text(&mut bytes, text.as_bytes()));
            bytes
        }
    }
}

/// Appends an element of texts: its length and its bytes.
pub(crate) fn push_text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text);
}

/// The most bytes or elements of a tensor that the generator makes.
const MOST_ELEMENTS: usize = 1 << 32;

/// The number of elements of a tensor.
///
/// # Errors
/// The tensor is too large.
pub(crate) fn element_count(shape: &[i64]) -> Result<usize> {
    let mut sizes = shape.iter().map(|&size| usize::try_from(size).ok());
    let count = sizes.try_fold(1_usize, |count, size| count.checked_mul(size?));
    let count = count.filter(|&count| count <= MOST_ELEMENTS);
    count.with_context(|| format!("a tensor of shape {shape:?} is too large"))
}

/// The number of elements in the bytes of a tensor.
///
/// # Errors
/// The bytes end inside an element.
pub(crate) fn count_elements(kind: &ElementKind, bytes: &[u8]) -> Result<usize> {
    if let Some(width) = kind.width() {
        ensure!(bytes.len().is_multiple_of(width), "{} bytes end inside an element", bytes.len());
        return Ok(bytes.len() / width);
    }
    let (mut rest, mut count) = (bytes, 0);
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>().context("the bytes end inside a length")?;
        rest = after.get(u32::from_le_bytes(*length) as usize..).context("the bytes end inside a text")?;
        count += 1;
    }
    Ok(count)
}

/// Appends an element from its JSON form.
///
/// # Errors
/// The value is none of the datatype.
pub(crate) fn push_json(bytes: &mut Vec<u8>, kind: &ElementKind, value: &Value) -> Result<()> {
    let number = || value.as_f64().context("is not a number");
    match kind {
        // As perf_analyzer: 0 and 1 are booleans, too.
        ElementKind::Bool => match (value.as_bool(), value.as_u64()) {
            (Some(value), _) => bytes.push(u8::from(value)),
            (None, Some(number @ 0..=1)) => bytes.push(number as u8),
            _ => bail!("is not a boolean"),
        },
        ElementKind::Unsigned(width) => {
            let number = value.as_u64().context("is not an unsigned integer")?;
            ensure!(*width == 8 || number >> (8 * width) == 0, "does not fit the datatype");
            bytes.extend_from_slice(&number.to_le_bytes()[..*width]);
        }
        ElementKind::Signed(width) => {
            let number = value.as_i64().context("is not an integer")?;
            let unused = 64 - 8 * *width as u32;
            ensure!((number << unused) >> unused == number, "does not fit the datatype");
            bytes.extend_from_slice(&number.to_le_bytes()[..*width]);
        }
        ElementKind::Brain => bytes.extend_from_slice(&half::bf16::from_f64(number()?).to_le_bytes()),
        ElementKind::Single => bytes.extend_from_slice(&(number()? as f32).to_le_bytes()),
        ElementKind::Double => bytes.extend_from_slice(&number()?.to_le_bytes()),
        ElementKind::Text => push_text(bytes, value.as_str().context("is not a text")?.as_bytes()),
        ElementKind::Half => bytes.extend_from_slice(&half::f16::from_f64(number()?).to_le_bytes()),
    }
    Ok(())
}

/// Appends all elements of a JSON array; arrays inside of it are read in their order.
///
/// # Errors
/// An element is none of the datatype.
pub(crate) fn push_array(bytes: &mut Vec<u8>, kind: &ElementKind, values: &[Value]) -> Result<()> {
    for value in values {
        match value {
            Value::Array(inner) => push_array(bytes, kind, inner)?,
            value => push_json(bytes, kind, value).with_context(|| format!("value {value}"))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_has_a_bound() {
        assert_eq!(element_count(&[2, 0, 3]).unwrap(), 0);
        assert!(element_count(&[1 << 40, 1 << 40]).is_err());
    }
}
