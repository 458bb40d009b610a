//! Removes ZipMaps from classifiers, which scikit-learn's converter exports by default. A ZipMap makes a map of label
//! and probability from the probabilities of a row. The server can only serve tensors. So this module removes the
//! ZipMap, and the graph's output becomes the tensor that the ZipMap received: a row for each request row, and a column
//! for each label in the order of the labels.
//!
//! The module reads and writes only the few messages of the ONNX format that it needs. It copies the rest of a file
//! unchanged.

/// A graph without ZipMaps.
pub(crate) struct GraphWithoutZipMap {
    /// The file's content.
    pub(crate) model: Vec<u8>,
    /// The outputs that have become tensors.
    pub(crate) outputs: Vec<ZipMapOutput>,
}

/// An output of a ZipMap.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ZipMapOutput {
    /// Its name.
    pub(crate) name: String,
    /// The number of labels, and of columns.
    pub(crate) labels: u64,
}

/// The numbers of fields in the format.
mod field {
    pub(super) mod model {
        pub(in super::super) const GRAPH: u64 = 7;
        pub(in super::super) const OPERATOR_SETS: u64 = 8;
    }
    pub(super) mod graph {
        pub(in super::super) const NODE: u64 = 1;
        pub(in super::super) const OUTPUT: u64 = 12;
    }
    pub(super) mod node {
        pub(in super::super) const INPUT: u64 = 1;
        pub(in super::super) const OUTPUT: u64 = 2;
        pub(in super::super) const OPERATOR: u64 = 4;
        pub(in super::super) const ATTRIBUTE: u64 = 5;
    }
    pub(super) mod attribute {
        pub(in super::super) const INTEGERS: u64 = 8;
        pub(in super::super) const STRINGS: u64 = 9;
    }
    /// The same number in every message that has a name.
    pub(super) const NAME: u64 = 1;
}

/// The operator set of the standard operators, for a graph that has none. Every set has the copying operator.
const STANDARD_OPERATORS: u64 = 13;

/// Removes the ZipMaps whose results are outputs from a model. `None` if there are none, or if the bytes are not a
/// model.
pub(crate) fn replace(model: &[u8]) -> Option<GraphWithoutZipMap> {
    let fields = fields(model)?;
    let (graph, outputs) =
        fields.iter().find(|field| field.number == field::model::GRAPH)?.message().and_then(graph)?;
    let has_standard_operators = fields
        .iter()
        .filter(|field| field.number == field::model::OPERATOR_SETS)
        .any(|field| field.message().and_then(|set| text(set, field::NAME)).unwrap_or_default().is_empty());
    let mut replaced = Message::default();
    for field in &fields {
        match field.number {
            field::model::GRAPH => replaced.message(field::model::GRAPH, &graph),
            _ => replaced.0.extend_from_slice(field.whole),
        }
    }
    if !has_standard_operators {
        let mut standard = Message::default();
        standard.message(1, &Message::default());
        standard.number(2, STANDARD_OPERATORS);
        replaced.message(field::model::OPERATOR_SETS, &standard);
    }
    Some(GraphWithoutZipMap { model: replaced.0, outputs })
}

/// The graph with a copy in the place of each ZipMap; `None` if there is none.
fn graph(graph: &[u8]) -> Option<(Message, Vec<ZipMapOutput>)> {
    let fields = fields(graph)?;
    let names = fields.iter().filter(|field| field.number == field::graph::OUTPUT);
    let names: Vec<&str> = names.filter_map(|output| text(output.message()?, field::NAME)).collect();
    let mut outputs = Vec::new();
    let mut replaced = Message::default();
    for field in &fields {
        let node = (field.number == field::graph::NODE).then(|| field.message()).flatten();
        match node.and_then(|node| zip_map(node, &names)) {
            Some((copy, output)) => {
                replaced.message(field::graph::NODE, &copy);
                outputs.push(output);
            }
            None if field.number == field::graph::OUTPUT => {}
            None => replaced.0.extend_from_slice(field.whole),
        }
    }
    for field in fields.iter().filter(|field| field.number == field::graph::OUTPUT) {
        let name = field.message().and_then(|output| text(output, field::NAME));
        match outputs.iter().find(|output| Some(&output.name[..]) == name) {
            Some(output) => replaced.message(field::graph::OUTPUT, &tensor(output)),
            None => replaced.0.extend_from_slice(field.whole),
        }
    }
    (!outputs.is_empty()).then_some((replaced, outputs))
}

