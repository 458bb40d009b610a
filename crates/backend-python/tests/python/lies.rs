//! Workers that say something else of their outputs than what is there. The server compares before it reads.
use std::fs;

use crate::support::{CONFIG, Loaded, TestModel, request};

/// Answers with what the file `lie` says: the outputs in the form of the wire, with the descriptor of the memory.
const LIES: &str = "def initialize(self, args):\n    import gc, nereid_services; gc.unfreeze()\n    self.directory = args['model_repository']\n    \
                    self.area = next(o for o in gc.get_objects() if type(o).__name__ == 'OutputMemory')\n    \
                    self.honest = nereid_services.Codec.tensor_to\n\
                    def execute(self, requests):\n    import nereid_services\n    \
                    lie = open(os.path.dirname(self.directory) + '/lie').read()\n    \
                    os.ftruncate(self.area._descriptor, 100 << 30)\n    \
                    nereid_services.Codec.tensor_to = (lambda codec, tensor: eval(lie)) if lie else self.honest\n    \
                    return [y(x_of(request)) for request in requests]";

fn told(model: &TestModel, loaded: &Loaded, lie: &str) -> Result<Vec<f32>, String> {
    fs::write(model.folder().join("lie"), lie).unwrap();
    loaded
        .run(vec![request(&[1.0])])
        .remove(0)
        .map(|response| crate::support::floats(&response))
        .map_err(|error| error.message.into_owned())
}

/// The memory of this process that was in use at some time, in bytes.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_worker_that_makes_its_memory_large_costs_the_server_nothing() {
    let model = TestModel::new(CONFIG, LIES).with_setting("shared-memory-limit-bytes", "2000000");
    let loaded = model.load().unwrap();
    assert_eq!(told(&model, &loaded, ""), Ok(vec![1.0]));
    let before = peak_bytes();
    let limit =
        "a response cannot have more than 2000000 bytes in the memory that the model shares with the server";
    for (lie, why) in [
        // All that the file has.
        ("('Y', 'FP32', (25 << 30,), (True, 0, 100 << 30, 1))", limit),
        ("('Y', 'FP32', (1 << 20,), (True, 0, 4 << 20, 1))", limit),
        // What the shape does not need.
        ("('Y', 'FP32', (1,), (True, 0, 100 << 30, 1))", "which do not fit its shape [1]"),
        ("('Y', 'FP32', (1 << 62, 16), (True, 0, 0, 1))", "which do not fit its shape"),
        ("('Y', 'FP32', (-1,), (True, 0, 4, 1))", "which do not fit its shape [-1]"),
        ("('Y', 'BYTES', (1,), (True, 0, 100 << 30, 1))", limit),
        // Beyond the area, and beyond all numbers.
        ("('Y', 'FP32', (1,), (True, 2000000, 4, 1))", "the memory that the server shares"),
        ("('Y', 'FP32', (1,), (True, (1 << 64) - 2, 4, 1))", "the memory that the server shares"),
        // Memory that the server has not given.
        ("('Y', 'FP32', (1,), (False, 1 << 40, 4, 1))", "the memory that the server shares"),
    ] {
        let refusal = told(&model, &loaded, lie).unwrap_err();
        assert!(refusal.contains(why), "{lie}: {refusal}");
    }
    // The worker goes on.
    assert_eq!(told(&model, &loaded, ""), Ok(vec![1.0]));
    let grown = peak_bytes() - before;
    assert!(grown < 64 << 20, "{grown} bytes");
}

#[test]
fn an_output_that_contradicts_the_configuration_is_not_read() {
    let strict = "parameters { key: 'STRICT_OUTPUTS' value: { string_value: 'yes' } }\n";
    let config = CONFIG
        .replace("name: 'Y' data_type: TYPE_FP32 dims: [ -1 ]", "name: 'Y' data_type: TYPE_FP32 dims: [ 2 ]");
    let model = TestModel::new(&format!("{config}{strict}"), LIES);
    let loaded = model.load().unwrap();
    // The area has no such memory, and nobody asks for it.
    let refusal = told(&model, &loaded, "('Y', 'FP32', (4,), (True, 1 << 40, 16, 1))").unwrap_err();
    assert_eq!(refusal, "output 'Y' of model 'm' has shape [4], but the configuration has [2]");
}
