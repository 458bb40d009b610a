//! Reads the inputs and outputs of a graph from its file, without the runtime.
//!
//! The runtime also derives shapes that a file leaves open. So an output may have dims that the file does not tell.
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::Path,
};

use native_backend::{GraphValue, Signature, ValueKind};
use vocabulary::{Name, Shape};

use crate::{
    ort::{Element, other_kind},
    wire::{WireContent, next_field, skip_to, text},
    zip_map,
};

/// A graph as its file describes it.
#[derive(Debug)]
pub(crate) struct GraphFile {
    pub(crate) signature: Signature,
    /// Inputs and outputs whose shape the file does not tell.
    pub(crate) unknown_shapes: BTreeSet<Name>,
}

/// The longest name that is read.
const LONGEST_NAME: u64 = 64 * 1024;

/// Inputs and outputs that are read, and initialisers.
const MOST_VALUES: usize = 1_000_000;

/// The first version of the format in which initialisers need not be inputs. Before it, they are constants.
const OVERRIDABLE_SINCE: u64 = 4;

/// Reads a graph. `None` if the file is not a model.
pub(crate) fn read(path: &Path) -> io::Result<Option<GraphFile>> {
    let Some(graph) = read_from(&mut BufReader::new(File::open(path)?))? else { return Ok(None) };
    let is_tensor = |slot: &GraphValue| matches!(slot.kind, ValueKind::Tensor(..));
    if graph.signature.outputs.iter().all(is_tensor) {
        return Ok(Some(graph));
    }
    // As when the model is loaded: the results of ZipMaps are replaced by tensors.
    match zip_map::replace(&std::fs::read(path)?) {
        Some(replaced) => read_from(&mut BufReader::new(io::Cursor::new(replaced.model))),
        None => Ok(Some(graph)),
    }
}

/// What has been read of a model.
#[derive(Default)]
struct GraphReading {
    version: u64,
    has_graph: bool,
    inputs: Vec<GraphValue>,
    outputs: Vec<GraphValue>,
    initialisers: BTreeSet<String>,
    unknown_shapes: BTreeSet<Name>,
}

fn read_from(stream: &mut BufReader<impl Read + Seek>) -> io::Result<Option<GraphFile>> {
    let length = stream.seek(SeekFrom::End(0))?;
    stream.seek(SeekFrom::Start(0))?;
    let mut reading = GraphReading::default();
    while let Some(field) = next_field(stream, length)? {
        match (field.number, field.content) {
            (1, WireContent::Number(version)) => reading.version = version,
            (7, WireContent::Bytes { end }) => reading.graph(stream, end)?,
            (_, WireContent::Bytes { end }) => skip_to(stream, end)?,
            _ => {}
        }
    }
    // A file that breaks off is not a model either.
    let is_whole = stream.stream_position()? == length;
    Ok((reading.has_graph && is_whole).then(|| reading.finished()))
}

impl GraphReading {
    fn finished(self) -> GraphFile {
        let is_constant = |slot: &GraphValue| self.initialisers.contains(slot.name.as_str());
        let (constant, inputs): (Vec<_>, Vec<_>) = self.inputs.into_iter().partition(is_constant);
        let overridable = if self.version < OVERRIDABLE_SINCE { Vec::new() } else { constant };
        let signature = Signature { inputs, overridable, outputs: self.outputs };
        GraphFile { signature, unknown_shapes: self.unknown_shapes }
    }

    fn graph(&mut self, stream: &mut BufReader<impl Read + Seek>, end: u64) -> io::Result<()> {
        self.has_graph = true;
        while let Some(field) = next_field(stream, end)? {
            let WireContent::Bytes { end } = field.content else { continue };
            let has_room = self.inputs.len() + self.outputs.len() + self.initialisers.len() < MOST_VALUES;
            match field.number {
                5 if has_room => self.initialiser(stream, end)?,
                11 if has_room => {
                    let value = self.value(stream, end)?;
                    self.inputs.extend(value);
                }
                12 if has_room => {
                    let value = self.value(stream, end)?;
                    self.outputs.extend(value);
                }
                _ => {}
            }
            skip_to(stream, end)?;
        }
        Ok(())
    }

