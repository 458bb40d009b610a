//! Tests of each rule of the check, with its error text.
use std::{
    num::NonZeroU32,
    path::Path,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use config::{Completion, CompletionContext, ConfigSource, FileEntry, ModelLayout, declare, finish};
use vocabulary::{DeviceMemory, DeviceRange, ForeignMemory, ForeignRegion, Parameter};

use super::*;

/// A region that its owner, the test, writes. It has no address.
#[derive(Debug)]
struct ChangingRegion(Mutex<Vec<u8>>);

impl ChangingRegion {
    fn new(bytes: &[u8]) -> Arc<Self> {
        Arc::new(Self(Mutex::new(bytes.to_vec())))
    }

    fn memory(self: &Arc<Self>) -> ForeignMemory {
        ForeignMemory::range(self.clone(), 0, self.byte_size()).unwrap()
    }

    fn change(&self, bytes: &[u8]) {
        self.0.lock().unwrap().copy_from_slice(bytes);
    }
}

impl ForeignRegion for ChangingRegion {
    fn byte_size(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn address(&self) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), Error> {
        target.copy_from_slice(&self.0.lock().unwrap()[offset..][..target.len()]);
        Ok(())
    }

    fn write(&self, _: usize, _: &[u8]) -> Result<(), Error> {
        unreachable!("requests only read their inputs")
    }
}

/// A backend that copies foreign memory itself.
const FOREIGN: ReadableMemory = ReadableMemory { device: false, foreign: true };

fn spec(name: &str, datatype: DataType, dims: &[i64]) -> InputSpec {
    InputSpec {
        name: name.into(),
        datatype,
        dims: dims.into(),
        reshape: None,
        optional: false,
        allow_ragged_batch: false,
        is_shape_tensor: false,
    }
}

fn config(max_batch_size: u32, inputs: Vec<InputSpec>) -> ModelConfig {
    let text = "backend: 'b' input { name: 'IN' data_type: TYPE_UINT8 dims: -1 }
        output { name: 'OUT' data_type: TYPE_UINT8 dims: -1 }";
    let entry = FileEntry { name: "model".to_owned(), is_directory: false };
    let layout = ModelLayout { name: "m".to_owned(), versions: [(1, vec![entry])].into() };
    let source = ConfigSource::Text { path: Path::new("config.pbtxt"), content: text.as_bytes() };
    let declared = declare(source, &layout, Completion::Auto).unwrap();
    let completed = finish(&declared, declared.config.clone(), &CompletionContext::default()).unwrap();
    let mut config = ModelConfig::clone(&completed.typed);
    config.max_batch_size = NonZeroU32::new(max_batch_size);
    config.inputs = inputs;
    config
}

fn tensor(name: &str, datatype: DataType, shape: &[i64], data: impl Into<TensorMemory>) -> Tensor {
    Tensor::new(name.into(), datatype, shape.into(), data)
}

fn ints(name: &str, shape: &[i64], count: usize) -> Tensor {
    tensor(name, DataType::Int32, shape, vec![0; 4 * count])
}

fn check(config: &ModelConfig, inputs: Vec<Tensor>) -> Result<(SchedulingAttributes, Request), String> {
    let mut request = Request { inputs: RequestInputs::Tensors(inputs), ..Request::default() };
    let attributes = RequestValidator::new(config, FOREIGN)
        .check(config, &mut request)
        .map_err(|error| error.to_string())?;
    Ok((attributes, request))
}

fn refusal(config: &ModelConfig, inputs: Vec<Tensor>) -> String {
    check(config, inputs).expect_err("the request breaks a rule")
}

fn simple() -> ModelConfig {
    config(8, vec![spec("A", DataType::Int32, &[16]), spec("B", DataType::Int32, &[16])])
}

const P: &str = "[request id: <id_unknown>] ";

#[test]
fn inputs_are_all_there_once_and_known() {
    let both = || vec![ints("A", &[1, 16], 16), ints("B", &[1, 16], 16)];
    assert_eq!(check(&simple(), both()).unwrap().0, SchedulingAttributes::default());
    assert_eq!(
        refusal(&simple(), vec![]),
        format!(
            "{P}expected 2 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required input(s) ['A','B']. Please provide all required input(s)."
        )
    );
    let surplus = [both(), vec![ints("X", &[1, 16], 16)]].concat();
    assert_eq!(
        refusal(&simple(), surplus),
        format!(
            "{P}expected 2 inputs but got 3 inputs for model 'm'. Got input(s) ['A','B','X']. The model has no input 'X'."
        )
    );
    let twice = vec![ints("A", &[1, 16], 16), ints("A", &[1, 16], 16)];
    assert_eq!(refusal(&simple(), twice), format!("{P}input 'A' already exists in request"));
}

#[test]
fn a_misspelt_input_is_told_with_the_one_that_is_probably_meant() {
    let config = config(0, ["image", "mask", "scale"].map(|name| spec(name, DataType::Int32, &[1])).to_vec());
    let inputs = |names: &[&str]| names.iter().map(|name| ints(name, &[1], 1)).collect::<Vec<_>>();
    assert_eq!(
        refusal(&config, inputs(&["image", "maks", "scale"])),
        "unexpected inference input 'maks' for model 'm', did you mean 'mask'?"
    );
    assert_eq!(
        refusal(&config, inputs(&["imgae"])),
        format!(
            "{P}expected 3 inputs but got 1 inputs for model 'm'. Got input(s) ['imgae'], but missing required input(s) ['image','mask','scale']. Please provide all required input(s). The model has no input 'imgae', did you mean 'image'?"
        )
    );
}

#[test]
fn a_parameter_that_looks_like_a_missing_input_is_told() {
    let config = config(0, vec![spec("text_input", DataType::Int32, &[1])]);
    let refused = |key: &str| {
        let mut request = Request {
            inputs: RequestInputs::Tensors(vec![]),
            parameters: vec![("top_k".into(), Parameter::Int(1)), (key.into(), Parameter::Int(1))],
            ..Request::default()
        };
        RequestValidator::new(&config, FOREIGN).check(&config, &mut request).unwrap_err().to_string()
    };
    let missing = format!(
        "{P}expected 1 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required input(s) ['text_input']. Please provide all required input(s)."
    );
    assert_eq!(refused("temperature"), missing);
    assert_eq!(
        refused("txt_input"),
        missing + " The parameter 'txt_input' is no input of the model, did you mean 'text_input'?"
    );
}

#[test]
fn of_two_inputs_with_too_few_byte_strings_the_latest_is_named() {
    let config = config(0, vec![spec("A", DataType::Bytes, &[1]), spec("B", DataType::Bytes, &[1])]);
    for names in [["A", "B"], ["B", "A"]] {
        let inputs = names.map(|name| tensor(name, DataType::Bytes, &[1], Bytes::new()));
        let text = refusal(&config, inputs.to_vec());
        assert!(
            text.contains(&format!("'{}'", names[1])) && !text.contains(&format!("'{}'", names[0])),
            "{text}"
        );
    }
}

#[test]
fn a_name_that_comes_again_is_found_among_many() {
    let many = |count: usize| (0..count).map(|n| ints(&n.to_string(), &[1, 16], 16)).collect::<Vec<_>>();
    for count in [2, 15, 16, 17, 50_000] {
        let [repeated, unknown] = ["1", "0"].map(|name| {
            let inputs = [many(count), vec![ints(name, &[1, 16], 16)]].concat();
            let outputs = inputs.iter().map(|input| input.name().clone()).collect();
            let mut request = Request { outputs, ..Request::default() };
            let error = RequestValidator::new(&simple(), FOREIGN)
                .check(&simple(), &mut request)
                .unwrap_err()
                .to_string();
            assert_eq!(error, format!("{P}output '{name}' already exists in request"));
            refusal(&simple(), inputs)
        });
        assert_eq!(repeated, format!("{P}input '1' already exists in request"));
        assert_eq!(unknown, format!("{P}input '0' already exists in request"));
        let refused = if count == 2 { "unexpected inference input '0'" } else { "expected 2 inputs" };
        assert!(refusal(&simple(), many(count)).contains(refused), "{count}");
    }
}

#[test]
fn a_request_without_inputs_for_a_model_that_needs_none_is_one_row() {
    let optional = InputSpec { optional: true, ..spec("O", DataType::Int32, &[1]) };
    let config = config(8, vec![optional]);
    let mut request = Request { inputs: RequestInputs::Tensors(vec![]), ..Request::default() };
    assert_eq!(RequestValidator::new(&config, FOREIGN).check(&config, &mut request).unwrap().batch_size, 1);
}

#[test]
fn an_optional_input_does_not_stand_in_for_a_required_one() {
    let optional = InputSpec { optional: true, ..spec("O", DataType::Int32, &[1]) };
    let config = config(0, vec![spec("A", DataType::Int32, &[1]), optional]);
    check(&config, vec![ints("A", &[1], 1)]).unwrap();
    assert_eq!(
        refusal(&config, vec![ints("O", &[1], 1)]),
        format!(
            "{P}expected number of inputs between 1 and 2 but got 1 inputs for model 'm'. Got input(s) ['O'], but missing required input(s) ['A']. Please provide all required input(s)."
        )
    );
    let unknown = vec![ints("A", &[1], 1), ints("X", &[1], 1)];
    assert_eq!(
        refusal(&config, unknown),
        "unexpected inference input 'X' for model 'm'. Available input(s): ['O']"
    );
    let only_unknown = vec![ints("X", &[1], 1)];
    assert_eq!(
        refusal(&config, only_unknown),
        "unexpected inference input 'X' for model 'm'. Available input(s): ['A','O']"
    );
}

#[test]
fn outputs_are_known_and_named_once() {
    let config = config(0, vec![spec("A", DataType::Int32, &[1])]);
    let ask = |outputs: &[&str]| {
        let mut request = Request {
            inputs: RequestInputs::Tensors(vec![ints("A", &[1], 1)]),
            outputs: outputs.iter().map(|&name| name.into()).collect(),
            ..Request::default()
        };
        RequestValidator::new(&config, FOREIGN)
            .check(&config, &mut request)
            .map_err(|error| error.to_string())
    };
    ask(&["OUT"]).unwrap();
    assert_eq!(
        ask(&["NOPE"]).unwrap_err(),
        "unexpected inference output 'NOPE' for model 'm'. Available output(s): ['OUT']"
    );
    assert_eq!(
        ask(&["out"]).unwrap_err(),
        "unexpected inference output 'out' for model 'm', did you mean 'OUT'?"
    );
    assert_eq!(ask(&["OUT", "OUT"]).unwrap_err(), format!("{P}output 'OUT' already exists in request"));
}

#[test]
fn rows_agree_and_fit() {
    let of = |one: i64, other: i64| {
        vec![ints("A", &[one, 16], 16 * one as usize), ints("B", &[other, 16], 16 * other as usize)]
    };
    assert_eq!(check(&simple(), of(3, 3)).unwrap().0.batch_size, 3);
    assert_eq!(
        refusal(&simple(), of(1, 2)),
        format!("{P}input 'A' batch size does not match other inputs for 'm'")
    );
    assert_eq!(refusal(&simple(), of(9, 9)), format!("{P}inference request batch-size must be <= 8 for 'm'"));
    let chosen = ModelConfig { max_request_rows: NonZeroU32::new(1024), ..simple() };
    assert_eq!(check(&chosen, of(1024, 1024)).unwrap().0.batch_size, 1024);
    assert_eq!(
        refusal(&chosen, of(1025, 1025)),
        format!(
            "{P}inference request batch-size must be <= 1024 for 'm': 1025 rows are given; max_batch_size in config.pbtxt sets \
             another limit"
        )
    );
    assert_eq!(
        refusal(&simple(), of(0, 0)),
        format!(
            "{P}input byte size mismatch for input 'A' for model 'm'. Expected 64, got 0. Shape [0,16] has no row"
        )
    );
    assert_eq!(
        refusal(&simple(), of(0, 4)),
        format!("{P}input 'A' batch size does not match other inputs for 'm'")
    );
    let scalar = vec![ints("A", &[], 0), ints("B", &[], 0)];
    assert_eq!(
        refusal(&simple(), scalar),
        format!("{P}input 'B' has no shape but model requires batch dimension for 'm'")
    );
}

#[test]
fn a_text_shows_only_the_first_dimensions_of_a_long_shape() {
    let config = config(0, vec![spec("A", DataType::Int32, &[-1])]);
    let shown = |count: usize| refusal(&config, vec![ints("A", &vec![1; count], 1)]);
    let ones = ["1"; 32].join(",");
    assert!(shown(32).ends_with(&format!("got [{ones}]. ")));
    assert!(shown(1000).ends_with(&format!("got [{ones},... (1000 dimensions)]. ")));
}

#[test]
fn datatype_shape_and_bytes_are_as_configured() {
    let config = config(0, vec![spec("A", DataType::Int32, &[-1, 2])]);
    assert_eq!(
        refusal(&config, vec![tensor("A", DataType::Fp32, &[1, 2], vec![0; 8])]),
        format!("{P}inference input 'A' data-type is 'FP32', but model 'm' expects 'INT32'")
    );
    assert_eq!(
        refusal(&config, vec![ints("A", &[1, 3], 3)]),
        format!("{P}unexpected shape for input 'A' for model 'm'. Expected [-1,2], got [1,3]. ")
    );
    assert_eq!(
        refusal(&config, vec![ints("A", &[-1, 2], 2)]),
        format!("{P}All input dimensions should be specified for input 'A' for model 'm', got [-1,2]")
    );
    assert_eq!(
        refusal(&config, vec![ints("A", &[2, 2], 3)]),
        format!("{P}input byte size mismatch for input 'A' for model 'm'. Expected 16, got 12")
    );
    assert_eq!(
        refusal(&config, vec![ints("A", &[i64::MAX, 2], 1)]),
        "element count for tensor 'A' exceeds maximum size of 9223372036854775807"
    );
    assert!(
        refusal(&simple(), vec![ints("A", &[1, 15], 15), ints("B", &[1, 16], 16)])
            .contains("Expected [-1,16], got [1,15]. NOTE: Setting a non-zero max_batch_size")
    );
    check(&config, vec![ints("A", &[0, 2], 0)]).unwrap();
}

#[test]
fn byte_strings_are_counted_to_the_last_byte() {
    let config = config(0, vec![spec("S", DataType::Bytes, &[-1])]);
    let send = |shape: i64, data: &'static [u8]| {
        check(&config, vec![tensor("S", DataType::Bytes, &[shape], Bytes::from_static(data))])
    };
    send(2, b"\x01\0\0\0a\0\0\0\0").unwrap();
    send(0, b"").unwrap();
    let refused = |shape, data| send(shape, data).map(|_| ()).unwrap_err();
    assert_eq!(
        refused(3, b"\x01\0\0\0a\0\0\0\0"),
        format!("{P}expected 3 string elements for inference input 'S' for model 'm', got 2")
    );
    for too_many in [&b"\x01\0\0\0a\0\0\0\0"[..], b"\0\0\0\0\0\0\0\0\0\0\0\0", b"\0\0\0\0\x05\0\0\0x"] {
        assert_eq!(
            refused(1, too_many),
            format!(
                "{P}unexpected number of string elements 2 for inference input 'S' for model 'm', expecting 1"
            )
        );
    }
    assert_eq!(
        refused(1, b"\x01\0"),
        format!(
            "{P}incomplete string length indicator for inference input 'S' for model 'm', expecting 4 bytes but only 2 bytes available. Please make sure the string length indicator is in one buffer."
        )
    );
    assert_eq!(
        refused(1, b"\x64\0\0\0abc"),
        "incomplete string data for inference input 'S', expecting string of length 100 but only 3 bytes available"
    );
}

