//! The bytes of the input tensors, and their JSON form.
//!
//! A tensor is stored in its binary network form: row-major, little endian, with a four-byte length before each BYTES
//! element. Requests are prepared before the run and sent repeatedly, so this code need not be fast.

use std::fmt::Write;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::model::ModelInput;
use crate::options::InputContent;

/// An input with its content. Invariant: `bytes` contains exactly the elements of `input.shape`.
#[derive(Clone)]
pub(crate) struct InputTensor {
    pub(crate) input: ModelInput,
    pub(crate) bytes: Bytes,
}

/// Fills every input of each request. There are several requests only if a file contains an array of them.
///
/// # Errors
/// The file cannot be read or does not match the model, or a datatype is unknown.
pub(crate) fn fill(
    inputs: &[ModelInput],
    content: &InputContent,
    seed: u64,
) -> Result<Vec<Vec<InputTensor>>> {
    let file = match content {
        InputContent::File(path) => {
            let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))?
        }
        InputContent::Zero | InputContent::Random => Value::Null,
    };
    match &file {
        Value::Array(requests) => {
            ensure!(!requests.is_empty(), "the file of --input-data has no request");
            requests.iter().map(|request| fill_one(inputs, content, request, seed)).collect()
        }
        request => Ok(vec![fill_one(inputs, content, request, seed)?]),
    }
}

fn fill_one(
    inputs: &[ModelInput],
    content: &InputContent,
    file: &Value,
    seed: u64,
) -> Result<Vec<InputTensor>> {
    let mut random = StdRng::seed_from_u64(seed);
    let filled = inputs.iter().map(|input| {
        let kind = ElementKind::of(&input.datatype)?;
        let elements = input.shape.iter().map(|&dimension| dimension as usize).product();
        let bytes = match content {
            InputContent::Zero => vec![0; elements * kind.width().unwrap_or(4)],
            InputContent::Random => random_elements(&kind, elements, &mut random),
            InputContent::File(_) => from_json(&kind, elements, &file[&input.name])
                .with_context(|| format!("input '{}' in the file of --input-data", input.name))?,
        };
        Ok(InputTensor { input: input.clone(), bytes: bytes.into() })
    });
    filled.collect()
}

/// The layout of the elements of a datatype.
enum ElementKind {
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
    fn of(datatype: &str) -> Result<ElementKind> {
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
            other => bail!("the model has an input of the unknown datatype '{other}'"),
        })
    }

    /// The size of an element, in bytes. `None` if elements differ in length.
    fn width(&self) -> Option<usize> {
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

/// Random elements: floats in [0, 1), integers in 0..100, texts of eight digits.
fn random_elements(kind: &ElementKind, elements: usize, random: &mut StdRng) -> Vec<u8> {
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
            ElementKind::Text => {
                push_text(&mut bytes, &format!("{:08}", random.random_range(0..100_000_000_u32)));
            }
        }
    }
    bytes
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// Reads a flat array with the elements of the tensor, or with a part of them that is then repeated.
fn from_json(kind: &ElementKind, elements: usize, values: &Value) -> Result<Vec<u8>> {
    let values = values.as_array().context("needs a flat array")?;
    ensure!(
        elements == 0 || (!values.is_empty() && elements.is_multiple_of(values.len())),
        "has {} values, but the tensor takes {elements}",
        values.len()
    );
    let mut bytes = Vec::new();
    for value in values.iter().cycle().take(elements) {
        push_json(&mut bytes, kind, value).with_context(|| format!("value {value}"))?;
    }
    Ok(bytes)
}

fn push_json(bytes: &mut Vec<u8>, kind: &ElementKind, value: &Value) -> Result<()> {
    let number = || value.as_f64().context("is not a number");
    match kind {
        ElementKind::Bool => bytes.push(u8::from(value.as_bool().context("is not a boolean")?)),
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
        ElementKind::Brain => bytes.extend_from_slice(&(number()? as f32).to_le_bytes()[2..]),
        ElementKind::Single => bytes.extend_from_slice(&(number()? as f32).to_le_bytes()),
        ElementKind::Double => bytes.extend_from_slice(&number()?.to_le_bytes()),
        ElementKind::Text => push_text(bytes, value.as_str().context("is not a text")?),
        ElementKind::Half => bail!("FP16 inputs can be zero or random, not from a file"),
    }
    Ok(())
}

impl InputTensor {
    /// The elements as a flat JSON array.
    ///
    /// # Errors
    /// The protocol has no JSON form of the datatype.
    pub(crate) fn to_json(&self) -> Result<String> {
        let kind = ElementKind::of(&self.input.datatype)?;
        let Some(width) = kind.width() else { return self.texts_to_json() };
        let mut json = String::from("[");
        for (index, element) in self.bytes.chunks_exact(width).enumerate() {
            if index > 0 {
                json.push(',');
            }
            write_number(&mut json, &kind, element)?;
        }
        json.push(']');
        Ok(json)
    }

    fn texts_to_json(&self) -> Result<String> {
        let mut texts = Vec::new();
        let mut rest = &self.bytes[..];
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let (text, after) = after.split_at(u32::from_le_bytes(*length) as usize);
            texts.push(String::from_utf8_lossy(text));
            rest = after;
        }
        Ok(serde_json::to_string(&texts)?)
    }
}

