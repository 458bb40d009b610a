//! Builds ONNX files: encodes the few messages of the format that small graphs need.
use vocabulary::DataType;

/// The number of a datatype in ONNX files.
pub(crate) fn onnx_type(datatype: DataType) -> i64 {
    match datatype {
        DataType::Fp32 => 1,
        DataType::Uint8 => 2,
        DataType::Int8 => 3,
        DataType::Uint16 => 4,
        DataType::Int16 => 5,
        DataType::Int32 => 6,
        DataType::Int64 => 7,
        DataType::Bytes => 8,
        DataType::Bool => 9,
        DataType::Fp16 => 10,
        DataType::Fp64 => 11,
        DataType::Uint32 => 12,
        DataType::Uint64 => 13,
        DataType::Bf16 => 16,
    }
}

/// A protobuf message under construction.
#[derive(Default, Clone)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: i64) -> Self {
        self.varint(field << 3);
        self.varint(value as u64);
        self
    }

    fn bytes(mut self, field: u64, value: impl AsRef<[u8]>) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.as_ref().len() as u64);
        self.0.extend_from_slice(value.as_ref());
        self
    }

    fn message(self, field: u64, value: Self) -> Self {
        self.bytes(field, value.0)
    }
}

/// A graph under construction. Dimensions of -1 are symbolic.
#[derive(Default)]
pub(crate) struct Graph(Message);

/// An attribute of a node.
pub(crate) enum Attribute<'a> {
    Int(&'a str, i64),
}

impl Graph {
    /// A graph of one operator that maps `X` to `Y`. Both have that datatype and those dimensions.
    pub(crate) fn unary(operator: &str, datatype: DataType, dims: &[i64]) -> Self {
        Self::default().input("X", datatype, dims).output("Y", datatype, dims).node(operator, &["X"], &["Y"])
    }

    /// A graph that only accepts rows of seven elements, although its signature leaves the size open.
    pub(crate) fn of_seven_columns() -> Self {
        let weights = [1_f32; 14].map(f32::to_le_bytes).concat();
        Self::default()
            .input("X", DataType::Fp32, &[-1, -1])
            .output("Y", DataType::Fp32, &[-1, 2])
            .initializer("W", DataType::Fp32, &[7, 2], &weights)
            .node("MatMul", &["X", "W"], &["Y"])
    }

    pub(crate) fn node(self, operator: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        self.node_with(operator, inputs, outputs, &[])
    }

    pub(crate) fn node_with(
        self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[Attribute<'_>],
    ) -> Self {
        let mut node = Message::default();
        for input in inputs {
            node = node.bytes(1, input);
        }
        for output in outputs {
            node = node.bytes(2, output);
        }
        node = node.bytes(4, operator);
        for Attribute::Int(name, value) in attributes {
            node = node.message(5, Message::default().bytes(1, name).number(3, *value).number(20, 2));
        }
        Self(self.0.message(1, node))
    }

    pub(crate) fn input(self, name: &str, datatype: DataType, dims: &[i64]) -> Self {
        Self(self.0.message(11, value(name, tensor_type(onnx_type(datatype), dims))))
    }

    pub(crate) fn output(self, name: &str, datatype: DataType, dims: &[i64]) -> Self {
        self.output_of(name, onnx_type(datatype), dims)
    }

    /// An output of a type by its number in the format.
    pub(crate) fn output_of(self, name: &str, element: i64, dims: &[i64]) -> Self {
        Self(self.0.message(12, value(name, tensor_type(element, dims))))
    }

    /// An output that is a sequence of tensors.
    pub(crate) fn sequence_output(self, name: &str, datatype: DataType, dims: &[i64]) -> Self {
        let element = Message::default().message(1, tensor_type(onnx_type(datatype), dims));
        Self(self.0.message(12, value(name, Message::default().message(4, element))))
    }

    /// An output of a ZipMap of a tensor with these labels: a sequence of maps of label and probability.
    pub(crate) fn zip_map(self, input: &str, output: &str, labels: &[&str]) -> Self {
        let of_labels = Message::default().number(1, 8).message(2, tensor_type(1, &[]));
        let kind = Message::default()
            .message(4, Message::default().message(1, Message::default().message(5, of_labels)));
        let mut attribute = Message::default().bytes(1, "classlabels_strings").number(20, 8);
        for label in labels {
            attribute = attribute.bytes(9, label);
        }
        let node = Message::default().bytes(1, input).bytes(2, output).bytes(4, "ZipMap");
        let node = node.message(5, attribute).bytes(7, "ai.onnx.ml");
        Self(self.0.message(1, node).message(12, value(output, kind)))
    }

    pub(crate) fn initializer(self, name: &str, datatype: DataType, dims: &[i64], raw: &[u8]) -> Self {
        Self(self.0.message(5, tensor(name, datatype, dims).bytes(9, raw)))
    }

    /// An initialiser whose bytes are in another file of the same directory.
    pub(crate) fn external(self, name: &str, datatype: DataType, dims: &[i64], file: &str) -> Self {
        let location = Message::default().bytes(1, "location").bytes(2, file);
        Self(self.0.message(5, tensor(name, datatype, dims).message(13, location).number(14, 1)))
    }

    /// The content of the file.
    pub(crate) fn encode(self) -> Vec<u8> {
        self.encode_for(&[("", 17), ("ai.onnx.ml", 3)])
    }

    /// The content of the file, with these operator sets.
    pub(crate) fn encode_for(self, sets: &[(&str, i64)]) -> Vec<u8> {
        let model = Message::default().number(1, 8).message(7, self.0.bytes(2, "graph"));
        let set = |name, version| Message::default().bytes(1, name).number(2, version);
        sets.iter().fold(model, |model, &(name, version)| model.message(8, set(name, version))).0
    }
}

fn tensor(name: &str, datatype: DataType, dims: &[i64]) -> Message {
    let dims = dims.iter().fold(Message::default(), |tensor, &dim| tensor.number(1, dim));
    dims.number(2, onnx_type(datatype)).bytes(8, name)
}

/// A `TypeProto` that is a tensor.
fn tensor_type(element: i64, dims: &[i64]) -> Message {
    let mut shape = Message::default();
    for (index, &dim) in dims.iter().enumerate() {
        let dim = match dim {
            -1 => Message::default().bytes(2, format!("dim_{index}")),
            dim => Message::default().number(1, dim),
        };
        shape = shape.message(1, dim);
    }
    Message::default().message(1, Message::default().number(1, element).message(2, shape))
}

fn value(name: &str, kind: Message) -> Message {
    Message::default().bytes(1, name).message(2, kind)
}