#[test]
fn strings_in_foreign_memory_are_copied_before_they_are_checked() {
    let region = ChangingRegion::new(b"\x01\0\0\0a");
    let texts = config(0, vec![spec("S", DataType::Bytes, &[1])]);
    let (_, request) = check(&texts, vec![tensor("S", DataType::Bytes, &[1], region.memory())]).unwrap();
    region.change(b"\xff\0\0\0a");
    assert_eq!(request.tensors()[0].host().unwrap().contiguous(), &b"\x01\0\0\0a"[..]);
    assert!(check(&texts, vec![tensor("S", DataType::Bytes, &[1], region.memory())]).is_err());
    // The server does not read numbers before they are executed.
    let numbers = config(0, vec![spec("N", DataType::Uint8, &[5])]);
    let (_, request) = check(&numbers, vec![tensor("N", DataType::Uint8, &[5], region.memory())]).unwrap();
    assert!(matches!(request.tensors()[0].memory(), TensorMemory::Foreign(_)));
    assert_eq!(
        check(&numbers, vec![tensor("N", DataType::Uint8, &[5], ChangingRegion::new(b"1234").memory())])
            .unwrap_err(),
        format!("{P}input byte size mismatch for input 'N' for model 'm'. Expected 5, got 4")
    );
}

#[test]
fn foreign_memory_is_copied_for_backends_that_do_not_do_it_themselves() {
    let region = ChangingRegion::new(b"12345");
    let config = config(0, vec![spec("N", DataType::Uint8, &[5])]);
    let bytes_after_change = |foreign| {
        region.change(b"12345");
        let tensor = tensor("N", DataType::Uint8, &[5], region.memory());
        let mut request = Request { inputs: RequestInputs::Tensors(vec![tensor]), ..Request::default() };
        let validator = RequestValidator::new(&config, ReadableMemory { device: false, foreign });
        validator.check(&config, &mut request).unwrap();
        region.change(b"abcde");
        request.tensors()[0].host().unwrap().contiguous()
    };
    assert_eq!(bytes_after_change(false), "12345");
    assert_eq!(bytes_after_change(true), "abcde");
}