    fn initialiser(&mut self, stream: &mut BufReader<impl Read + Seek>, end: u64) -> io::Result<()> {
        while let Some(field) = next_field(stream, end)? {
            let WireContent::Bytes { end } = field.content else { continue };
            if field.number == 8 {
                self.initialisers.extend(text(stream, end, LONGEST_NAME)?);
                return Ok(());
            }
            skip_to(stream, end)?;
        }
        Ok(())
    }

    /// One input or output.
    fn value(
        &mut self,
        stream: &mut BufReader<impl Read + Seek>,
        end: u64,
    ) -> io::Result<Option<GraphValue>> {
        let (mut name, mut kind) = (String::new(), DeclaredKind::Other("ONNX_TYPE_UNKNOWN"));
        while let Some(field) = next_field(stream, end)? {
            let WireContent::Bytes { end } = field.content else { continue };
            match field.number {
                1 => name = text(stream, end, LONGEST_NAME)?.unwrap_or_default(),
                2 => kind = declared_kind(stream, end)?,
                _ => {}
            }
            skip_to(stream, end)?;
        }
        if name.contains('\0') {
            return Ok(None);
        }
        let name = Name::new(&name);
        let kind = match kind {
            DeclaredKind::Tensor(element, shape) => {
                if shape.is_none() {
                    self.unknown_shapes.insert(name.clone());
                }
                ValueKind::Tensor(element.into(), shape.unwrap_or_default())
            }
            DeclaredKind::Other(kind) => other_kind(kind),
        };
        Ok(Some(GraphValue { name, kind }))
    }
}

/// The type of an input or output in the file.
enum DeclaredKind {
    /// `None`: the file does not tell the shape.
    Tensor(Element, Option<Shape>),
    Other(&'static str),
}

fn declared_kind(stream: &mut BufReader<impl Read + Seek>, end: u64) -> io::Result<DeclaredKind> {
    let mut kind = DeclaredKind::Other("ONNX_TYPE_UNKNOWN");
    while let Some(field) = next_field(stream, end)? {
        let WireContent::Bytes { end } = field.content else { continue };
        match field.number {
            1 => kind = tensor_kind(stream, end)?,
            4 => kind = DeclaredKind::Other("ONNX_TYPE_SEQUENCE"),
            5 => kind = DeclaredKind::Other("ONNX_TYPE_MAP"),
            7 => kind = DeclaredKind::Other("ONNX_TYPE_OPAQUE"),
            8 => kind = DeclaredKind::Other("ONNX_TYPE_SPARSETENSOR"),
            9 => kind = DeclaredKind::Other("ONNX_TYPE_OPTIONAL"),
            _ => {}
        }
        skip_to(stream, end)?;
    }
    Ok(kind)
}

fn tensor_kind(stream: &mut BufReader<impl Read + Seek>, end: u64) -> io::Result<DeclaredKind> {
    let (mut element, mut shape) = (0, None);
    while let Some(field) = next_field(stream, end)? {
        match (field.number, field.content) {
            (1, WireContent::Number(number)) => element = i32::try_from(number).unwrap_or_default(),
            (2, WireContent::Bytes { end }) => shape = Some(dims(stream, end)?),
            (_, WireContent::Bytes { end }) => skip_to(stream, end)?,
            _ => {}
        }
    }
    Ok(DeclaredKind::Tensor(Element::of_number(element), shape))
}

/// The dims of a shape; -1 for one without a number.
fn dims(stream: &mut BufReader<impl Read + Seek>, end: u64) -> io::Result<Shape> {
    let mut dims = Shape::new();
    while let Some(field) = next_field(stream, end)? {
        let WireContent::Bytes { end } = field.content else { continue };
        if field.number != 1 {
            skip_to(stream, end)?;
            continue;
        }
        let mut dim = -1;
        while let Some(field) = next_field(stream, end)? {
            match (field.number, field.content) {
                (1, WireContent::Number(number)) => dim = number.cast_signed().max(-1),
                (_, WireContent::Bytes { end }) => skip_to(stream, end)?,
                _ => {}
            }
        }
        dims.push(dim);
    }
    Ok(dims)
}

#[cfg(test)]
mod tests {
    use vocabulary::DataType;

