//! A document as a tree that is asked for members and values.
//!
//! The tree lies in one vector, each container followed by what it contains. Arrays that are tensors may be kept apart
//! and become bytes at once: those called `data` in an inference request, see [`TensorElements`], those called like an input in
//! a generate request, see [`Nested`].
use std::{borrow::Cow, collections::HashSet};

use inference::{DataType, Error};
use smallvec::SmallVec;

use super::{
    JsonSyntaxError, Number, access,
    elements::TensorElements,
    nested::Nested,
    reader::{Container, Handler, JsonReader, PassOver, Scalar},
};

/// Values a document may have outside of tensors: a value takes two bytes of text, but some forty here.
const MAX_NODES: usize = 1 << 16;

/// Members of an inference request that have members or elements of interest.
const INSIDE: [&[u8]; 4] = [b"inputs", b"outputs", b"parameters", b"shape"];

/// A parsed document.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    nodes: Vec<JsonNode<'a>>,
    tensors: Vec<TensorElements>,
    source: &'a [u8],
}

#[derive(Debug)]
enum JsonNode<'a> {
    Scalar(Scalar<'a>),
    /// Members and elements lie behind it, up to `end`.
    Container {
        kind: Container,
        end: usize,
    },
    /// An array of [`Document::tensors`], or of what [`Document::parse_inputs`] gives beside the document.
    Tensor(usize),
}

/// A value of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonValue<'d> {
    document: &'d Document<'d>,
    at: usize,
}

/// Members of an object with their names.
type Members<'d> = SmallVec<[(&'d [u8], JsonValue<'d>); 8]>;

impl<'a> Document<'a> {
    /// Reads any document.
    ///
    /// # Errors
    /// A mistake in the grammar, or more values than an honest request has.
    pub(crate) fn parse(source: &'a [u8]) -> Result<Self, Error> {
        Self::build(source, Purpose::Any).map(|built| built.document)
    }

    /// Reads an inference request: arrays called `data` become [`TensorElements`], at once where the datatype stands before
    /// them, and later, from their text, where it does not. What nobody will ask for is only checked.
    ///
    /// # Errors
    /// As [`Document::parse`].
    pub(crate) fn parse_tensors(source: &'a [u8]) -> Result<Self, Error> {
        Self::build(source, Purpose::Inference).map(|built| built.document)
    }

    /// Reads a generate request: arrays that are inputs become [`Nested`], which are given beside the document.
    /// `datatype_of` knows the datatypes of inputs by their names. Of other containers only the outermost object and its
    /// `parameters` are kept.
    ///
    /// # Errors
    /// As [`Document::parse`].
    pub(crate) fn parse_inputs(
        source: &'a [u8],
        datatype_of: &dyn Fn(&[u8]) -> Option<DataType>,
    ) -> Result<(Self, Vec<Nested>), Error> {
        Self::build(source, Purpose::Generation(datatype_of)).map(|built| (built.document, built.inputs))
    }