#[test]
fn foreign_memory_that_may_be_used_in_place_stays_where_it_is() {
    let memory = ForeignMemory::copied_from(&vec![1, 2].into());
    let config = config(0, vec![spec("N", DataType::Uint8, &[2])]);
    let tensor = tensor("N", DataType::Uint8, &[2], memory);
    let mut request = Request { inputs: RequestInputs::Tensors(vec![tensor]), ..Request::default() };
    RequestValidator::new(&config, ReadableMemory::default()).check(&config, &mut request).unwrap();
    assert!(matches!(request.tensors()[0].memory(), TensorMemory::Foreign(_)));
}

#[test]
fn memory_of_a_device_needs_a_backend_that_reads_it() {
    let on_device = |name: &str, datatype, byte_size: usize| {
        let memory = DeviceMemory::new(0, [DeviceRange { address: 64, byte_size }], Arc::new(()));
        tensor(name, datatype, &[1], memory)
    };
    let check = |spec: InputSpec, tensor, reads_device_memory| {
        let config = config(0, vec![spec]);
        let mut request = Request { inputs: RequestInputs::Tensors(vec![tensor]), ..Request::default() };
        let checked =
            RequestValidator::new(&config, ReadableMemory { device: reads_device_memory, foreign: false })
                .check(&config, &mut request);
        checked.map(drop).map_err(|error| error.with_code())
    };
    let refused = |name: &str| {
        Err(format!("Unsupported: {P}input '{name}' is in memory of type GPU, which model 'm' cannot read"))
    };
    let number = || on_device("N", DataType::Int32, 4);
    assert_eq!(check(spec("N", DataType::Int32, &[1]), number(), false), refused("N"));
    assert_eq!(check(spec("N", DataType::Int32, &[1]), number(), true), Ok(()));
    // As Triton: the backend checks strings that the host cannot read.
    assert_eq!(check(spec("S", DataType::Bytes, &[1]), on_device("S", DataType::Bytes, 3), true), Ok(()));
    // The server itself reads the values of shape tensors.
    let shape = InputSpec { is_shape_tensor: true, ..spec("N", DataType::Int32, &[1]) };
    assert_eq!(check(shape, number(), true), refused("N"));
}

