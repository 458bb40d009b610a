//! A document as a tree. Decoders ask it for members and values.
//!
//! The tree lies in one vector. After each container follow the nodes that it contains. `builder` makes the tree.
use std::{borrow::Cow, collections::HashSet};

use smallvec::SmallVec;
use vocabulary::{DataType, Error};

use super::{
    elements::TensorElements,
    long_read::JsonText,
    nested_elements::NestedElements,
    reader::{Container, Scalar},
    steps,
    syntax::{Number, access},
};

mod builder;

/// A parsed document.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    nodes: Vec<JsonNode<'a>>,
    tensors: Vec<TensorElements>,
    text: JsonText<'a>,
}

/// A node of the tree.
#[derive(Debug)]
enum JsonNode<'a> {
    Scalar(Scalar<'a>),
    /// The members or elements follow this node, up to `end`.
    Container {
        kind: Container,
        end: usize,
    },
    /// An index into [`Document::tensors`], or into the arrays that [`Document::parse_inputs`] returns beside the
    /// document.
    Tensor(usize),
}

/// A value of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonValue<'d> {
    pub(super) document: &'d Document<'d>,
    pub(super) at: usize,
}

/// Members of an object with their names.
type Members<'d> = SmallVec<[(&'d [u8], JsonValue<'d>); 8]>;

impl<'a> Document<'a> {
    /// The outermost value.
    pub(crate) fn root(&self) -> JsonValue<'_> {
        JsonValue { document: self, at: 0 }
    }

    /// Removes the elements of a tensor from the document and returns them.
    pub(crate) fn take_elements(
        &mut self,
        index: usize,
        datatype: DataType,
    ) -> Result<TensorElements, Error> {
        let elements = std::mem::replace(&mut self.tensors[index], TensorElements::unread(0));
        elements.read_as(datatype, self.text).map_err(|error| self.text.explain(error))
    }

    /// The index of the node after the value at `at` and all it contains.
    fn behind(&self, at: usize) -> usize {
        match &self.nodes[at] {
            JsonNode::Container { end, .. } => *end,
            JsonNode::Scalar(_) | JsonNode::Tensor(_) => at + 1,
        }
    }
}

impl<'d> JsonValue<'d> {
    fn node(self) -> &'d JsonNode<'d> {
        &self.document.nodes[self.at]
    }

    fn children(self, wanted: Container) -> Option<(usize, usize)> {
        match self.node() {
            JsonNode::Container { kind, end } if *kind == wanted => Some((self.at + 1, *end)),
            _ => None,
        }
    }