    fn build<'p>(source: &'a [u8], purpose: Purpose<'p>) -> Result<Builder<'a, 'p>, Error> {
        let mut builder = Builder {
            document: Document { nodes: Vec::with_capacity(64), tensors: Vec::new(), source },
            open: Vec::with_capacity(8),
            inputs: Vec::new(),
            purpose,
            member: ContainerRole::Kept,
        };
        JsonReader::new(source).document(&mut builder)?;
        if builder.is_full() {
            return Err(Error::invalid(format!("the request JSON has more than {MAX_NODES} values")));
        }
        Ok(builder)
    }

    /// The outermost value.
    pub(crate) fn root(&self) -> JsonValue<'_> {
        JsonValue { document: self, at: 0 }
    }

    /// Takes the elements of a tensor out of the document.
    pub(crate) fn take_elements(
        &mut self,
        index: usize,
        datatype: DataType,
    ) -> Result<TensorElements, JsonSyntaxError> {
        let elements = std::mem::replace(&mut self.tensors[index], TensorElements::unread(0));
        elements.read_as(datatype, self.source)
    }

    /// The node behind the value at `at` and all it contains.
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
            at = self.document.behind(at);
            Some(element)
        }))
    }

    /// The members of an object in their order, equal keys included.
    pub(crate) fn members(self) -> Result<impl Iterator<Item = (&'d [u8], JsonValue<'d>)>, Error> {
        let (mut at, end) =
            self.children(Container::Object).ok_or_else(|| Error::internal(access::MEMBERS))?;
        Ok(std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let JsonNode::Scalar(Scalar::Text(key)) = &self.document.nodes[at] else {
                unreachable!("a key precedes each value of an object")
            };
            let value = JsonValue { document: self.document, at: at + 1 };
            at = self.document.behind(at + 1);
            Some((&**key, value))
        }))
    }

    /// The members of an object in their order, of equal keys only the first.
    pub(crate) fn distinct_members(self) -> Result<Members<'d>, Error> {
        let members: Members<'d> = self.members()?.collect();
        // Few keys, as is usual, are compared without making a set.
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

    /// The first member of that name; `None` also for what is no object.
    pub(crate) fn find(self, name: &str) -> Option<JsonValue<'d>> {
        self.members().ok()?.find(|(key, _)| *key == name.as_bytes()).map(|(_, value)| value)
    }

    /// The first member of that name.
    pub(crate) fn member(self, name: &str) -> Result<JsonValue<'d>, Error> {
        self.find(name)
            .ok_or_else(|| Error::internal(format!("attempt to access non-existing object member '{name}'")))
    }

    /// Where the data of a tensor are kept, see [`Document::take_elements`] and [`Document::parse_inputs`].
    pub(crate) fn tensor(self) -> Option<usize> {
        match self.node() {
            JsonNode::Tensor(index) => Some(*index),
            JsonNode::Scalar(_) | JsonNode::Container { .. } => None,
        }
    }

    /// The value as the only element of a tensor. What is no scalar is of the wrong type.
    pub(crate) fn only_element(self, datatype: DataType) -> Nested {
        match self.node() {
            JsonNode::Scalar(scalar) => Nested::of_scalar(scalar.clone(), datatype),
            JsonNode::Container { .. } | JsonNode::Tensor(_) => Nested::of_scalar(Scalar::Null, datatype),
        }
    }

    /// The number it is, if it is one.
    pub(crate) fn as_number(self) -> Option<Number> {
        match self.node() {
            JsonNode::Scalar(Scalar::Number(number)) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn as_bytes(self) -> Result<&'d [u8], Error> {
        match self.node() {
            JsonNode::Scalar(Scalar::Text(text)) => Ok(text),
            _ => Err(Error::internal(access::STRING)),
        }
    }

    /// The text with bytes that are not UTF-8 replaced.
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

struct Builder<'a, 'p> {
    document: Document<'a>,
    /// Nodes of the containers we are in.
    open: Vec<usize>,
    /// The inputs of a generate request that are arrays.
    inputs: Vec<Nested>,
    purpose: Purpose<'p>,
    /// What the last key says of its value.
    member: ContainerRole,
}

/// What the document will be asked for.
#[derive(Clone, Copy)]
enum Purpose<'p> {
    /// Anything.
    Any,
    /// What an inference request has.
    Inference,
    /// What a generate request has; tells the datatype of an input.
    Generation(&'p dyn Fn(&[u8]) -> Option<DataType>),
}

/// What becomes of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContainerRole {
    /// Kept with all it contains.
    Kept,
    /// An array that is the data of a tensor.
    Data,
    /// An array of elements of that datatype, whose nesting is the shape.
    Input(DataType),
    /// Kept as an empty one: that it is a container says enough.
    Opaque,
}

