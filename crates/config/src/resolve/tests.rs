//! Tests of all steps of a configuration, from its source to its typed form.
use std::{num::NonZeroU32, path::Path, time::Duration};

use vocabulary::DataType;

use super::*;
use crate::{FileEntry, InstanceKind, Scheduling};

const PATH: &str = "models/m/config.pbtxt";

fn layout(name: &str, file: &str) -> ModelLayout {
    let entry = FileEntry { name: file.to_owned(), is_directory: false };
    ModelLayout { name: name.to_owned(), versions: [(1, vec![entry])].into() }
}

fn from_text(text: &str, completion: Completion) -> Result<DeclaredConfig, ConfigErrors> {
    let source = ConfigSource::Text { path: Path::new(PATH), content: text.as_bytes() };
    declare(source, &layout("m", "model.onnx"), completion)
}

fn auto(text: &str) -> Result<DeclaredConfig, ConfigErrors> {
    from_text(text, Completion::Auto)
}

fn overridden(json: &str) -> Result<DeclaredConfig, ConfigErrors> {
    declare(ConfigSource::Override(json), &layout("m", "model.onnx"), Completion::Auto)
}

/// Resolves a configuration with a backend that adds nothing, on a machine without GPU.
fn finished(text: &str) -> Result<ResolvedConfig, ConfigErrors> {
    let declared = auto(text)?;
    finish(&declared, declared.config.clone(), &CompletionContext::default())
}

const IO: &str =
    "input { name: 'x' data_type: TYPE_FP32 dims: 4 } output { name: 'y' data_type: TYPE_FP32 dims: 4 }";

#[test]
fn a_small_configuration_is_shown_as_clients_know_it() {
    let text = "backend: 'python' input { name: 'IN' data_type: TYPE_FP32 dims: 1 }
                output { name: 'OUT' data_type: TYPE_FP32 dims: 1 }";
    let source = ConfigSource::Text { path: Path::new(PATH), content: text.as_bytes() };
    let declared = declare(source, &layout("mini", "model.py"), Completion::Auto).unwrap();
    let resolved = finish(&declared, declared.config.clone(), &CompletionContext::default()).unwrap();
    let golden = r#"{"name":"mini","platform":"","backend":"python","runtime":"","version_policy":{"latest":{"num_versions":1}},"max_batch_size":0,"input":[{"name":"IN","data_type":"TYPE_FP32","format":"FORMAT_NONE","dims":[1],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,"is_non_linear_format_io":false}],"output":[{"name":"OUT","data_type":"TYPE_FP32","dims":[1],"label_filename":"","is_shape_tensor":false,"is_non_linear_format_io":false}],"batch_input":[],"batch_output":[],"optimization":{"priority":"PRIORITY_DEFAULT","input_pinned_memory":{"enable":true},"output_pinned_memory":{"enable":true},"gather_kernel_buffer_threshold":0,"eager_batching":false},"instance_group":[{"name":"mini","kind":"KIND_CPU","count":1,"gpus":[],"secondary_devices":[],"profile":[],"passive":false,"host_policy":""}],"default_model_filename":"model.py","cc_model_filenames":{},"metric_tags":{},"parameters":{},"model_warmup":[]}"#;
    assert_eq!(proto::json::to_json(&resolved.shown), golden);
}

#[test]
fn a_backend_is_told_the_instance_groups_before_it_completes_anything() {
    let declared = auto(IO).unwrap();
    let preferred = proto::ModelInstanceGroup { count: 3, kind: 2, ..Default::default() };
    let environment = CompletionContext { preferred_groups: vec![preferred], ..CompletionContext::default() };
    let told = declared.config_for_backend(&environment);
    let [group] = &told.instance_group[..] else { panic!("{told:?}") };
    assert_eq!((group.name.as_str(), group.count), ("m", 3));
    assert_eq!(told.input, declared.config.input);
    assert!(declared.config.instance_group.is_empty());
}