    use super::*;

    fn message(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap();
        assert!(number < 16 && length < 1 << 14);
        let [low, high] = ((length & 0x7f) | 0x80 | (length >> 7) << 8).to_le_bytes();
        [&[number << 3 | 2, low, high], content].concat()
    }

    fn number(number: u8, value: u8) -> Vec<u8> {
        vec![number << 3, value]
    }

    fn value(name: &str, element: u8, dims: Option<&[Option<u8>]>) -> Vec<u8> {
        let dim = |dim: &Option<u8>| message(1, &dim.map_or_else(|| message(2, b"N"), |dim| number(1, dim)));
        let shape = dims.map(|dims| message(2, &dims.iter().flat_map(dim).collect::<Vec<_>>()));
        let tensor = [number(1, element), shape.unwrap_or_default()].concat();
        [message(1, name.as_bytes()), message(2, &message(1, &tensor))].concat()
    }

    fn model(version: u8, graph: &[Vec<u8>]) -> Vec<u8> {
        [number(1, version), message(2, b"producer"), message(7, &graph.concat())].concat()
    }

    fn read_bytes(model: &[u8]) -> Option<GraphFile> {
        read_from(&mut BufReader::new(io::Cursor::new(model))).unwrap()
    }

    #[test]
    fn inputs_outputs_and_initialisers_are_those_of_the_graph() {
        let graph = [
            message(1, &message(4, b"Gemm")),
            message(5, &[number(1, 3), message(9, &[0; 400]), message(8, b"W")].concat()),
            message(11, &value("X", 1, Some(&[None, Some(16)]))),
            message(11, &value("W", 1, Some(&[Some(16)]))),
            message(12, &value("Y", 7, None)),
            message(12, &value("Z", 8, Some(&[]))),
        ];
        let GraphFile { signature, unknown_shapes } = read_bytes(&model(8, &graph)).unwrap();
        let tensor =
            |name: &str, datatype, dims: &[i64]| GraphValue::tensor(name, Element::of(datatype).into(), dims);
        assert_eq!(signature.inputs, [tensor("X", DataType::Fp32, &[-1, 16])]);
        assert_eq!(signature.overridable, [tensor("W", DataType::Fp32, &[16])]);
        assert_eq!(signature.outputs, [tensor("Y", DataType::Int64, &[]), tensor("Z", DataType::Bytes, &[])]);
        assert_eq!(unknown_shapes, ["Y".into()].into());
        let old = read_bytes(&model(3, &graph)).unwrap().signature;
        assert_eq!((old.inputs.len(), old.overridable.len()), (1, 0));
    }

    #[test]
    fn what_is_no_model_has_no_graph() {
        let whole = model(8, &[message(11, &value("X", 1, None))]);
        assert!(read_bytes(&whole).is_some());
        for length in 0..whole.len() {
            assert!(read_bytes(&whole[..length]).is_none(), "{length}");
        }
        for bytes in [&b"not a model"[..], &[0xff; 40], &[7 << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0x0f, 1]] {
            assert!(read_bytes(bytes).is_none());
        }
    }

    #[test]
    fn another_value_than_a_tensor_is_named() {
        let sequence = [message(1, b"S"), message(2, &message(4, b""))].concat();
        let read = read_bytes(&model(8, &[message(12, &sequence)])).unwrap();
        assert_eq!(read.signature.outputs[0].kind, other_kind("ONNX_TYPE_SEQUENCE"));
    }
}