    /// The elements of an array.
    pub(crate) fn elements(self) -> Result<impl Iterator<Item = JsonValue<'d>>, Error> {
        let (mut at, end) = self.children(Container::Array).ok_or_else(|| Error::internal(access::ARRAY))?;
        Ok(std::iter::from_fn(move || {
            let element = (at < end).then_some(JsonValue { document: self.document, at })?;
            steps::add(1);
            at = self.document.behind(at);
            Some(element)
        }))
    }

    /// The members of an object in their order, repeated keys included.
    pub(crate) fn members(self) -> Result<impl Iterator<Item = (&'d [u8], JsonValue<'d>)>, Error> {
        let (mut at, end) =
            self.children(Container::Object).ok_or_else(|| Error::internal(access::MEMBERS))?;
        Ok(std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            steps::add(1);
            let JsonNode::Scalar(Scalar::Text(key)) = &self.document.nodes[at] else {
                unreachable!("a key precedes each value of an object")
            };
            let value = JsonValue { document: self.document, at: at + 1 };
            at = self.document.behind(at + 1);
            Some((&**key, value))
        }))
    }

    /// The members of an object in their order. If a key comes twice, only the first is included.
    pub(crate) fn distinct_members(self) -> Result<Members<'d>, Error> {
        let members: Members<'d> = self.members()?.collect();
        // For few keys, which is usual, direct comparison is cheaper than a set.
        let few = members.len() <= 8;
        let mut seen = HashSet::new();
        let mut distinct = Members::new();
        for (key, value) in members {
            let again =
                if few { distinct.iter().any(|(earlier, _)| *earlier == key) } else { !seen.insert(key) };
            if !again {
                distinct.push((key, value));
            }
        }
        Ok(distinct)
    }

    /// The first member with this name. `None` also if the value is not an object.
    pub(crate) fn find(self, name: &str) -> Option<JsonValue<'d>> {
        self.members().ok()?.find(|(key, _)| *key == name.as_bytes()).map(|(_, value)| value)
    }

    /// The first member with this name.
    pub(crate) fn member(self, name: &str) -> Result<JsonValue<'d>, Error> {
        self.find(name)
            .ok_or_else(|| Error::internal(format!("attempt to access non-existing object member '{name}'")))
    }

    /// The index of the tensor data, see [`Document::take_elements`] and [`Document::parse_inputs`].
    pub(crate) fn tensor(self) -> Option<usize> {
        match self.node() {
            JsonNode::Tensor(index) => Some(*index),
            JsonNode::Scalar(_) | JsonNode::Container { .. } => None,
        }
    }

    /// The value as the only element of a tensor. A value that is not a scalar has the wrong type.
    pub(crate) fn only_element(self, datatype: DataType) -> NestedElements {
        match self.node() {
            JsonNode::Scalar(scalar) => NestedElements::of_scalar(scalar.clone(), datatype),
            JsonNode::Container { .. } | JsonNode::Tensor(_) => NestedElements::of_object(datatype),
        }
    }

    /// The number, if the value is one.
    pub(crate) fn as_number(self) -> Option<Number> {
        match self.node() {
            JsonNode::Scalar(Scalar::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// Whether the value is `null`.
    pub(crate) fn is_null(self) -> bool {
        matches!(self.node(), JsonNode::Scalar(Scalar::Null))
    }

    pub(crate) fn as_bytes(self) -> Result<&'d [u8], Error> {
        match self.node() {
            JsonNode::Scalar(Scalar::Text(text)) => Ok(text),
            _ => Err(Error::internal(access::STRING)),
        }
    }

    /// The text. Bytes that are not UTF-8 are replaced.
    pub(crate) fn as_text(self) -> Result<Cow<'d, str>, Error> {
        self.as_bytes().map(String::from_utf8_lossy)
    }

    pub(crate) fn as_bool(self) -> Result<bool, Error> {
        match self.node() {
            JsonNode::Scalar(Scalar::Bool(value)) => Ok(*value),
            _ => Err(Error::internal(access::BOOLEAN)),
        }
    }

    pub(crate) fn as_uint(self) -> Result<u64, Error> {
        let value = match self.as_number() {
            Some(Number::Int(value)) => u64::try_from(value).ok(),
            Some(Number::Uint(value)) => Some(value),
            Some(Number::Double(_)) | None => None,
        };
        value.ok_or_else(|| Error::internal(access::UNSIGNED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_two_equal_keys_counts() {
        let document = Document::parse(br#"{"a":1,"b":{"a":5},"a":2}"#).unwrap();
        assert_eq!(document.root().find("a").unwrap().as_uint(), Ok(1));
        assert_eq!(document.root().members().unwrap().count(), 3);
        assert!(document.root().find("c").is_none());
    }

    #[test]
    fn distinct_members_are_told_apart_whether_few_or_many() {
        for extra in [0, 20] {
            let more: String = (0..extra).map(|index| format!(r#","x{index}":0"#)).collect();
            let source = format!(r#"{{"a":1,"b":2,"a":3{more},"b":4}}"#);
            let document = Document::parse(source.as_bytes()).unwrap();
            let members = document.root().distinct_members().unwrap();
            let values: Vec<_> =
                members.iter().take(2).map(|(key, value)| (*key, value.as_uint().unwrap())).collect();
            assert_eq!((members.len(), values), (extra + 2, vec![(&b"a"[..], 1), (&b"b"[..], 2)]));
        }
    }

    #[test]
    fn wrong_accesses_give_the_texts_of_the_reference() {
        let document = Document::parse(
            br#"{"n":null,"i":-1,"u":18446744073709551615,"d":1.0,"s":"x","b":true,"a":[1]}"#,
        );
        let document = document.unwrap();
        let root = document.root();
        let get = |name| root.member(name).unwrap();
        let text = |result: Result<u64, Error>| result.unwrap_err().message;
        for name in ["n", "i", "d", "s", "b", "a"] {
            assert_eq!(text(get(name).as_uint()), access::UNSIGNED, "{name}");
        }
        assert_eq!(get("u").as_uint(), Ok(u64::MAX));
        assert_eq!(get("i").as_bool().unwrap_err().message, access::BOOLEAN);
        assert_eq!(get("n").as_text().unwrap_err().message, access::STRING);
        assert_eq!(get("s").members().err().unwrap().message, access::MEMBERS);
        assert_eq!(root.elements().err().unwrap().message, access::ARRAY);
        assert_eq!(
            root.member("x").unwrap_err(),
            Error::internal("attempt to access non-existing object member 'x'")
        );
        assert_eq!(get("a").find("x").map(|value| value.at), None);
    }
}