#[test]
fn the_typed_form_has_everything_in_place() {
    let text = "max_batch_size: 8 version_policy { all {} }
        input { name: 'x' data_type: TYPE_STRING dims: [ -1, 2 ] reshape { shape: [ -1, 1, 2 ] } optional: true }
        output { name: 'y' data_type: TYPE_BF16 dims: 3 label_filename: 'labels.txt' }
        dynamic_batching { max_queue_delay_microseconds: 100 priority_levels: 2 default_priority_level: 1
          default_queue_policy { max_queue_size: 3 }
          priority_queue_policy { key: 2 value { timeout_action: DELAY default_timeout_microseconds: 7 } } }
        batch_input { kind: BATCH_ITEM_SHAPE target_name: 't' data_type: TYPE_INT32 source_input: 'x' }
        batch_output { target_name: 'y' source_input: 'x' }
        parameters { key: 'k' value { string_value: 'v' } }
        optimization { graph { level: 1 } execution_accelerators { cpu_execution_accelerator { name: 'openvino' } } }
        instance_group { count: 3 } instance_group { kind: KIND_MODEL }
        model_operations { op_library_filename: 'ops.so' } response_cache { enable: true }";
    let typed = finished(text).unwrap().typed;
    assert_eq!((typed.name.as_str(), typed.backend.as_str()), ("m", "onnxruntime"));
    assert_eq!(typed.max_batch_size, NonZeroU32::new(8));
    let input = &typed.inputs[0];
    assert_eq!((input.datatype, &input.dims[..], input.optional), (DataType::Bytes, &[-1, 2][..], true));
    assert_eq!(input.reshape.as_deref(), Some(&[-1, 1, 2][..]));
    let output = &typed.outputs[0];
    assert_eq!((output.datatype, output.label_filename.as_deref()), (DataType::Bf16, Some("labels.txt")));
    let Scheduling::Dynamic(batching) = &typed.scheduling else { panic!("{:?}", typed.scheduling) };
    assert_eq!(
        (batching.max_batch_size, batching.preferred_batch_sizes.iter().copied().collect::<Vec<_>>()),
        (8, vec![8])
    );
    assert_eq!(batching.max_queue_delay, Duration::from_micros(100));
    assert_eq!(batching.default_queue_policy.max_queue_size.map(std::num::NonZero::get), Some(3));
    let late = &batching.priority_queue_policies[&2];
    assert_eq!(
        (late.timeout_action, late.default_timeout),
        (scheduling::TimeoutAction::Delay, Some(Duration::from_micros(7)))
    );
    let groups: Vec<_> = typed
        .instance_groups
        .iter()
        .map(|group| (group.name.as_str(), group.kind, group.count.get()))
        .collect();
    assert_eq!(groups, [("m_0", InstanceKind::Cpu, 3), ("m_1", InstanceKind::Model, 1)]);
    assert_eq!(typed.version_policy, VersionPolicy::All);
    assert_eq!(
        (typed.parameters["k"].as_str(), typed.graph_level, typed.response_cache.is_some()),
        ("v", Some(1), true)
    );
    assert_eq!(
        (typed.cpu_accelerators[0].name.as_str(), &typed.op_library_filenames[..]),
        ("openvino", &["ops.so".to_owned()][..])
    );
    assert_eq!(
        (typed.batch_inputs[0].source_input.as_str(), typed.batch_outputs[0].target_names[0].as_str()),
        ("x", "y")
    );
}

#[test]
fn an_unreadable_file_is_reported_with_its_path() {
    let error = auto("name: 'm'\ninput { naem: 'x' }").unwrap_err();
    let text = "failed to read text proto from models/m/config.pbtxt:2:9: 'naem' is not a field of ModelInput, did you \
                mean 'name'?\n  input { naem: 'x' }\n          ^";
    assert_eq!((error.problems()[0].code, error.to_string().as_str()), (ErrorCode::Internal, text));
}

#[test]
fn a_missing_file_is_an_empty_configuration_or_an_error() {
    let source = ConfigSource::Missing(Path::new(PATH));
    let declared = declare(source, &layout("m", "model.onnx"), Completion::Auto).unwrap();
    assert_eq!((declared.config.backend.as_str(), declared.is_given), ("onnxruntime", false));
    let error = declare(source, &layout("m", "model.onnx"), Completion::Strict).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to open text file for read models/m/config.pbtxt: No such file or directory"
    );
    // A backend that knows the model replaces the missing file. Another backend does not.
    let error = finish(&declared, declared.config.clone(), &CompletionContext::default()).unwrap_err();
    assert_eq!(
        (error.problems()[0].code, error.to_string().as_str()),
        (ErrorCode::NotFound, "model configuration is not provided for model 'm'")
    );
    let completed = proto::text::parse(IO.as_bytes()).unwrap().config;
    assert_eq!(finish(&declared, completed, &CompletionContext::default()).unwrap().typed.inputs.len(), 1);
    let python = declare(source, &layout("m", "model.py"), Completion::Auto).unwrap();
    let config = finish(&python, python.config.clone(), &CompletionContext::default()).unwrap().typed;
    assert!(config.inputs.is_empty() && config.outputs.is_empty());
}

