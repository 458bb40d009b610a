//! An input tensor of a request, and its JSON form.
//!
//! A tensor is stored in its binary network form. Requests are prepared before the run and sent repeatedly, so this code
//! need not be fast.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use bytes::Bytes;

use crate::elements::ElementKind;
use crate::model::ModelInput;

/// An input with its content. Invariant: `bytes` contains exactly the elements of `input.shape`.
#[derive(Clone)]
pub(crate) struct InputTensor {
    pub(crate) input: ModelInput,
    pub(crate) bytes: Bytes,
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