fn write_number(json: &mut String, kind: &ElementKind, element: &[u8]) -> Result<()> {
    let mut wide = [0; 8];
    wide[..element.len()].copy_from_slice(element);
    let unsigned = u64::from_le_bytes(wide);
    let written = match kind {
        ElementKind::Bool => write!(json, "{}", unsigned != 0),
        ElementKind::Unsigned(_) => write!(json, "{unsigned}"),
        ElementKind::Signed(width) => {
            let unused = 64 - 8 * *width as u32;
            write!(json, "{}", (unsigned << unused).cast_signed() >> unused)
        }
        // The debug form is the shortest text that reads back as the same number. For finite numbers it is always valid
        // JSON.
        ElementKind::Single => write!(json, "{:?}", f32::from_bits(unsigned as u32)),
        ElementKind::Double => write!(json, "{:?}", f64::from_bits(unsigned)),
        ElementKind::Half | ElementKind::Brain => {
            bail!("FP16 and BF16 have no JSON form: use --payload binary or grpc")
        }
        ElementKind::Text => unreachable!("texts have no fixed width"),
    };
    written.context("writing to a string does not fail")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn input(datatype: &str, shape: &[i64]) -> ModelInput {
        ModelInput { name: "IN".into(), datatype: datatype.into(), shape: shape.to_vec() }
    }

    fn filled(datatype: &str, shape: &[i64], content: &InputContent) -> Result<InputTensor> {
        Ok(fill(&[input(datatype, shape)], content, 1)?.remove(0).remove(0))
    }

    fn from_file(datatype: &str, shape: &[i64], json: &str) -> Result<InputTensor> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(json.as_bytes()).unwrap();
        filled(datatype, shape, &InputContent::File(file.path().into()))
    }

    #[test]
    fn zero_tensors_have_the_size_of_their_shape() {
        for (datatype, bytes) in [("BOOL", 6), ("FP16", 12), ("INT32", 24), ("FP64", 48), ("BYTES", 24)] {
            assert_eq!(
                filled(datatype, &[2, 3], &InputContent::Zero).unwrap().bytes.len(),
                bytes,
                "{datatype}"
            );
        }
        assert_eq!(filled("FP32", &[0, 3], &InputContent::Zero).unwrap().bytes.len(), 0);
    }

    #[test]
    fn random_tensors_repeat_with_the_seed_and_have_a_json_form() {
        for datatype in ["BOOL", "UINT8", "INT64", "FP32", "FP64", "BYTES"] {
            let tensor = filled(datatype, &[8], &InputContent::Random).unwrap();
            assert_eq!(
                tensor.bytes,
                filled(datatype, &[8], &InputContent::Random).unwrap().bytes,
                "{datatype}"
            );
            let json: Value = serde_json::from_str(&tensor.to_json().unwrap()).unwrap();
            assert_eq!(json.as_array().unwrap().len(), 8, "{datatype}");
        }
        for datatype in ["FP16", "BF16"] {
            let tensor = filled(datatype, &[8], &InputContent::Random).unwrap();
            assert_eq!(tensor.bytes.len(), 16);
            assert!(tensor.to_json().unwrap_err().to_string().contains("no JSON form"));
        }
    }

    #[test]
    fn values_of_a_file_come_back_as_json() {
        for (datatype, values) in [
            ("INT8", "[-128,127]"),
            ("INT64", "[-9223372036854775808,9223372036854775807]"),
            ("UINT64", "[0,18446744073709551615]"),
            ("FP32", "[0.1,-2.0]"),
            ("FP64", "[1e-300,2.5]"),
            ("BOOL", "[true,false]"),
            ("BYTES", r#"["a\"b",""]"#),
        ] {
            let tensor = from_file(datatype, &[2], &format!(r#"{{"IN":{values}}}"#)).unwrap();
            assert_eq!(tensor.to_json().unwrap(), values, "{datatype}");
        }
    }

    #[test]
    fn one_row_of_a_file_is_repeated_over_the_batch() {
        let tensor = from_file("UINT8", &[3, 2], r#"{"IN":[1,2]}"#).unwrap();
        assert_eq!(&tensor.bytes[..], [1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn each_object_of_a_file_is_a_request() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(br#"[{"IN":[1]},{"IN":[2]}]"#).unwrap();
        let requests = fill(&[input("UINT8", &[1])], &InputContent::File(file.path().into()), 1).unwrap();
        let sent: Vec<&[u8]> = requests.iter().map(|tensors| &tensors[0].bytes[..]).collect();
        assert_eq!(sent, [[1], [2]]);
    }

    #[test]
    fn a_file_that_does_not_fit_is_refused() {
        for (datatype, json, word) in [
            ("FP32", "{}", "flat array"),
            ("FP32", r#"{"IN":[]}"#, "takes 4"),
            ("FP32", r#"{"IN":[1,2,3]}"#, "takes 4"),
            ("UINT8", r#"{"IN":[256]}"#, "does not fit"),
            ("INT8", r#"{"IN":[128]}"#, "does not fit"),
            ("INT8", r#"{"IN":["x"]}"#, "not an integer"),
            ("FP32", "[", "not JSON"),
            ("FP32", "[]", "no request"),
            ("COMPLEX", r#"{"IN":[1]}"#, "unknown datatype"),
        ] {
            let Err(error) = from_file(datatype, &[4], json) else { panic!("{json} was taken") };
            assert!(format!("{error:#}").contains(word), "{datatype} {json}: {error:#}");
        }
    }
}