#[test]
fn a_size_that_the_backend_has_chosen_limits_batches_only() {
    let declared =
        declare(ConfigSource::Missing(Path::new(PATH)), &layout("m", "model.onnx"), Completion::Auto);
    let (declared, io) = (declared.unwrap(), proto::text::parse(IO.as_bytes()).unwrap().config);
    let finished = |rows: u32| {
        let completed = proto::ModelConfig { max_batch_size: 4, ..io.clone() };
        let environment =
            CompletionContext { request_rows: NonZeroU32::new(rows), ..CompletionContext::default() };
        finish(&declared, completed, &environment).unwrap()
    };
    let limits = |config: &ModelConfig| (config.max_batch_size, config.request_limit());
    let size = NonZeroU32::new(4);
    assert_eq!(limits(&finished(3).typed), (size, size));
    let chosen = finished(1024);
    assert_eq!(limits(&chosen.typed), (size, NonZeroU32::new(1024)));
    assert_eq!(chosen.shown.max_batch_size, 4);
}

#[test]
fn all_problems_are_reported_together_with_their_lines() {
    let text = "name: 'other'\nmax_batch_size: 2\ndynamic_batching {\n  preferred_batch_size: [ 4 ]\n  priority_levels: 1\n}";
    let error = auto(text).unwrap_err();
    assert!(error.to_string().starts_with(
        "dynamic batching preferred size must be <= max batch size for other; default priority level must be in range"
    ));
    assert_eq!(
        error.report(),
        "models/m/config.pbtxt:4: dynamic batching preferred size must be <= max batch size for other\n\
         models/m/config.pbtxt:3: default priority level must be in range [1, 1] for other\n\
         models/m/config.pbtxt:1: unexpected directory name 'm' for model 'other', directory name must equal model name"
    );
}

#[test]
fn strict_configurations_are_complete_when_they_are_read() {
    assert_eq!(
        from_text("input { name: 'x' dims: 1 }", Completion::Strict).unwrap_err().to_string(),
        "model input 'x' must specify 'data_type' for m"
    );
    assert!(auto("input { name: 'x' dims: 1 }").is_ok());
    assert_eq!(
        finished("input { name: 'x' dims: 1 }").unwrap_err().to_string(),
        "model input 'x' must specify 'data_type' for m"
    );
}

