//! Loading: configurations that models complete, and models that cannot be loaded.
use crate::support::{CONFIG, TestModel};

const EXECUTE: &str = "def execute(self, requests):\n    return [y(x_of(request)) for request in requests]\n";

#[test]
fn a_model_completes_its_configuration() {
    let methods = format!(
        "{EXECUTE}@staticmethod\ndef auto_complete_config(config):\n    \
         config.add_input({{'name': 'X', 'data_type': 'TYPE_FP32', 'dims': [-1]}})\n    \
         config.add_output({{'name': 'Y', 'data_type': 'TYPE_FP32', 'dims': [-1]}})\n    \
         config.set_max_batch_size(8)\n    config.set_dynamic_batching()\n    return config"
    );
    let (_, config) = TestModel::new("", &methods).open().unwrap();
    assert_eq!(config.max_batch_size.map(u32::from), Some(8));
    assert_eq!(config.inputs[0].name.as_str(), "X");
}

#[test]
fn a_model_gets_the_arguments_of_triton() {
    let methods = "def initialize(self, args):\n    del args['model_config']\n    raise ValueError(json.dumps(args, sort_keys=True))";
    let model = TestModel::new(CONFIG, methods);
    let folder = model.folder().join("m");
    let expected = format!(
        "Internal: ValueError: {{\"model_instance_device_id\": \"0\", \"model_instance_kind\": \"CPU\", \
         \"model_instance_name\": \"m_0\", \"model_name\": \"m\", \"model_repository\": \"{}\", \"model_version\": \"1\"}}",
        folder.display()
    );
    assert!(model.refusal().starts_with(&expected), "{}", model.refusal());
}

#[test]
fn a_model_has_no_command_line() {
    let methods = "def initialize(self, args):\n    import sys\n    raise ValueError(sys.argv)";
    assert!(TestModel::new(CONFIG, methods).refusal().starts_with("Internal: ValueError: ['']"));
}

#[test]
fn a_model_that_cannot_be_loaded_says_why() {
    for (file, text) in [
        (
            "class TritonPythonModel:\n    def initialize(self, args):\n        raise KeyError('nothing')\n",
            "KeyError: 'nothing'",
        ),
        ("class Other:\n    pass\n", "has no attribute 'TritonPythonModel'"),
        ("import nothing_of_that_name\n", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("class TritonPythonModel\n", "SyntaxError: "),
        (
            "class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n        pass\n",
            "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object.",
        ),
        (
            "import os\nclass TritonPythonModel:\n    def initialize(self, args):\n        os._exit(1)\n",
            "Internal: Stub process 'm_0' is not healthy.",
        ),
    ] {
        let refusal = TestModel::of_file(CONFIG, file).refusal();
        assert!(refusal.starts_with("Internal: ") && refusal.contains(text), "{refusal}");
    }
}

#[test]
fn a_missing_file_and_a_missing_interpreter_are_named() {
    let model = TestModel::new(CONFIG, EXECUTE);
    std::fs::remove_file(model.folder().join("m/1/model.py")).unwrap();
    let file = model.folder().join("m/1/model.py");
    assert_eq!(model.refusal(), format!("Internal: Python model file not found in '{}'", file.display()));
    let refusal =
        TestModel::new(CONFIG, EXECUTE).with_setting("python-executable", "/nothing/here").refusal();
    assert!(
        refusal.contains("failed to start the Python interpreter '/nothing/here' for 'm_0'"),
        "{refusal}"
    );
    let config = format!("{CONFIG}default_model_filename: 'model.txt'\n");
    let refusal = TestModel::new(&config, EXECUTE).refusal();
    assert_eq!(refusal, "Internal: Model name must end with '.py'. Model name is \"model.txt\".");
}

#[test]
fn modules_beside_the_model_can_be_imported() {
    let model = TestModel::of_file(
        CONFIG,
        "import beside\nimport above\nimport triton_python_backend_utils as pb_utils\nclass TritonPythonModel:\n    \
         def initialize(self, args):\n        raise ValueError(beside.NAME + above.NAME + pb_utils.get_model_dir())\n",
    );
    std::fs::write(model.folder().join("m/1/beside.py"), "NAME = 'beside '\n").unwrap();
    std::fs::write(model.folder().join("m/above.py"), "NAME = 'above '\n").unwrap();
    let directory = model.folder().join("m/1");
    let expected = format!("Internal: ValueError: beside above {}\n", directory.display());
    assert!(model.refusal().starts_with(&expected), "{}", model.refusal());
}

#[test]
fn a_model_finalizes_and_its_process_ends() {
    let methods = format!(
        "{EXECUTE}def initialize(self, args):\n    self.folder = os.path.dirname(args['model_repository'])\n    \
         open(self.folder + '/pid', 'w').write(str(os.getpid()))\n\
         def finalize(self):\n    open(self.folder + '/finalized', 'w').close()\n"
    );
    let model = TestModel::new(CONFIG, &methods);
    drop(model.load().unwrap());
    assert!(model.folder().join("finalized").is_file());
    let pid = std::fs::read_to_string(model.folder().join("pid")).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}
