//! An input tensor of a request, its JSON form, and the output that a response must have.
//!
//! A tensor is stored in its binary network form. Requests are prepared before the run and sent repeatedly, so this code
//! need not be fast.

use std::fmt::{Debug, Write};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;

use crate::elements::ElementKind;
use crate::model::ModelInput;

/// An input with its content. Invariant: `bytes` contains exactly the elements of `input.shape`.
#[derive(Clone)]
pub(crate) struct InputTensor {
    pub(crate) input: ModelInput,
    pub(crate) bytes: Bytes,
}

/// An output that a response must have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WantedOutput {
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
}

impl InputTensor {
    /// The elements as a flat JSON array.
    ///
    /// # Errors
    /// An element has no JSON form.
    pub(crate) fn to_json(&self) -> Result<String> {
        self.to_nested_json(&[])
    }

    /// The elements as a JSON array with arrays inside of it. `sizes` are the numbers of elements of these arrays, from the
    /// outermost, without that of the whole. None is 0.
    ///
    /// # Errors
    /// An element has no JSON form.
    pub(crate) fn to_nested_json(&self, sizes: &[usize]) -> Result<String> {
        let kind = ElementKind::of(&self.input.datatype)?;
        let mut json = "[".repeat(sizes.len() + 1);
        for (index, element) in self.elements(kind.width()).enumerate() {
            if index > 0 {
                let ended = sizes.iter().filter(|&&size| index.is_multiple_of(size)).count();
                (0..ended).for_each(|_| json.push(']'));
                json.push(',');
                (0..ended).for_each(|_| json.push('['));
            }
            match kind {
                ElementKind::Text => {
                    let text = std::str::from_utf8(element);
                    let text = text.with_context(|| format!("element {index} is not UTF-8"))?;
                    json.push_str(&serde_json::to_string(text)?);
                }
                _ => write_number(&mut json, &kind, element)?,
            }
        }
        (0..=sizes.len()).for_each(|_| json.push(']'));
        Ok(json)
    }

    /// The bytes of each element, without the length of a text.
    fn elements(&self, width: Option<usize>) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let length = match width {
                Some(width) => width,
                None => {
                    let (length, after) = rest.split_first_chunk::<4>()?;
                    rest = after;
                    u32::from_le_bytes(*length) as usize
                }
            };
            let (element, after) = rest.split_at_checked(length)?;
            rest = after;
            Some(element)
        })
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
        ElementKind::Single => write!(json, "{:?}", finite(f32::from_bits(unsigned as u32))?),
        ElementKind::Double => write!(json, "{:?}", finite(f64::from_bits(unsigned))?),
        ElementKind::Half | ElementKind::Brain => bail!("FP16 and BF16 have no JSON form"),
        ElementKind::Text => unreachable!("texts have no fixed width"),
    };
    written.context("writing to a string does not fail")
}

fn finite<F: Debug + Copy + Into<f64>>(number: F) -> Result<F> {
    ensure!(number.into().is_finite(), "{number:?} has no JSON form");
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elements::push_text;

    fn tensor(datatype: &str, bytes: Vec<u8>) -> InputTensor {
        let input = ModelInput { name: "IN".into(), datatype: datatype.into(), shape: vec![-1] };
        InputTensor { input, bytes: bytes.into() }
    }

    #[test]
    fn arrays_are_flat_or_nested() {
        let tensor = tensor("INT8", vec![0, 1, 2, 255, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(tensor.to_json().unwrap(), "[0,1,2,-1,4,5,6,7,8,9,10,11]");
        assert_eq!(tensor.to_nested_json(&[6]).unwrap(), "[[0,1,2,-1,4,5],[6,7,8,9,10,11]]");
        let nested = "[[[0,1],[2,-1],[4,5]],[[6,7],[8,9],[10,11]]]";
        assert_eq!(tensor.to_nested_json(&[6, 2]).unwrap(), nested);
    }

    #[test]
    fn texts_keep_their_characters() {
        let mut bytes = Vec::new();
        ["größer", "", "\"\n"].iter().for_each(|text| push_text(&mut bytes, text.as_bytes()));
        assert_eq!(tensor("BYTES", bytes).to_json().unwrap(), r#"["größer","","\"\n"]"#);
        assert_eq!(tensor("BYTES", Vec::new()).to_json().unwrap(), "[]");
    }

    #[test]
    fn what_has_no_json_form_is_refused() {
        let mut bytes = Vec::new();
        [&b"ok"[..], &[0xff]].iter().for_each(|text| push_text(&mut bytes, text));
        for (tensor, text) in [
            (tensor("BYTES", bytes), "element 1 is not UTF-8"),
            (tensor("FP16", vec![0, 0]), "FP16 and BF16 have no JSON form"),
            (tensor("FP32", f32::NAN.to_le_bytes().into()), "NaN has no JSON form"),
            (tensor("FP64", f64::INFINITY.to_le_bytes().into()), "inf has no JSON form"),
        ] {
            assert_eq!(tensor.to_json().unwrap_err().to_string(), text);
        }
    }
}
