//! What is read from a checkpoint, field by field.

use crate::fault::{ForestError, malformed};

/// A place in the file.
pub(super) struct CheckpointCursor<'f> {
    rest: &'f [u8],
}

/// An array that lies in the file.
#[derive(Clone, Copy)]
pub(super) struct ArrayField<'f> {
    bytes: &'f [u8],
    size: usize,
}

impl<'f> CheckpointCursor<'f> {
    pub(super) fn new(file: &'f [u8]) -> Self {
        Self { rest: file }
    }

    fn take(&mut self, name: &str, length: usize) -> Result<&'f [u8], ForestError> {
        match self.rest.split_at_checked(length) {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(bytes)
            }
            None => Err(malformed(
                name,
                format!("it needs {length} bytes, the file has {} more", self.rest.len()),
            )),
        }
    }

    fn fixed<const N: usize>(&mut self, name: &str) -> Result<[u8; N], ForestError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(name, N)?);
        Ok(bytes)
    }

    pub(super) fn byte(&mut self, name: &str) -> Result<u8, ForestError> {
        Ok(u8::from_le_bytes(self.fixed(name)?))
    }

    pub(super) fn int32(&mut self, name: &str) -> Result<i32, ForestError> {
        Ok(i32::from_le_bytes(self.fixed(name)?))
    }

    pub(super) fn float32(&mut self, name: &str) -> Result<f32, ForestError> {
        Ok(f32::from_le_bytes(self.fixed(name)?))
    }

    /// A number of 32 bits that must not be negative.
    pub(super) fn index(&mut self, name: &str) -> Result<usize, ForestError> {
        usize::try_from(self.int32(name)?).map_err(|_| malformed(name, "it must not be negative"))
    }

    /// A number of 64 bits.
    pub(super) fn count(&mut self, name: &str) -> Result<usize, ForestError> {
        let count = u64::from_le_bytes(self.fixed(name)?);
        usize::try_from(count).map_err(|_| malformed(name, "it must fit memory"))
    }

    /// An array: its length, and then elements of `size` bytes.
    pub(super) fn array(&mut self, name: &str, size: usize) -> Result<ArrayField<'f>, ForestError> {
        let count = self.count(name)?;
        let length =
            count.checked_mul(size).ok_or_else(|| malformed(name, "its length must fit the file"))?;
        Ok(ArrayField { bytes: self.take(name, length)?, size })
    }

    /// An array that must have `count` elements.
    pub(super) fn array_of(
        &mut self,
        name: &str,
        size: usize,
        count: usize,
    ) -> Result<ArrayField<'f>, ForestError> {
        let array = self.array(name, size)?;
        let rule = || malformed(name, format!("it must have an element for each of {count} nodes"));
        if array.len() == count { Ok(array) } else { Err(rule()) }
    }

    pub(super) fn text(&mut self, name: &str) -> Result<String, ForestError> {
        let bytes = self.array(name, 1)?.bytes;
        let text = std::str::from_utf8(bytes).map_err(|_| malformed(name, "it must be UTF-8"))?;
        Ok(text.to_owned())
    }

    /// Fields that later releases have added. They may be ignored, by the rules of the format.
    pub(super) fn skip_optional_fields(&mut self) -> Result<(), ForestError> {
        let name = "optional field";
        for _ in 0..self.index(name)? {
            self.array(name, 1)?;
            let size = self.count(name)?;
            self.array(name, size)?;
        }
        Ok(())
    }

    /// Checks that nothing follows.
    pub(super) fn finish(self) -> Result<(), ForestError> {
        match self.rest.len() {
            0 => Ok(()),
            length => Err(malformed(
                "end of the file",
                format!("nothing must follow the trees, but {length} bytes do"),
            )),
        }
    }
}

impl<'f> ArrayField<'f> {
    pub(super) fn len(self) -> usize {
        self.bytes.len() / self.size.max(1)
    }

    /// The elements from `begin` to `end`.
    pub(super) fn range(self, begin: usize, end: usize) -> Option<Self> {
        let bytes = begin.checked_mul(self.size).zip(end.checked_mul(self.size));
        let bytes = bytes.and_then(|(begin, end)| self.bytes.get(begin..end))?;
        Some(Self { bytes, ..self })
    }

    pub(super) fn bytes(self) -> &'f [u8] {
        self.bytes
    }

    pub(super) fn int32s(self) -> impl Iterator<Item = i32> + Clone + use<'f> {
        self.elements().map(i32::from_le_bytes)
    }

    pub(super) fn uint32s(self) -> impl Iterator<Item = u32> + Clone + use<'f> {
        self.elements().map(u32::from_le_bytes)
    }

    pub(super) fn uint64s(self) -> impl Iterator<Item = u64> + Clone + use<'f> {
        self.elements().map(u64::from_le_bytes)
    }

    pub(super) fn float64s(self) -> impl Iterator<Item = f64> + Clone + use<'f> {
        self.elements().map(f64::from_le_bytes)
    }

    /// The floats, which have 64 bits if `is_double`.
    pub(super) fn floats(self, is_double: bool) -> Vec<f64> {
        if is_double {
            return self.float64s().collect();
        }
        self.elements().map(|bytes| f64::from(f32::from_le_bytes(bytes))).collect()
    }

    fn elements<const N: usize>(self) -> impl Iterator<Item = [u8; N]> + Clone + use<'f, N> {
        debug_assert_eq!(N, self.size);
        self.bytes.as_chunks().0.iter().copied()
    }
}