impl Builder<'_, '_> {
    /// Nothing is kept any more; the document will be refused if its grammar does not refuse it first.
    fn is_full(&self) -> bool {
        self.document.nodes.len() >= MAX_NODES
    }

    /// What the members of the innermost object say so far about the tensor: datatype and number of elements.
    fn tensor_so_far(&self) -> (Option<DataType>, usize) {
        let object = JsonValue { document: &self.document, at: *self.open.last().unwrap_or(&0) };
        let mut at = object.at + 1;
        let (mut datatype, mut count) = (None, 1);
        // The last node is the key `data` itself.
        while at + 1 < self.document.nodes.len() {
            let value = JsonValue { document: &self.document, at: at + 1 };
            match &self.document.nodes[at] {
                JsonNode::Scalar(Scalar::Text(key)) if **key == *b"datatype" && datatype.is_none() => {
                    datatype =
                        Some(value.as_text().ok().and_then(|name| DataType::from_protocol_name(&name)));
                }
                JsonNode::Scalar(Scalar::Text(key)) if **key == *b"shape" => {
                    for dim in value.elements().into_iter().flatten() {
                        count = usize::saturating_mul(count, dim.as_uint().map_or(0, |dim| dim as usize));
                    }
                }
                _ => {}
            }
            at = self.document.behind(at + 1);
        }
        (datatype.flatten(), count)
    }
}

impl<'a> Handler<'a> for Builder<'a, '_> {
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
            (Purpose::Inference, b"data") => ContainerRole::Data,
            (Purpose::Inference, key) if INSIDE.contains(&key) => ContainerRole::Kept,
            (Purpose::Inference, _) => ContainerRole::Opaque,
            (Purpose::Generation(datatype_of), key) => match datatype_of(key) {
                Some(datatype) => ContainerRole::Input(datatype),
                None if key == b"parameters" && self.open.len() == 1 => ContainerRole::Kept,
                None => ContainerRole::Opaque,
            },
        };
        self.document.nodes.push(JsonNode::Scalar(Scalar::Text(key)));
    }

    fn open(&mut self, kind: Container) {
        if !self.is_full() {
            self.open.push(self.document.nodes.len());
            // Until it is closed its end is not known; nothing asks before.
            self.document.nodes.push(JsonNode::Container { kind, end: usize::MAX });
        }
    }

    fn close(&mut self, _: Container) {
        if !self.is_full() {
            let behind = self.document.nodes.len();
            let node = self.open.pop().and_then(|at| self.document.nodes.get_mut(at));
            if let Some(JsonNode::Container { end, .. }) = node {
                *end = behind;
            }
        }
    }

    fn take(&mut self, kind: Container, reader: &mut JsonReader<'a>) -> Result<bool, JsonSyntaxError> {
        match (std::mem::replace(&mut self.member, ContainerRole::Kept), kind) {
            _ if self.is_full() => Ok(false),
            (ContainerRole::Data, Container::Array) => {
                let (datatype, count) = self.tensor_so_far();
                let elements = TensorElements::read(reader, datatype, count)?;
                self.document.nodes.push(JsonNode::Tensor(self.document.tensors.len()));
                self.document.tensors.push(elements);
                Ok(true)
            }
            (ContainerRole::Input(datatype), Container::Array) => {
                self.document.nodes.push(JsonNode::Tensor(self.inputs.len()));
                self.inputs.push(Nested::read(reader, datatype)?);
                Ok(true)
            }
            (ContainerRole::Opaque | ContainerRole::Data | ContainerRole::Input(_), kind) => {
                reader.walk(&mut PassOver)?;
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
    fn what_is_asked_wrongly_answers_with_the_reference_texts() {
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
    fn a_crowd_of_values_is_refused_unless_nobody_would_ask_for_them() {
        let crowd = format!("[{}1]", "1,".repeat(MAX_NODES));
        let error = Document::parse(crowd.as_bytes()).unwrap_err();
        assert_eq!(error, Error::invalid("the request JSON has more than 65536 values"));
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
}