#[test]
fn an_override_replaces_the_file_and_names_the_same_model() {
    assert_eq!(overridden("{}").unwrap().config, auto("").unwrap().config);
    assert_eq!(
        overridden(r#"{"name":"m","maxBatchSize":"4","dynamic_batching":{},"input":null}"#).unwrap().config,
        auto("max_batch_size: 4 dynamic_batching {}").unwrap().config
    );
    for (json, wanted) in [
        (
            r#"{"nmae":"m"}"#,
            "Invalid config override: 'nmae' is not a field of ModelConfig, did you mean 'name'?",
        ),
        (
            r#"{"dynamic_batching":{},"sequence_batching":{}}"#,
            "Invalid config override: 'sequence_batching' excludes",
        ),
        ("{", "Invalid config override: invalid JSON: "),
        ("", "Invalid config override: invalid JSON: "),
        (
            r#"{"name":"n"}"#,
            "unexpected directory name 'm' for model 'n', directory name must equal model name",
        ),
    ] {
        let error = overridden(json).unwrap_err();
        assert!(error.to_string().starts_with(wanted), "{json}: {error}");
        assert_eq!(error.problems()[0].code, ErrorCode::InvalidArgument);
    }
}

#[test]
fn what_the_source_set_is_known_apart_from_its_default() {
    assert!(auto("max_batch_size: 0").unwrap().fields.contains("max_batch_size"));
    assert!(overridden(r#"{"max_batch_size":0}"#).unwrap().fields.contains("max_batch_size"));
    assert!(!auto("name: 'm'").unwrap().fields.contains("max_batch_size"));
}

/// `edit` changes the declared configuration as the backend's hook would.
fn completed(text: &str, edit: impl FnOnce(&mut proto::ModelConfig)) -> Result<ResolvedConfig, ConfigErrors> {
    let declared = auto(text).unwrap();
    let mut config = declared.config.clone();
    edit(&mut config);
    finish(&declared, config, &CompletionContext::default())
}

#[test]
fn a_backend_adds_tensors_batching_and_transactions_and_nothing_else() {
    let io = proto::text::parse(IO.as_bytes()).unwrap().config;
    let resolved = completed("parameters { key: 'mine' }", |config| {
        (config.input, config.output) = (io.input, io.output);
        config.max_batch_size = 4;
        config.scheduling_choice =
            Some(SchedulingChoice::DynamicBatching(proto::ModelDynamicBatching::default()));
        config.model_transaction_policy = Some(proto::ModelTransactionPolicy { decoupled: true });
        config.parameters.clear();
        "python".clone_into(&mut config.backend);
        config.instance_group.push(proto::ModelInstanceGroup::default());
    })
    .unwrap();
    let shown = resolved.shown;
    assert_eq!((shown.max_batch_size, shown.input.len(), shown.output.len()), (4, 1, 1));
    assert!(resolved.typed.decoupled && shown.parameters.contains_key("mine"));
    assert_eq!((shown.backend.as_str(), shown.instance_group[0].name.as_str()), ("onnxruntime", "m"));
    let Some(SchedulingChoice::DynamicBatching(batching)) = shown.scheduling_choice else {
        panic!("not taken")
    };
    assert_eq!(batching.preferred_batch_size, [4], "normalised again");
}

#[test]
fn a_backend_may_not_change_the_scheduling_choice() {
    let error = completed(&format!("dynamic_batching {{}} {IO}"), |config| {
        config.scheduling_choice =
            Some(SchedulingChoice::SequenceBatching(proto::ModelSequenceBatching::default()));
    })
    .unwrap_err();
    let text = "Cannot update scheduling choice from 11 to 13 when auto-completing.";
    assert_eq!((error.problems()[0].code, error.to_string().as_str()), (ErrorCode::Internal, text));
    // The settings of the user stay.
    let kept = completed(&format!("dynamic_batching {{ preserve_ordering: true }} {IO}"), |config| {
        config.scheduling_choice =
            Some(SchedulingChoice::DynamicBatching(proto::ModelDynamicBatching::default()));
    });
    let Scheduling::Dynamic(batching) = kept.unwrap().typed.scheduling else { panic!("not dynamic") };
    assert!(batching.preserve_ordering);
}

#[test]
fn what_a_backend_adds_is_checked() {
    let error = completed("", |config| config.max_batch_size = -1).unwrap_err();
    assert_eq!(error.to_string(), "'max_batch_size' must be non-negative value for m");
}

#[test]
fn rules_of_loading_wait_for_the_backend() {
    let text = "max_batch_size: 1\nmodel_warmup {\n  batch_size: 2\n}\nsequence_batching {\n  state {\n    \
                initial_state { name: 'i' zero_data: true } initial_state { zero_data: true }\n  }\n}";
    let error = finished(&format!("{text}\n{IO}")).unwrap_err();
    assert_eq!(
        error.report(),
        "models/m/config.pbtxt:3: warmup sample '' batch size 2 exceeds maximum 1\n\
         models/m/config.pbtxt:6: initial_state field for state input '' must contain exactly one or zero element. \
         Found '2' elements."
    );
    assert_eq!(error.problems()[0].code, ErrorCode::InvalidArgument);
    assert!(auto(text).is_ok());
}

#[test]
fn warnings_come_with_the_configuration() {
    let state = "state { input_name: 's' output_name: 't' data_type: TYPE_FP32 dims: 1 }";
    let resolved = finished(&format!("sequence_batching {{ {state} {state} }} {IO}")).unwrap();
    assert_eq!(resolved.warnings.len(), 1);
    assert!(finished(&format!("sequence_batching {{ {state} }} {IO}")).unwrap().warnings.is_empty());
}

#[test]
fn settings_that_have_no_effect_are_legal() {
    for text in [
        "response_cache { enable: true }",
        "model_repository_agents {}",
        "instance_group { rate_limiter { resources { name: 'r' count: 1 } priority: 2 } host_policy: 'p' }",
        "runtime: 'libtriton_onnxruntime.so'",
        "sequence_batching { state { input_name: 's' output_name: 't' data_type: TYPE_FP32 dims: 1
         use_same_buffer_for_input_output: true } }",
        "cc_model_filenames { key: '7.5' value: 'x' } optimization { cuda { graphs: true } eager_batching: true }",
        "model_metrics { metric_control { metric_identifier { family: 'f' } histogram_options { buckets: 1 } } }",
    ] {
        assert!(finished(&format!("{text} {IO}")).is_ok(), "{text}");
    }
}

#[test]
fn the_refusal_of_gpus_depends_on_the_gpus_of_the_machine() {
    let text = format!("instance_group {{ kind: KIND_GPU }} {IO}");
    assert_eq!(
        finished(&text).unwrap_err().to_string(),
        "instance group m_0 of model m has kind KIND_GPU but server does not support GPUs"
    );
    let declared = auto(&text).unwrap();
    let environment = CompletionContext { gpu_count: 1, ..CompletionContext::default() };
    let error = finish(&declared, declared.config.clone(), &environment).unwrap_err();
    assert_eq!(
        error.to_string(),
        "'KIND_GPU' of instance group 'm_0' of model 'm' is not supported by this version of nereid"
    );
}

#[test]
fn numbers_that_name_nothing_are_refused() {
    for (text, wanted) in [
        (
            "input { name: 'x' data_type: TYPE_FP32 dims: 1 format: 7 }",
            "'input[0].format' of model 'm' has no value 7",
        ),
        (
            "dynamic_batching { default_queue_policy { timeout_action: 5 } }",
            "'timeout_action' of model 'm' has no value 5",
        ),
        (
            "input { name: 'a\\0b' data_type: TYPE_FP32 dims: 1 }",
            "'input[0].name' of model 'm' contains a NUL character",
        ),
        (
            "instance_group { secondary_devices { kind: 4 } }",
            "'instance_group[0].secondary_devices[0].kind' of model 'm' has no value 4",
        ),
        (
            "sequence_batching { control_input { name: 'c' control { kind: 9 bool_false_true: [ 0, 1 ] } } }",
            "'sequence_batching.control_input[0].control.kind' of model 'm' has no value 9",
        ),
        (
            "model_warmup { batch_size: 1 inputs { key: 'x' value { data_type: 99 zero_data: true } } }",
            "'model_warmup[0].inputs.x.data_type' of model 'm' has no value 99",
        ),
        (
            "output { name: 'y' data_type: TYPE_FP32 dims: 1 label_filename: '../x' }",
            "label file path '../x' for output 'y' in model 'm' is outside model directory",
        ),
    ] {
        assert_eq!(finished(text).unwrap_err().to_string(), wanted);
    }
}

/// A small reproducible generator of numbers (Knuth's constants).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

const LETTERS: &[u8] = b"{}[]<>:;,\"'\\#-.0179xeaTn_ \n\t\0\xff";

#[test]
fn a_changed_character_never_causes_a_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/tests/configs");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut dice = Dice(7);
    let mut resolved = 0;
    let environment = CompletionContext { gpu_groups_on_cpu: true, ..CompletionContext::default() };
    for path in paths {
        let original = std::fs::read(&path).unwrap();
        let name = proto::text::parse(&original).unwrap().config.name;
        for round in 0..60 {
            let mut content = original.clone();
            let at = dice.roll(content.len());
            match dice.roll(3) {
                _ if round == 0 => {}
                0 => content[at] = LETTERS[dice.roll(LETTERS.len())],
                1 => content.insert(at, LETTERS[dice.roll(LETTERS.len())]),
                _ => drop(content.remove(at)),
            }
            let source = ConfigSource::Text { path: &path, content: &content };
            let outcome = declare(source, &layout(&name, "model.onnx"), Completion::Auto)
                .and_then(|declared| finish(&declared, declared.config.clone(), &environment));
            match outcome {
                Ok(_) => resolved += 1,
                Err(errors) if round == 0 => {
                    let broken =
                        errors.problems().iter().find(|problem| problem.code != ErrorCode::Unsupported);
                    assert_eq!(broken, None, "{name} keeps all rules");
                }
                Err(errors) => assert!(!errors.to_string().is_empty() && !errors.report().is_empty()),
            }
        }
    }
    assert!(resolved > 25, "{resolved} resolved");
}