/// The copying node for a ZipMap that makes one of these outputs.
fn zip_map(node: &[u8], outputs: &[&str]) -> Option<(Message, ZipMapOutput)> {
    if text(node, field::node::OPERATOR)? != "ZipMap" {
        return None;
    }
    let (input, name) = (text(node, field::node::INPUT)?, text(node, field::node::OUTPUT)?);
    if !outputs.contains(&name) {
        return None;
    }
    let mut labels = 0;
    for attribute in fields(node)?.iter().filter(|field| field.number == field::node::ATTRIBUTE) {
        for list in fields(attribute.message()?)? {
            labels += match (list.number, list.message()) {
                (field::attribute::STRINGS, _) | (field::attribute::INTEGERS, None) => 1,
                // Consecutive numbers: each ends with a byte whose highest bit is not set.
                (field::attribute::INTEGERS, Some(packed)) => {
                    packed.iter().map(|byte| u64::from(byte & 0x80 == 0)).sum()
                }
                _ => 0,
            };
        }
    }
    let mut copy = Message::default();
    copy.bytes(field::node::INPUT, input.as_bytes());
    copy.bytes(field::node::OUTPUT, name.as_bytes());
    copy.bytes(field::node::OPERATOR, b"Identity");
    Some((copy, ZipMapOutput { name: name.to_owned(), labels }))
}

/// The declaration of an output as an FP32 tensor with rows and a column for each label.
fn tensor(output: &ZipMapOutput) -> Message {
    const FLOAT: u64 = 1;
    let [mut rows, mut columns, mut shape, mut kind, mut of_tensor, mut declared] =
        std::array::from_fn(|_| Message::default());
    rows.bytes(2, b"rows");
    match output.labels {
        0 => columns.bytes(2, b"labels"),
        labels => columns.number(1, labels),
    }
    shape.message(1, &rows);
    shape.message(1, &columns);
    of_tensor.number(1, FLOAT);
    of_tensor.message(2, &shape);
    kind.message(1, &of_tensor);
    declared.bytes(field::NAME, output.name.as_bytes());
    declared.message(2, &kind);
    declared
}

/// A field of an encoded message.
struct Field<'a> {
    number: u64,
    /// The whole field with its key.
    whole: &'a [u8],
    /// The content, if it is bytes, a text or a message.
    content: Option<&'a [u8]>,
}

impl<'a> Field<'a> {
    fn message(&self) -> Option<&'a [u8]> {
        self.content
    }
}

/// The fields of a message; `None` if it is not well formed.
fn fields(message: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut fields = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let start = rest;
        let key = varint(&mut rest)?;
        let content = match key & 7 {
            0 => varint(&mut rest).map(|_| None)?,
            1 => rest.split_off(..8).map(|_| None)?,
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                Some(rest.split_off(..length)?)
            }
            5 => rest.split_off(..4).map(|_| None)?,
            _ => return None,
        };
        fields.push(Field { number: key >> 3, whole: &start[..start.len() - rest.len()], content });
    }
    Some(fields)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first()?;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The first text of that number in a message.
fn text(message: &[u8], number: u64) -> Option<&str> {
    let content = fields(message)?.into_iter().find(|field| field.number == number)?.content?;
    std::str::from_utf8(content).ok()
}

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn number(&mut self, number: u64, value: u64) {
        self.varint(number << 3);
        self.varint(value);
    }

    fn bytes(&mut self, number: u64, value: &[u8]) {
        self.varint(number << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn message(&mut self, number: u64, value: &Self) {
        self.bytes(number, &value.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_model_or_has_no_zip_map_stays_as_it_is() {
        assert!(replace(b"").is_none());
        assert!(replace(b"not a model").is_none());
        let mut graph = Message::default();
        graph.bytes(2, b"graph");
        let mut model = Message::default();
        model.message(field::model::GRAPH, &graph);
        assert!(replace(&model.0).is_none());
        // Cuts the file at every length.
        for length in 0..model.0.len() {
            assert!(replace(&model.0[..length]).is_none());
        }
    }

    #[test]
    fn numbers_of_any_length_are_read_as_they_are_written() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut message = Message::default();
            message.number(3, number);
            let mut rest = &message.0[1..];
            assert_eq!(varint(&mut rest), Some(number));
            assert!(rest.is_empty());
        }
    }
}
