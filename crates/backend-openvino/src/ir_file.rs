//! Reads the inputs and outputs of a graph from a file of OpenVINO's own format (IR), without the library.
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader},
    mem,
    path::Path,
};

use quick_xml::{
    Reader, XmlVersion,
    events::{BytesStart, Event},
};
use vocabulary::Shape;

/// What a file says of a graph.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct IrFile {
    /// The layers `Parameter`, in the order of the file.
    pub(crate) inputs: Vec<IrValue>,
    /// The layers `Result`, in the order of the file.
    pub(crate) outputs: Vec<IrValue>,
    /// Bytes of weights in FP16 or BF16.
    pub(crate) half_bytes: u64,
}

/// An input or output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IrValue {
    /// All its names; none if the file has none.
    pub(crate) names: Vec<String>,
    /// Its element type, as the file names it.
    pub(crate) element: String,
    /// Its shape; -1 stands for a dimension that is not fixed. `None` if not even the number of dimensions is.
    pub(crate) shape: Option<Shape>,
}

/// A port of a layer: the ids of both.
type PortId = (String, String);

/// What is read of the present layer.
#[derive(Default)]
struct Layer {
    id: String,
    kind: String,
    /// Its last port.
    port: IrValue,
    is_of_any_rank: bool,
}

#[derive(Default)]
struct IrReader {
    file: IrFile,
    layer: Layer,
    is_in_dim: bool,
    /// The names of every port that has some.
    names: BTreeMap<PortId, Vec<String>>,
    /// The layer of each output.
    results: Vec<String>,
    /// The port from which the last input of a layer comes.
    sources: BTreeMap<String, PortId>,
}

/// Reads a file.
///
/// # Errors
/// The reason why it is no graph of this format.
pub(crate) fn read(path: &Path) -> Result<IrFile, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    parse(BufReader::new(file))
}

fn parse(text: impl BufRead) -> Result<IrFile, String> {
    let mut xml = Reader::from_reader(text);
    let (mut reader, mut buffer, mut is_whole) = (IrReader::default(), Vec::new(), false);
    loop {
        match xml.read_event_into(&mut buffer).map_err(|error| error.to_string())? {
            Event::Start(tag) => reader.open(&tag)?,
            Event::Empty(tag) => {
                reader.open(&tag)?;
                reader.close(tag.name().as_ref());
            }
            Event::Text(text) => reader.text(&String::from_utf8_lossy(&text))?,
            Event::End(tag) => {
                is_whole |= tag.name().as_ref() == b"net";
                reader.close(tag.name().as_ref());
            }
            Event::Eof if is_whole => return Ok(reader.finish()),
            Event::Eof => return Err("it has no element 'net', or its end is missing".to_owned()),
            _ => {}
        }
        buffer.clear();
    }
}

impl IrReader {
    fn open(&mut self, tag: &BytesStart<'_>) -> Result<(), String> {
        let mut told = attributes(tag)?;
        let mut take = |name: &str| told.remove(name).unwrap_or_default();
        match tag.name().as_ref() {
            b"layer" => {
                let port = IrValue { names: names(&take("output_names")), ..IrValue::default() };
                self.layer = Layer { id: take("id"), kind: take("type"), port, is_of_any_rank: false };
            }
            b"data" => {
                self.layer.is_of_any_rank = take("shape") == "...";
                if self.layer.kind == "Const" && ["f16", "bf16"].contains(&take("element_type").as_str()) {
                    let bytes = take("size").parse().unwrap_or(0);
                    self.file.half_bytes = self.file.half_bytes.saturating_add(bytes);
                }
            }
            b"port" => {
                let told = names(&take("names"));
                if !told.is_empty() {
                    self.names.insert((self.layer.id.clone(), take("id")), told.clone());
                    self.layer.port.names = told;
                }
                self.layer.port.element = take("precision");
                self.layer.port.shape = Some(Shape::new());
            }
            b"dim" => self.is_in_dim = true,
            b"edge" => {
                self.sources.insert(take("to-layer"), (take("from-layer"), take("from-port")));
            }
            _ => {}
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), String> {
        if !self.is_in_dim {
            return Ok(());
        }
        let dim = text.trim().parse().map_err(|_| format!("'{text}' is no dimension"))?;
        self.layer.port.shape.get_or_insert_default().push(dim);
        Ok(())
    }

    fn close(&mut self, tag: &[u8]) {
        self.is_in_dim &= tag != b"dim";
        if tag != b"layer" {
            return;
        }
        let Layer { id, kind, mut port, is_of_any_rank } = mem::take(&mut self.layer);
        match kind.as_str() {
            "Parameter" => {
                port.shape = port.shape.filter(|_| !is_of_any_rank);
                self.file.inputs.push(port);
            }
            "Result" => {
                // A scalar and a tensor of any rank look the same.
                port.shape = port.shape.filter(|shape| !shape.is_empty());
                self.file.outputs.push(port);
                self.results.push(id);
            }
            _ => {}
        }
    }

    /// Outputs have the names of the ports that they come from, unless their layers tell names.
    fn finish(mut self) -> IrFile {
        for (output, layer) in self.file.outputs.iter_mut().zip(&self.results) {
            for name in self.sources.get(layer).and_then(|port| self.names.get(port)).into_iter().flatten() {
                if !output.names.contains(name) {
                    output.names.push(name.clone());
                }
            }
        }
        self.file
    }
}

fn attributes(tag: &BytesStart<'_>) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(|error| error.to_string())?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| error.to_string())?;
        found.insert(String::from_utf8_lossy(attribute.key.as_ref()).into_owned(), value.into_owned());
    }
    Ok(found)
}