#[test]
fn a_length_prefix_may_be_split_over_pieces() {
    let config = config(0, vec![spec("S", DataType::Bytes, &[1])]);
    let pieces = TensorData::from_pieces([Bytes::from_static(b"\x01\0"), Bytes::from_static(b"\0\0a")]);
    check(&config, vec![tensor("S", DataType::Bytes, &[1], pieces)]).unwrap();
}

#[test]
fn raw_bytes_get_their_shape_from_the_configuration() {
    let ask = |config: &ModelConfig, data: Vec<u8>| {
        let mut request = Request { inputs: RequestInputs::Raw(data.into()), ..Request::default() };
        RequestValidator::new(config, FOREIGN)
            .check(config, &mut request)
            .map_err(|error| error.to_string())?;
        Ok::<_, String>(request.tensors()[0].clone())
    };
    assert_eq!(ask(&config(0, vec![spec("A", DataType::Fp32, &[-1])]), vec![0; 12]).unwrap().shape(), [3]);
    assert_eq!(
        ask(&config(4, vec![spec("A", DataType::Fp32, &[-1, 2])]), vec![0; 16]).unwrap().shape(),
        [1, 2, 2]
    );
    let text = ask(&config(0, vec![spec("A", DataType::Bytes, &[1])]), b"hi".to_vec()).unwrap();
    assert_eq!(text.host().unwrap().contiguous(), &b"\x02\0\0\0hi"[..]);
    let refused = |inputs, bytes| ask(&config(0, inputs), vec![0; bytes]).unwrap_err();
    assert_eq!(
        refused(vec![spec("A", DataType::Fp32, &[-1])], 7),
        format!(
            "{P}input byte size mismatch for input 'raw_input' for model 'm'. Expected 4, got 7. The data are those of input 'A' of shape [1]"
        )
    );
    let nothing = vec![spec("A", DataType::Fp32, &[2])];
    assert_eq!(
        refused(nothing, 0),
        format!(
            "{P}input byte size mismatch for input 'raw_input' for model 'm'. Expected 8, got 0. The request has no data for input 'A' of shape [2]"
        )
    );
    assert_eq!(
        refused(vec![spec("A", DataType::Bytes, &[-1])], 7),
        format!("{P}For BYTE datatype raw input 'A', the model must have input shape [1]")
    );
    assert_eq!(
        refused(vec![spec("A", DataType::Fp32, &[-1, -1])], 8),
        format!(
            "{P}The shape of the raw input 'A' can not be deduced because there are more than one variable-sized dimension"
        )
    );
    assert_eq!(
        ask(&simple(), vec![]).unwrap_err(),
        format!(
            "{P}Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'm' model configuration. The request has no data"
        )
    );
}

