//! Makes a [`Document`] from its text, in one pass.
//!
//! Arrays that are tensors become bytes at once and are stored beside the tree: arrays named `data` in an inference
//! request, see [`TensorElements`], and arrays named like an input in a generate request, see [`NestedElements`].
//!
//! The work is linear in the length of the text, whatever a client sends. No key makes the builder search the members
//! before it. The memory that is reserved for elements before they are read is at most a multiple of the text.
use std::borrow::Cow;

use vocabulary::{DataType, Error};

use super::{
    super::{
        elements::TensorElements,
        long_read::JsonText,
        nested_elements::NestedElements,
        reader::{Container, JsonReader, JsonVisitor, Scalar, SyntaxOnly},
        syntax::JsonSyntaxError,
    },
    Document, JsonNode, JsonValue,
};

/// The most values of a document outside of tensors. A value takes at least two bytes of text, but about forty bytes of
/// memory. A request with 4,000 inputs and 4,000 outputs has up to 76,000.
pub(super) const MAX_NODES: usize = 1 << 17;

impl<'a> Document<'a> {
    /// Reads any document.
    ///
    /// # Errors
    /// The grammar is wrong, or the document has too many values.
    pub(crate) fn parse(text: impl Into<JsonText<'a>>) -> Result<Self, Error> {
        Self::build(text.into(), Purpose::Any).map(|built| built.document)
    }

    /// Reads the members of the outermost object, and those of its `parameters` and of its `raw_handle`. Of any other
    /// container only its kind is stored.
    ///
    /// # Errors
    /// The grammar is wrong, or the document has too many values.
    pub(crate) fn parse_members(text: impl Into<JsonText<'a>>) -> Result<Self, Error> {
        Self::parse_inputs(text, &|_| None).map(|(document, _)| document)
    }

    /// Reads an inference request. Arrays named `data` become [`TensorElements`]: at once if the datatype stands before
    /// them, otherwise later, from their text. Values that the decoder never asks for are only checked.
    ///
    /// # Errors
    /// As [`Document::parse_members`].
    pub(crate) fn parse_tensors(text: impl Into<JsonText<'a>>) -> Result<Self, Error> {
        Self::build(text.into(), Purpose::Inference).map(|built| built.document)
    }

    /// Reads a generate request. Arrays that are inputs become [`NestedElements`], and are returned beside the
    /// document. `datatype_of` returns the datatype of an input by its name. Of other containers only the outermost
    /// object and its `parameters` are kept.
    ///
    /// # Errors
    /// As [`Document::parse_members`].
    pub(crate) fn parse_inputs(
        text: impl Into<JsonText<'a>>,
        datatype_of: &dyn Fn(&[u8]) -> Option<DataType>,
    ) -> Result<(Self, Vec<NestedElements>), Error> {
        Self::build(text.into(), Purpose::Generation(datatype_of)).map(|built| (built.document, built.inputs))
    }

    fn build<'p>(text: JsonText<'a>, purpose: Purpose<'p>) -> Result<DocumentBuilder<'a, 'p>, Error> {
        let mut builder = DocumentBuilder {
            document: Document { nodes: Vec::with_capacity(64), tensors: Vec::new(), text },
            open: Vec::with_capacity(8),
            inputs: Vec::new(),
            purpose,
            member: ContainerRole::Kept,
            // An element takes at least two bytes of text and at most eight bytes of memory.
            reservable: text.bytes().len().saturating_mul(4),
        };
        JsonReader::new(text).document(&mut builder).map_err(|error| text.explain(error))?;
        if builder.is_full() {
            return Err(Error::invalid(format!("the request JSON has more than {MAX_NODES} values")));
        }
        Ok(builder)
    }
}

struct DocumentBuilder<'a, 'p> {
    document: Document<'a>,
    /// The containers that are not closed yet.
    open: Vec<OpenContainer>,
    /// The arrays that are inputs of a generate request.
    inputs: Vec<NestedElements>,
    purpose: Purpose<'p>,
    /// The role of the value of the last key.
    member: ContainerRole,
    /// How many more bytes the builder may reserve for elements before it reads them.
    reservable: usize,
}

/// A container that the builder is reading, and what its members say about a tensor. If a key comes twice, the first
/// one counts.
struct OpenContainer {
    /// The index of its node.
    at: usize,
    /// The index of the node of `datatype`.
    datatype: Option<usize>,
    /// The index of the node of `shape`.
    shape: Option<usize>,
    has_data: bool,
}

/// Which values the decoder will ask for.
#[derive(Clone, Copy)]
enum Purpose<'p> {
    /// Any value.
    Any,
    /// The values of an inference request.
    Inference,
    /// The values of a generate request. The function returns the datatype of an input.
    Generation(&'p dyn Fn(&[u8]) -> Option<DataType>),
}