/// The names of a list, whose commas within names have a backslash before them.
fn names(list: &str) -> Vec<String> {
    let (mut names, mut name, mut characters) = (Vec::new(), String::new(), list.chars().peekable());
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.peek() == Some(&',') => name.extend(characters.next()),
            ',' => names.push(mem::take(&mut name)),
            other => name.push(other),
        }
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(name: &str) -> IrFile {
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)).unwrap()
    }

    fn value(names: &[&str], element: &str, shape: &[i64]) -> IrValue {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        IrValue { names, element: element.to_owned(), shape: Some(Shape::from_slice(shape)) }
    }

    #[test]
    fn inputs_and_outputs_have_names_types_and_shapes() {
        let IrFile { inputs, outputs, .. } = committed("network.xml");
        assert_eq!(inputs, [value(&["x"], "FP32", &[-1, 8])]);
        assert_eq!(outputs, [value(&["y"], "FP32", &[-1, 8])]);
    }

    #[test]
    fn all_names_of_a_tensor_are_told() {
        let mut inputs = committed("affine.xml").inputs;
        inputs[0].names.sort();
        assert_eq!(inputs[0].names, ["x", "x_alias"]);
        assert_eq!(names(r"one\,half,two,"), ["one,half", "two"]);
        assert_eq!(names(""), [""; 0]);
    }

    #[test]
    fn open_ranks_are_told() {
        let layer = |kind: &str, shape: &str| {
            format!(
                r#"<net><layer id="1" type="{kind}"><data shape="{shape}"/><output><port id="0" precision="I64"/></output></layer></net>"#
            )
        };
        let shapes = |text: &str| {
            let IrFile { inputs, outputs, .. } = parse(text.as_bytes()).unwrap();
            inputs.into_iter().chain(outputs).map(|value| value.shape).collect::<Vec<_>>()
        };
        assert_eq!(shapes(&layer("Parameter", "...")), [None]);
        assert_eq!(shapes(&layer("Parameter", "")), [Some(Shape::new())]);
        assert_eq!(shapes(&layer("Result", "")), [None]);
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        for text in ["", "words", "<html></html>", "<net><layer>", "<net><layer id='1'></net>"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        let wrong =
            "<net><layer id='1' type='Parameter'><output><port><dim>x</dim></port></output></layer></net>";
        assert_eq!(parse(wrong.as_bytes()), Err("'x' is no dimension".to_owned()));
    }

    #[test]
    fn no_truncated_file_stops_the_reader() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/affine.xml");
        let text = std::fs::read(path).unwrap();
        let whole = parse(&text[..]).unwrap();
        for length in 0..text.len() {
            // What follows the last element may be missing.
            assert!(
                parse(&text[..length]).is_err() || parse(&text[..length]).as_ref() == Ok(&whole),
                "{length}"
            );
        }
    }
}