#[test]
fn raw_bytes_for_an_endless_shape_are_refused() {
    let config = config(0, vec![spec("A", DataType::Int32, &[1 << 40, 1 << 40, -1])]);
    let mut request =
        Request { inputs: RequestInputs::Raw(Bytes::from_static(b"1234").into()), ..Request::default() };
    let error = RequestValidator::new(&config, FOREIGN).check(&config, &mut request).unwrap_err();
    assert!(error.message.contains("got 4"), "{error}");
}

#[test]
fn a_backend_sees_the_reshaped_shape() {
    let reshaped = InputSpec { reshape: Some(Shape::new()), ..spec("A", DataType::Int32, &[1]) };
    let (_, request) = check(&config(8, vec![reshaped]), vec![ints("A", &[3, 1], 3)]).unwrap();
    assert_eq!(request.tensors()[0].shape(), [3]);
    let reshaped = InputSpec { reshape: Some([4, -1][..].into()), ..spec("A", DataType::Int32, &[-1, 2, 2]) };
    let (_, request) = check(&config(0, vec![reshaped]), vec![ints("A", &[3, 2, 2], 12)]).unwrap();
    assert_eq!(request.tensors()[0].shape(), [4, 3]);
}

#[test]
fn only_what_must_agree_separates_batches() {
    let key = |config: &ModelConfig, inputs| check(config, inputs).unwrap().0.shape_key;
    let fixed = simple();
    assert_eq!(key(&fixed, vec![ints("A", &[1, 16], 16), ints("B", &[1, 16], 16)]), 0);

    let free = config(8, vec![spec("A", DataType::Int32, &[-1])]);
    let of = |config: &ModelConfig, rows: i64, len: i64| {
        key(config, vec![ints("A", &[rows, len], (rows * len) as usize)])
    };
    assert_eq!(of(&free, 1, 4), of(&free, 2, 4));
    assert_ne!(of(&free, 1, 4), of(&free, 1, 5));

    let ragged = config(8, vec![InputSpec { allow_ragged_batch: true, ..spec("A", DataType::Int32, &[-1]) }]);
    assert_eq!(of(&ragged, 1, 4), of(&ragged, 1, 5));

    let shape_tensor =
        config(8, vec![InputSpec { is_shape_tensor: true, ..spec("A", DataType::Int32, &[2]) }]);
    let values = |last: u8| {
        key(&shape_tensor, vec![tensor("A", DataType::Int32, &[2], vec![2, 0, 0, 0, last, 0, 0, 0])])
    };
    assert_ne!(values(4), values(5), "a zero byte does not end the comparison");

    let optional = |name| InputSpec { optional: true, ..spec(name, DataType::Int32, &[1]) };
    let either = config(8, vec![optional("A"), optional("B")]);
    assert_ne!(key(&either, vec![ints("A", &[1, 1], 1)]), key(&either, vec![ints("B", &[1, 1], 1)]));
}