/// How the builder stores a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContainerRole {
    /// Stored with all it contains.
    Kept,
    /// An array with the data of a tensor.
    Data,
    /// An array of elements of this datatype. Its nesting is the shape.
    Input(DataType),
    /// Stored as an empty container: only its kind matters.
    Opaque,
}

impl DocumentBuilder<'_, '_> {
    /// Tells whether the document has too many values. Then the builder stores no more, and refuses the document at its
    /// end unless the grammar is wrong.
    fn is_full(&self) -> bool {
        self.document.nodes.len() >= MAX_NODES
    }

    /// The role of the value of `key`. The value is the next node but one.
    fn inference_member(&mut self, key: &[u8]) -> ContainerRole {
        let value = self.document.nodes.len() + 1;
        let Some(object) = self.open.last_mut() else { return ContainerRole::Opaque };
        match key {
            // The decoder never asks for the value of a second key `data`.
            b"data" if std::mem::replace(&mut object.has_data, true) => ContainerRole::Opaque,
            b"data" => ContainerRole::Data,
            b"shape" => {
                object.shape.get_or_insert(value);
                ContainerRole::Kept
            }
            b"datatype" => {
                object.datatype.get_or_insert(value);
                ContainerRole::Opaque
            }
            b"inputs" | b"outputs" | b"parameters" => ContainerRole::Kept,
            _ => ContainerRole::Opaque,
        }
    }

    /// The datatype and the number of elements of the tensor, as far as the members of the innermost object have stated
    /// them. The builder calls this once for each object.
    fn tensor_so_far(&self) -> (Option<DataType>, usize) {
        let Some(object) = self.open.last() else { return (None, 1) };
        let value = |at: usize| JsonValue { document: &self.document, at };
        let datatype = object.datatype.and_then(|at| value(at).as_text().ok());
        let datatype = datatype.and_then(|name| DataType::from_protocol_name(&name));
        let dims = object.shape.and_then(|at| value(at).elements().ok()).into_iter().flatten();
        let count = dims.fold(1, |count: usize, dim| {
            count.saturating_mul(dim.as_uint().map_or(0, |dim| usize::try_from(dim).unwrap_or(usize::MAX)))
        });
        (datatype, count)
    }
}

impl<'a> JsonVisitor<'a> for DocumentBuilder<'a, '_> {
    fn scalar(&mut self, scalar: Scalar<'a>) {
        if !self.is_full() {
            self.document.nodes.push(JsonNode::Scalar(scalar));
            self.member = ContainerRole::Kept;
        }
    }

    fn key(&mut self, key: Cow<'a, [u8]>) {
        if self.is_full() {
            return;
        }
        self.member = match (self.purpose, &*key) {
            (Purpose::Any, _) => ContainerRole::Kept,
            (Purpose::Inference, key) => self.inference_member(key),
            (Purpose::Generation(datatype_of), key) => match datatype_of(key) {
                Some(datatype) => ContainerRole::Input(datatype),
                None if self.open.len() == 1 && matches!(key, b"parameters" | b"raw_handle") => {
                    ContainerRole::Kept
                }
                None => ContainerRole::Opaque,
            },
        };
        self.document.nodes.push(JsonNode::Scalar(Scalar::Text(key)));
    }

    fn open(&mut self, kind: Container) {
        if !self.is_full() {
            let at = self.document.nodes.len();
            self.open.push(OpenContainer { at, datatype: None, shape: None, has_data: false });
            // The end is unknown until the container is closed. Nothing reads it before.
            self.document.nodes.push(JsonNode::Container { kind, end: usize::MAX });
        }
    }

    fn close(&mut self, _: Container) {
        if !self.is_full() {
            let behind = self.document.nodes.len();
            let node = self.open.pop().and_then(|open| self.document.nodes.get_mut(open.at));
            if let Some(JsonNode::Container { end, .. }) = node {
                *end = behind;
            }
        }
    }

    fn held(&self) -> usize {
        size_of_val(&*self.document.nodes)
    }

