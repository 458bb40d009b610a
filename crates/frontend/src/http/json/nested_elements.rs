//! Elements whose nesting defines the shape of their tensor: arrays of arrays, or a single element without an array.
use std::borrow::Cow;

use smallvec::SmallVec;
use vocabulary::{DataType, Shape};

use super::{
    elements::{ElementsError, MAX_DEPTH, ReadElements},
    reader::{Container, JsonReader, JsonVisitor, Scalar},
    syntax::JsonSyntaxError,
};

/// Elements as bytes, and their nesting.
#[derive(Debug)]
pub(crate) struct NestedElements {
    read: ReadElements,
    nesting: Nesting,
}

impl NestedElements {
    /// Reads the array that begins at `reader`.
    pub(super) fn read(reader: &mut JsonReader<'_>, datatype: DataType) -> Result<Self, JsonSyntaxError> {
        let mut nested = Self { read: ReadElements::new(datatype, 0), nesting: Nesting::default() };
        reader.walk(&mut nested)?;
        reader.keep(nested.held());
        Ok(nested)
    }

    /// A single element.
    pub(super) fn of_scalar(scalar: Scalar<'_>, datatype: DataType) -> Self {
        let mut nested = Self { read: ReadElements::new(datatype, 0), nesting: Nesting::default() };
        nested.scalar(scalar);
        nested
    }

    /// An object, which is no element.
    pub(super) fn of_object(datatype: DataType) -> Self {
        let mut nested = Self { read: ReadElements::new(datatype, 0), nesting: Nesting::default() };
        nested.open(Container::Object);
        nested
    }

    /// The bytes, and the lengths of the arrays from the outermost to the innermost. A single element has no lengths.
    /// The shape is `None` if the arrays of a level have different lengths.
    pub(crate) fn into_parts(self) -> Result<(Vec<u8>, Option<Shape>), ElementsError> {
        Ok((self.read.all()?, self.nesting.shape()))
    }
}

/// [`ReadElements`] detects errors in elements. It gets every event.
impl<'a> JsonVisitor<'a> for NestedElements {
    fn scalar(&mut self, scalar: Scalar<'a>) {
        self.nesting.elements(1);
        self.read.scalar(scalar);
    }

    fn numbers(&mut self, reader: &mut JsonReader<'a>) -> Result<(), JsonSyntaxError> {
        let before = self.read.count();
        self.read.numbers(reader)?;
        self.nesting.elements(self.read.count() - before);
        Ok(())
    }

    fn key(&mut self, key: Cow<'a, [u8]>) {
        self.read.key(key);
    }

    fn open(&mut self, container: Container) {
        if container == Container::Array {
            self.nesting.open();
        }
        self.read.open(container);
    }

    fn close(&mut self, container: Container) {
        if container == Container::Array {
            self.nesting.close();
        }
        self.read.close(container);
    }

    fn held(&self) -> usize {
        self.read.held()
    }
}

/// The lengths of nested arrays. Below [`MAX_DEPTH`], where elements are refused, no lengths are recorded.
#[derive(Debug, Default)]
struct Nesting {
    /// For each array that is still open, outermost first: the number of its elements so far.
    open: SmallVec<[usize; 8]>,
    depth: usize,
    /// For each level: the number of elements of its arrays. `None` before the first array of the level is closed.
    lens: SmallVec<[Option<usize>; 8]>,
    /// The level of the elements. `None` before the first element.
    innermost: Option<usize>,
    ragged: bool,
}

impl Nesting {
    fn elements(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.ragged |= *self.innermost.get_or_insert(self.depth) != self.depth;
        if let Some(len) = self.open.last_mut() {
            *len += count;
        }
    }

    fn open(&mut self) {
        if self.depth < MAX_DEPTH {
            if let Some(len) = self.open.last_mut() {
                *len += 1;
            }
            self.open.push(0);
        }
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        if self.depth >= MAX_DEPTH {
            return;
        }
        let len = self.open.pop();
        if self.lens.len() <= self.depth {
            self.lens.resize(self.depth + 1, None);
        }
        let known = &mut self.lens[self.depth];
        self.ragged |= known.is_some() && *known != len;
        *known = len;
    }

    fn shape(&self) -> Option<Shape> {
        // If an array stands beside an element, it makes a level that the element does not have.
        let even = self.innermost.is_none_or(|level| level == self.lens.len());
        if self.ragged || !even {
            return None;
        }
        self.lens.iter().map(|len| i64::try_from((*len)?).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::json::syntax::access;

    fn read(source: &str, datatype: DataType) -> Result<(Vec<u8>, Option<Shape>), ElementsError> {
        NestedElements::read(&mut JsonReader::new(source.as_bytes()), datatype).unwrap().into_parts()
    }

    fn shape(source: &str) -> Option<Vec<i64>> {
        read(source, DataType::Int8).unwrap().1.map(|shape| shape.to_vec())
    }

    #[test]
    fn the_nesting_is_the_shape() {
        for (source, expected) in [
            ("[]", &[0][..]),
            ("[1, 2,3]", &[3]),
            ("[[1,2],[3,4],[5,6]]", &[3, 2]),
            ("[[[1],[2]]]", &[1, 2, 1]),
            ("[[],[]]", &[2, 0]),
            ("[[[]],[[]]]", &[2, 1, 0]),
        ] {
            assert_eq!(shape(source).as_deref(), Some(expected), "{source}");
        }
        assert_eq!(read("[[1,2],[3,4]]", DataType::Int8).unwrap().0, [1, 2, 3, 4]);
        let texts = read(r#"[["a"],["b"]]"#, DataType::Bytes).unwrap();
        assert_eq!(texts, (b"\x01\0\0\0a\x01\0\0\0b".to_vec(), Some([2, 1].as_slice().into())));
    }

    #[test]
    fn uneven_arrays_have_no_shape() {
        for source in [
            "[[1,2],[3]]",
            "[1,[2]]",
            "[[1],2]",
            "[1,[]]",
            "[[],1]",
            "[[],[1]]",
            "[[],[[]]]",
            "[[[]],[]]",
            "[[[1]],[2]]",
        ] {
            assert_eq!(shape(source), None, "{source}");
        }
    }

    #[test]
    fn a_scalar_is_one_element_without_any_array() {
        let parts = NestedElements::of_scalar(Scalar::Bool(true), DataType::Bool).into_parts();
        assert_eq!(parts, Ok((vec![1], Some(Shape::new()))));
        let parts = NestedElements::of_scalar(Scalar::Null, DataType::Fp32).into_parts();
        let error = ElementsError::Type { text: access::NUMBER, given: "null", at: 0 };
        assert_eq!(parts, Err(error));
    }

    #[test]
    fn what_is_no_element_is_refused_whatever_its_place() {
        for source in [r#"["x"]"#, r#"[1,"x",2]"#, r#"[{"a":[1,{"b":2}]}]"#, "[[1],[1.5]]"] {
            let error = read(source, DataType::Int8).unwrap_err();
            assert!(matches!(error, ElementsError::Type { text: access::SIGNED, .. }), "{source}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested =
            |depth: usize, inner: &str| ["[".repeat(depth), inner.into(), "]".repeat(depth)].concat();
        assert_eq!(shape(&nested(99, "1")), Some(vec![1; 99]));
        assert_eq!(read(&nested(100, "1"), DataType::Int8), Err(ElementsError::Depth));
        assert_eq!(read(&nested(1 << 20, ""), DataType::Int8), Err(ElementsError::Depth));
    }
}