    fn take(&mut self, kind: Container, reader: &mut JsonReader<'a>) -> Result<bool, JsonSyntaxError> {
        match (std::mem::replace(&mut self.member, ContainerRole::Kept), kind) {
            _ if self.is_full() => Ok(false),
            (ContainerRole::Data, Container::Array) => {
                let (datatype, count) = self.tensor_so_far();
                let elements = TensorElements::read(reader, datatype, count, &mut self.reservable)?;
                self.document.nodes.push(JsonNode::Tensor(self.document.tensors.len()));
                self.document.tensors.push(elements);
                Ok(true)
            }
            (ContainerRole::Input(datatype), Container::Array) => {
                self.document.nodes.push(JsonNode::Tensor(self.inputs.len()));
                self.inputs.push(NestedElements::read(reader, datatype)?);
                Ok(true)
            }
            (ContainerRole::Opaque | ContainerRole::Data | ContainerRole::Input(_), kind) => {
                reader.walk(&mut SyntaxOnly)?;
                let end = self.document.nodes.len() + 1;
                self.document.nodes.push(JsonNode::Container { kind, end });
                Ok(true)
            }
            (ContainerRole::Kept, _) => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_a_generate_request_are_kept_apart_wherever_they_may_stand() {
        let datatype_of = |key: &[u8]| key.starts_with(b"IN").then_some(DataType::Int8);
        let crowd = format!("[{}1]", "1,".repeat(MAX_NODES));
        let source = format!(
            r#"{{"IN0":{crowd},"parameters":{{"IN1":[2],"parameters":{{"x":1}}}},"foo":{crowd},"IN2":{{"x":{crowd}}}}}"#
        );
        let (document, inputs) = Document::parse_inputs(source.as_bytes(), &datatype_of).unwrap();
        let root = document.root();
        let inner = root.find("parameters").unwrap();
        assert_eq!(
            (root.find("IN0").unwrap().tensor(), inner.find("IN1").unwrap().tensor()),
            (Some(0), Some(1))
        );
        for opaque in [inner.find("parameters").unwrap(), root.find("IN2").unwrap()] {
            assert_eq!(opaque.members().unwrap().count(), 0);
        }
        assert_eq!(root.find("foo").unwrap().elements().unwrap().count(), 0);
        let counts: Vec<_> = inputs.into_iter().map(|input| input.into_parts().unwrap().0.len()).collect();
        assert_eq!(counts, [MAX_NODES + 1, 1]);
    }

    #[test]
    fn data_is_read_whether_its_datatype_stands_before_or_behind() {
        for source in [
            r#"{"datatype":"INT16","shape":[2,2],"data":[[1,2],[3,4]],"x":{"y":[]}}"#,
            r#"{"data":[[1,2],[3,4]],"datatype":"INT16"}"#,
        ] {
            let mut document = Document::parse_tensors(source.as_bytes()).unwrap();
            let data = document.root().find("data").unwrap();
            assert!(data.elements().is_err());
            let index = data.tensor().unwrap();
            let elements = document.take_elements(index, DataType::Int16).unwrap();
            assert_eq!(elements.into_bytes(DataType::Int16, 4), Ok(vec![1, 0, 2, 0, 3, 0, 4, 0]));
        }
    }

    #[test]
    fn too_many_values_are_refused_unless_they_are_ignored() {
        let crowd = format!("[{}1]", "1,".repeat(MAX_NODES));
        let error = Document::parse(crowd.as_bytes()).unwrap_err();
        assert_eq!(error, Error::invalid("the request JSON has more than 131072 values"));
        let unknown = format!(r#"{{"foo":{crowd},"inputs":[]}}"#);
        let document = Document::parse_tensors(unknown.as_bytes()).unwrap();
        assert!(document.root().find("inputs").is_some());
        assert_eq!(document.root().find("foo").unwrap().elements().unwrap().count(), 0);
        let broken = format!("{crowd} x");
        assert!(Document::parse(broken.as_bytes()).unwrap_err().message.contains("must not be followed"));
    }

    #[test]
    fn a_key_that_only_contains_data_is_no_tensor() {
        let document =
            Document::parse_tensors(br#"{"data":{"x":[1]},"datas":[2],"y":[{"data":3},[4]]}"#).unwrap();
        assert!(document.tensors.is_empty());
        assert!(document.root().find("datas").unwrap().elements().is_ok());
    }

    #[test]
    fn of_equal_keys_the_first_tells_datatype_shape_and_data() {
        let source =
            r#"{"datatype":"INT8","datatype":"INT32","shape":[2],"shape":[9],"data":[1,2],"data":[3]}"#;
        let mut document = Document::parse_tensors(source.as_bytes()).unwrap();
        assert_eq!(document.tensors.len(), 1);
        let elements = document.take_elements(0, DataType::Int8).unwrap();
        assert_eq!(elements.into_bytes(DataType::Int8, 2), Ok(vec![1, 2]));
        let broken = r#"{"data":[1],"data":[2}"#;
        assert!(Document::parse_tensors(broken.as_bytes()).unwrap_err().message.ends_with("at 21"));
    }

    #[test]
    fn shapes_larger_than_their_data_reserve_memory_in_proportion_to_the_text() {
        let input = r#"{"datatype":"INT64","shape":[1000000000],"data":[]}"#;
        let source = format!("[{}]", vec![input; 1000].join(","));
        let document = Document::parse_tensors(source.as_bytes()).unwrap();
        assert_eq!(document.tensors.len(), 1000);
        let reserved: usize = document.tensors.iter().map(TensorElements::reserved).sum();
        assert!(reserved <= 4 * source.len(), "{reserved} bytes for {}", source.len());
    }
}
