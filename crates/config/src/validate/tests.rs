//! One row for each rule: a configuration that breaks the rule, and the error text that clients of Triton know.
use proto::ModelConfig;

use super::*;
use crate::{
    ConfigErrors,
    complete::{CompletionContext, complete_instance_groups, normalise},
};

fn parsed(text: &str) -> ModelConfig {
    proto::text::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}\n{error}")).config
}

/// Compares the error texts of `check` with the text in each row.
fn table(rows: &[(&str, &str)], check: impl Fn(&mut ModelConfig, &mut ConfigErrors)) {
    for (text, wanted) in rows {
        let mut errors = ConfigErrors::default();
        check(&mut parsed(text), &mut errors);
        assert_eq!(errors.to_string(), *wanted, "{text}");
    }
}

fn structure(rows: &[(&str, &str)]) {
    table(rows, |config, errors| {
        if config.name.is_empty() {
            "m".clone_into(&mut config.name);
        }
        if config.backend.is_empty() && config.platform.is_empty() {
            "python".clone_into(&mut config.backend);
        }
        normalise(config);
        check_structure(config, errors);
    });
}

#[test]
fn a_configuration_has_a_name_and_a_version_policy() {
    table(
        &[
            ("backend: 'b' version_policy {}", "model configuration must specify 'name'"),
            ("name: 'm' backend: 'b'", "must specify 'version policy' for m"),
        ],
        |config, errors| check_structure(config, errors),
    );
}

#[test]
fn backend_and_platform_fit() {
    structure(&[
        ("platform: 'x'", "unexpected platform type 'x' for m"),
        (
            "backend: 'python' platform: 'ensemble' ensemble_scheduling {}",
            "Ensemble model 'm' must have platform type 'ensemble' and empty backend type; \
             must specify 'step' for ensemble 'm'",
        ),
        (
            "backend: 'onnxruntime' platform: 'tensorrt_plan'",
            "unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime",
        ),
        ("backend: 'tensorflow'", "unexpected 'platform' and 'backend' pair, got:, tensorflow"),
        (
            "backend: 'pytorch' platform: 'libtorch'",
            "unexpected 'platform' and 'backend' pair, got:libtorch, pytorch",
        ),
        ("backend: 'pytorch' platform: 'torch_aoti'", ""),
        ("backend: 'python' platform: 'tensorrt_plan'", ""),
        ("backend: 'onnxruntime' platform: 'onnxruntime_onnx'", ""),
        ("max_batch_size: -1", "'max_batch_size' must be non-negative value for m"),
    ]);
}

#[test]
fn dynamic_batching_is_possible() {
    structure(&[
        ("dynamic_batching {}", ""),
        ("max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 4, 2 ] }", ""),
        (
            "max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 0, -1 ] }",
            "dynamic batching preferred size must be positive for m",
        ),
        (
            "max_batch_size: 4 dynamic_batching { preferred_batch_size: 5 }",
            "dynamic batching preferred size must be <= max batch size for m",
        ),
        (
            "dynamic_batching { priority_levels: 2 }",
            "default priority level must be in range [1, 2] for m",
        ),
        (
            "dynamic_batching { priority_levels: 2 default_priority_level: 3 }",
            "default priority level must be in range [1, 2] for m",
        ),
        (
            "dynamic_batching { priority_levels: 2 default_priority_level: 2 priority_queue_policy { key: 3 } }",
            "priority queue policy must have priority level in range [1, 2] for m",
        ),
        (
            "dynamic_batching { priority_levels: 2 default_priority_level: 2 priority_queue_policy { key: 0 } }",
            "priority queue policy must have priority level in range [1, 2] for m",
        ),
        (
            "dynamic_batching { priority_levels: 2 default_priority_level: 2 preserve_ordering: true }",
            "Only one priority level is allowed when 'preserve_ordering' is true for m",
        ),
        (
            "dynamic_batching { preserve_ordering: true
             default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1 } }",
            "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m",
        ),
        (
            "dynamic_batching { preserve_ordering: true priority_levels: 1 default_priority_level: 1
             priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 1 } } }",
            "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m",
        ),
        ("dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY } }", ""),
    ]);
}

#[test]
fn sequence_batching_is_possible() {
    let start = "name: 'S' control { kind: CONTROL_SEQUENCE_START";
    let corrid = "name: 'C' control { kind: CONTROL_SEQUENCE_CORRID";
    let either = "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for";
    let rows = [
        ("response_cache { enable: true } sequence_batching {}".to_owned(),
         "Response Cache does not currently support model m with sequence batching scheduler. Please disable the response cache.".to_owned()),
        ("sequence_batching { control_input {} }".to_owned(), "sequence batching control tensor must have a name for m".to_owned()),
        ("sequence_batching { control_input { name: 'S' } control_input { name: 'S' } }".to_owned(),
         "sequence batching control tensor 'S' is specified for multiple control kinds for m".to_owned()),
        (format!("sequence_batching {{ control_input {{ {start} int32_false_true: [ 0, 1 ] }} }}
                  control_input {{ name: 'T' control {{ kind: CONTROL_SEQUENCE_START bool_false_true: [ 0, 1 ] }} }} }}"),
         "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for m".to_owned()),
        (format!("sequence_batching {{ control_input {{ {start} int32_false_true: [ 0, 1 ] }}
                  control {{ kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] }} }} }}"),
         "sequence batching control tensor 'S' is specified for multiple control kinds for m".to_owned()),
        (format!("sequence_batching {{ control_input {{ {start} }} }} }}"), format!("{either} CONTROL_SEQUENCE_START for m")),
        ("sequence_batching { control_input { name: 'R' control { kind: CONTROL_SEQUENCE_READY } } }".to_owned(),
         format!("{either} CONTROL_SEQUENCE_READY for m")),
        (format!("sequence_batching {{ control_input {{ {start} int32_false_true: [ 0, 1 ] fp32_false_true: [ 0, 1 ] }} }} }}"),
         "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and 'bool_false_true' for CONTROL_SEQUENCE_START for m".to_owned()),
        (format!("sequence_batching {{ control_input {{ {start} fp32_false_true: 0 }} }} }}"),
         "sequence batching control 'fp32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_START for m".to_owned()),
        (format!("sequence_batching {{ control_input {{ {corrid} data_type: TYPE_UINT64 bool_false_true: [ 0, 1 ] }} }} }}"),
         "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for CONTROL_SEQUENCE_CORRID for m".to_owned()),
        (format!("sequence_batching {{ control_input {{ {corrid} data_type: TYPE_FP32 }} }} }}"),
         "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING".to_owned()),
        ("max_batch_size: 2 sequence_batching { oldest { preferred_batch_size: 0 } }".to_owned(),
         "sequence batching preferred batch size must be positive for m".to_owned()),
        ("max_batch_size: 2 sequence_batching { oldest { preferred_batch_size: 3 } }".to_owned(),
         "sequence batching preferred batch size must be <= max batch size for m".to_owned()),
        ("sequence_batching { direct { minimum_slot_utilization: 1.5 } }".to_owned(),
         "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m".to_owned()),
        ("sequence_batching { direct { minimum_slot_utilization: -0.1 } }".to_owned(),
         "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m".to_owned()),
        (format!("sequence_batching {{ direct {{}} control_input {{ {start} int32_false_true: [ 0, 1 ] }} }}
                  control_input {{ {corrid} data_type: TYPE_STRING }} }} }}"), String::new()),
    ];
    for (text, wanted) in &rows {
        structure(&[(text, wanted)]);
    }
}

/// An ensemble with one step from `a` to `b`, and the fields in `rest`.
fn ensemble(rest: &str) -> String {
    format!(
        "platform: 'ensemble' {rest} ensemble_scheduling {{ step {{ model_name: 's' input_map {{ key: 'x' value: 'a' }}
         output_map {{ key: 'y' value: 'b' }} }} STEPS }}"
    )
}

#[test]
fn ensembles_have_their_own_fields_only() {
    let io = "input { name: 'a' } output { name: 'b' }";
    let with = |rest: &str| ensemble(&format!("{io} {rest}")).replace("STEPS", "");
    structure(&[
        (&with(""), ""),
        (
            &with("").replace("platform: 'ensemble'", "backend: 'b'"),
            "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble",
        ),
        (&with("instance_group {}"), "instance group should not be specified for ensemble 'm'"),
        (&with("optimization {}"), "optimization should not be specified for ensemble 'm'"),
        (&with("model_warmup {}"), "model_warmup can not be specified for ensemble 'm'"),
        ("platform: 'ensemble' ensemble_scheduling {}", "must specify 'step' for ensemble 'm'"),
        ("platform: 'ensemble'", "ensemble scheduling must be set for ensemble m whose platform is ensemble"),
        (
            "platform: 'ensemble' ensemble_scheduling { step {} }",
            "must specify 'model_name' in step 0 of ensemble 'm'; must specify 'input_map' in step 0 of ensemble 'm'; \
             must specify 'output_map' in step 0 of ensemble 'm'",
        ),
    ]);
}

#[test]
fn the_tensors_of_an_ensemble_are_made_and_used() {
    let with = |io: &str, steps: &str| ensemble(io).replace("STEPS", steps);
    let step = |from: &str, to: &str| {
        format!(
            "step {{ model_name: 't' input_map {{ key: 'x' value: '{from}' }} output_map {{ key: 'y' value: '{to}' }} }}"
        )
    };
    let io = "input { name: 'a' } output { name: 'b' }";
    structure(&[
        (
            &with(io, &step("a", "b")),
            "ensemble tensor 'b' can appear in an output map only once for ensemble 'm' step 1",
        ),
        (
            &with("input { name: 'a' } input { name: 'z' } output { name: 'b' }", ""),
            "ensemble input 'z' for ensemble m' is not used",
        ),
        (
            &with("input { name: 'a' } output { name: 'b' } output { name: 'z' }", ""),
            "ensemble output 'z' for ensemble m' is not used",
        ),
        (
            &with("output { name: 'b' }", ""),
            "output 'b' for ensemble 'm' is not written: at least one of its depending tensors, 'a', is not connected; \
             ensemble tensor 'a' is unused in ensemble 'm'",
        ),
        (&with(io, &step("a", "c")), "ensemble tensor 'c' is unused in ensemble 'm'"),
        (&with("input { name: 'a' } output { name: 'c' }", &step("b", "c")), ""),
    ]);
    // If no step produces an output, the error names no source.
    let text = "platform: 'ensemble' input { name: 'a' } output { name: 'c' } output { name: 'b' } ensemble_scheduling {
        step { model_name: 's' input_map { key: 'x' value: 'a' } input_map { key: 'z' value: 'c' }
               output_map { key: 'y' value: 'b' } } }";
    structure(&[(
        text,
        "output 'c' for ensemble 'm' is not written; output 'b' for ensemble 'm' is not written: at least one of its \
         depending tensors, 'c', is not connected",
    )]);
}

#[test]
fn caches_and_metrics_fit_the_rest() {
    structure(&[
        (
            "response_cache { enable: true } model_transaction_policy { decoupled: true }",
            "Response Cache does not currently support model m with 'decoupled' transaction policy. Please disable \
             the response cache.",
        ),
        ("response_cache { enable: true }", ""),
        ("response_cache {} model_transaction_policy { decoupled: true }", ""),
        (
            "model_metrics { metric_control {} }",
            "metric control must specify 'metric_identifier'; metric control must specify 'histogram_options'",
        ),
        (
            "model_metrics { metric_control { metric_identifier {} histogram_options {} } }",
            "metric identifier must specify non-empty 'family'; histogram options must specify non-empty 'buckets'",
        ),
        (
            "model_metrics { metric_control { metric_identifier { family: 'f' } histogram_options { buckets: 1 } } }",
            "",
        ),
    ]);
}

fn tensors_of(rows: &[(&str, &str)]) {
    table(rows, |config, errors| {
        "m".clone_into(&mut config.name);
        check_tensors(config, errors);
    });
}

#[test]
fn inputs_are_complete() {
    let io = |rest: &str| format!("input {{ name: 'x' data_type: TYPE_FP32 {rest} }}");
    tensors_of(&[
        ("input {}", "model input must specify 'name' for m"),
        ("input { name: 'x' dims: 1 }", "model input 'x' must specify 'data_type' for m"),
        ("input { name: 'x' dims: 1 data_type: 99 }", "model input 'x' must specify 'data_type' for m"),
        (&io(""), "model input 'x' must specify 'dims' for m"),
        (
            "input { name: 'x' }",
            "model input 'x' must specify 'data_type' for m; model input 'x' must specify 'dims' for m",
        ),
        (
            &io("dims: 0"),
            "model input 'x' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
        ),
        (
            &io("dims: -2"),
            "model input 'x' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
        ),
        (&io("dims: [ 2, 2 ] format: FORMAT_NHWC"), "model input NHWC/NCHW require 3 dims for m"),
        (&io("dims: [ 2, 2, 2 ] format: FORMAT_NCHW"), ""),
        (
            &io("dims: 1 is_shape_tensor: true"),
            "shape tensors are only supported for TensorRT platform for m",
        ),
        (
            &io("dims: [ 1, 1, 1 ] is_non_linear_format_io: true"),
            "Non-linear IO format is only supported for the TensorRT platform for m",
        ),
        (
            &format!("platform: 'tensorrt_plan' {}", io("dims: 1 is_non_linear_format_io: true")),
            "Non-linear IO format input requires 3 dims for m",
        ),
        (&format!("platform: 'tensorrt_plan' {}", io("dims: 1 is_shape_tensor: true")), ""),
        (
            &io("dims: [ 4611686018427387904, 2 ]"),
            "element count for tensor 'x dims' exceeds maximum size of 9223372036854775807 for m",
        ),
        (
            &format!("{} {}", io("dims: 1"), io("dims: 1")),
            "model input 'x' is specified more than once for m",
        ),
        (&io("dims: -1"), ""),
    ]);
}

#[test]
fn outputs_are_complete() {
    let io = |rest: &str| format!("output {{ name: 'y' data_type: TYPE_FP32 {rest} }}");
    tensors_of(&[
        ("output {}", "model output must specify 'name' for m"),
        ("output { name: 'y' dims: 1 }", "model output 'y' must specify 'data_type' for m"),
        (&io(""), "model output 'y' must specify 'dims' for m"),
        (
            &io("dims: 0"),
            "model output 'y' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
        ),
        (
            &io("dims: 1 is_shape_tensor: true"),
            "shape tensors are only supported for TensorRT platform for m",
        ),
        (
            &format!("platform: 'tensorrt_plan' {}", io("dims: 1 is_non_linear_format_io: true")),
            "Non-linear IO format output requires 3 dims for m",
        ),
        (
            &format!("{} {}", io("dims: 1"), io("dims: 1")),
            "model output 'y' is specified more than once for m",
        ),
        (&io("dims: 1"), ""),
    ]);
}

#[test]
fn a_reshape_holds_the_same_elements() {
    let prefix = "model input 'x'";
    let different = "has different size for dims and reshape";
    for (batching, dims, reshape, wanted) in [
        (
            false,
            "1",
            "",
            "cannot have empty reshape for non-batching model as scalar tensors are not supported",
        ),
        (true, "1", "", ""),
        (true, "1, 1", "", ""),
        (true, "2", "", different),
        (true, "-1", "", different),
        (false, "2, 3", "6", ""),
        (false, "2, 3", "5", different),
        (
            false,
            "2, 3",
            "0",
            "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension",
        ),
        (
            false,
            "2, 3",
            "-3",
            "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension",
        ),
        (false, "2, -1", "4", different),
        (false, "4", "-1", different),
        (false, "2, 4, -1, 6", "8, -1, 1, 6", ""),
        (false, "2, 4, -1, 6", "4, -1, 2, 6", different),
        (false, "-1", "-1, 1", ""),
        (false, "-1, -1", "-1", "has different number of variable-size dimensions for dims and reshape"),
    ] {
        let text = format!(
            "max_batch_size: {} input {{ name: 'x' data_type: TYPE_FP32 dims: [ {dims} ] reshape {{ shape: [ {reshape} ] }} }}",
            i32::from(batching)
        );
        let wanted = if wanted.is_empty() { String::new() } else { format!("{prefix} {wanted} for m") };
        tensors_of(&[(&text, &wanted)]);
    }
    tensors_of(&[(
        "input { name: 'x' data_type: TYPE_FP32 dims: 1 reshape { shape: [ 9223372036854775807, 2 ] } }",
        "model input 'x' has different size for dims and reshape for m; element count for tensor 'x reshape' exceeds \
         maximum size of 9223372036854775807 for m",
    )]);
}

#[test]
fn batch_inputs_and_outputs_name_what_exists() {
    let io =
        "input { name: 'x' data_type: TYPE_FP32 dims: 1 } output { name: 'y' data_type: TYPE_FP32 dims: 1 }";
    for (rest, wanted) in [
        ("batch_input { data_type: TYPE_INT32 source_input: 'x' target_name: 't' }", ""),
        (
            "batch_input { data_type: TYPE_INT32 }",
            "batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, got 0 for m",
        ),
        (
            "batch_input { kind: BATCH_ITEM_SHAPE data_type: TYPE_FP32 source_input: [ 'x', 'x' ] }",
            "batch input kind 'BATCH_ITEM_SHAPE' expects 1 source input, got 2 for m",
        ),
        (
            "batch_input { kind: 9 data_type: TYPE_FP32 source_input: 'x' }",
            "unknown batch input kind '9' for m",
        ),
        (
            "batch_input { data_type: TYPE_INT64 source_input: 'x' }",
            "batch input data type must be TYPE_INT32 or TYPE_FP32 for m",
        ),
        ("batch_input { data_type: TYPE_INT32 source_input: 'z' }", "unknown source input name 'z' for m"),
        ("batch_output { target_name: 'y' source_input: 'x' }", ""),
        (
            "batch_output { target_name: 'y' }",
            "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 0 for m",
        ),
        (
            "batch_output { kind: 9 target_name: 'y' source_input: 'x' }",
            "unknown batch output kind '9' for m",
        ),
        ("batch_output { target_name: 'y' source_input: 'z' }", "unknown source input name 'z' for m"),
        ("batch_output { target_name: 'z' source_input: 'x' }", "unknown target output name 'z' for m"),
        (
            "batch_output { target_name: [ 'y', 'y' ] source_input: 'x' }",
            "target output name 'y' can only be specified once for m",
        ),
    ] {
        tensors_of(&[(&format!("{io} {rest}"), wanted)]);
    }
}

#[test]
fn instance_groups_use_devices_that_exist() {
    let head = "instance group g of model m";
    let with_gpus =
        "GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are: 0, 1";
    for (gpu_count, group, wanted) in [
        (0, "kind: KIND_CPU", String::new()),
        (0, "kind: KIND_MODEL gpus: 0", format!("{head} has kind KIND_MODEL but specifies one or more GPUs")),
        (0, "kind: KIND_CPU gpus: 0", format!("{head} has kind KIND_CPU but specifies one or more GPUs")),
        (0, "kind: KIND_GPU", format!("{head} has kind KIND_GPU but server does not support GPUs")),
        (0, "kind: 7", format!("{head} has unknown kind 7")),
        (2, "kind: KIND_GPU", String::new()),
        (
            2,
            "kind: KIND_GPU gpus: 2",
            format!("{head} specifies invalid or unsupported gpu id 2. {with_gpus}"),
        ),
        (
            0,
            "kind: KIND_CPU profile: '1'",
            format!(
                "{head} and platform specifies profile field which is only supported for TensorRT models"
            )
            .replace("platform specifies", "platform otherspecifies"),
        ),
    ] {
        let environment = CompletionContext { gpu_count, ..CompletionContext::default() };
        let text = format!("name: 'm' platform: 'other' instance_group {{ name: 'g' {group} }}");
        table(&[(&text, &wanted)], |config, errors| {
            complete_instance_groups(config, &environment);
            check_instance_groups(config, &environment, errors);
        });
    }
}

#[test]
fn instance_groups_are_complete_when_they_are_judged() {
    let environment = CompletionContext { gpu_count: 1, ..CompletionContext::default() };
    let head = "instance group g of model m";
    table(
        &[
            ("name: 'm'", "must specify one or more 'instance group's for m"),
            ("name: 'm' instance_group { name: 'g' }", &format!("{head} has unexpected kind KIND_AUTO")),
            (
                "name: 'm' instance_group { name: 'g' kind: KIND_GPU }",
                &format!("{head} has kind KIND_GPU but specifies no GPUs"),
            ),
            (
                "name: 'm' platform: 'tensorrt_plan' instance_group { name: 'g' kind: KIND_CPU profile: [ '0', '-1' ] }",
                &format!(
                    "{head} and platform tensorrt_plan specifies invalid profile -1. The field should contain the string \
                     representation of a non-negative integer."
                ),
            ),
        ],
        |config, errors| check_instance_groups(config, &environment, errors),
    );
}

#[test]
fn only_free_names_are_suggested_for_the_tensors_of_an_ensemble() {
    let suggested = |input: &str, step: &str| {
        let text = format!(
            "name: 'e' platform: 'ensemble' {input} output {{ name: 'OUT' data_type: TYPE_FP32 dims: 1 }}
             ensemble_scheduling {{ step {{ model_name: 'm' {step} }} }}"
        );
        let config = proto::text::parse(text.as_bytes()).unwrap().config;
        let mut errors = ConfigErrors::default();
        check_structure(&config, &mut errors);
        let problems = errors.problems().iter();
        problems.filter_map(|problem| problem.suggestion.clone()).collect::<Vec<_>>()
    };
    let input = |name: &str| format!("input {{ name: '{name}' data_type: TYPE_FP32 dims: 1 }}");
    let two = input("A") + &input("Z");
    let to_out = "output_map { key: 'y' value: 'OUT' }";
    let used = format!("input_map {{ key: 'x' value: 'A' }} {to_out}");
    assert_eq!(suggested(&two, &used), [""; 0], "A is used already");
    let misspelt = format!("input_map {{ key: 'x' value: 'IMAGES' }} {to_out}");
    assert_eq!(suggested(&input("IMAGE"), &misspelt), ["IMAGES", "IMAGE"]);
}

#[test]
fn a_model_has_a_bounded_number_of_instances() {
    let beyond =
        |number: u64| format!("model 'm' has {number} instances, more than the 1024 that it may have");
    for (groups, wanted) in [
        ("instance_group { kind: KIND_CPU count: 1024 }", String::new()),
        ("instance_group { kind: KIND_CPU count: 1025 }", beyond(1025)),
        ("instance_group { kind: KIND_CPU count: 2147483647 }", beyond(2_147_483_647)),
        (
            "instance_group { kind: KIND_CPU count: 1000 } instance_group { kind: KIND_MODEL count: 25 }",
            beyond(1025),
        ),
        ("instance_group { kind: KIND_GPU count: 512 gpus: [ 0, 1 ] }", String::new()),
        ("instance_group { kind: KIND_GPU count: 513 gpus: [ 0, 1 ] }", beyond(1026)),
    ] {
        let environment = CompletionContext { gpu_count: 2, ..CompletionContext::default() };
        table(&[(&format!("name: 'm' {groups}"), &wanted)], |config, errors| {
            check_instance_groups(config, &environment, errors);
        });
    }
}

#[test]
fn an_initial_state_fits_its_state() {
    let initial = "name: 'i' data_type: TYPE_FP32 zero_data: true";
    for (dims, initial, wanted) in [
        ("[ 2, -1 ]", format!("initial_state {{ {initial} dims: [ 2, 5 ] }}"), ""),
        ("[ 2, -1 ]", String::new(), ""),
        (
            "1",
            format!("initial_state {{ {initial} dims: 1 }}").repeat(2),
            "initial_state field for state input 's' must contain exactly one or zero element. Found '2' elements.",
        ),
        (
            "1",
            format!("initial_state {{ {initial} dims: 1 }}").replace("FP32", "INT32"),
            "The data type used for 'initial_state' field of state 's' does not match the state data type.",
        ),
        (
            "1",
            format!("initial_state {{ {initial} dims: 1 }}").replace("name: 'i'", ""),
            "Field 'name' must be set when using initial_state for state input 's'.",
        ),
        (
            "[ -1, -1 ]",
            format!("initial_state {{ {initial} dims: -1 }}"),
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input 's'. \
             1 != 2",
        ),
        (
            "[ 3, -1 ]",
            format!("initial_state {{ {initial} dims: [ 2, -1 ] }}"),
            "'initial_state' field for state input name 's' contains variable dimensions.",
        ),
        (
            "[ -1, 3 ]",
            format!("initial_state {{ {initial} dims: [ 7, 2 ] }}"),
            "'initial_state' dim for input name 's' doesn't match 'state' dim description. 2 != 3",
        ),
        (
            "1",
            format!("initial_state {{ {initial} dims: 1 }}").replace("zero_data: true", ""),
            "initial_state setting expects state's' to have state_data set",
        ),
    ] {
        let text = format!(
            "sequence_batching {{ state {{ input_name: 's' output_name: 't' data_type: TYPE_FP32 dims: {dims} {initial} }} }}"
        );
        table(&[(&text, wanted)], |config, errors| check_states(config, errors));
    }
}

#[test]
fn a_state_is_initialised_once() {
    let with = "state { input_name: 's' dims: 1 initial_state { name: 'i' dims: 1 zero_data: true } }";
    let without = "state { input_name: 's' dims: 1 }";
    for (states, wanted) in [
        (format!("{with} {with}"), "State input name 's' specified more than once."),
        (format!("{with} {without}"), ""),
    ] {
        let text = format!("sequence_batching {{ {states} }}");
        table(&[(&text, wanted)], |config, errors| check_states(config, errors));
    }
}

#[test]
fn growable_memory_is_not_checked_at_load() {
    let states = ["", "use_same_buffer_for_input_output: true"].map(|rest| {
        format!("sequence_batching {{ state {{ input_name: 's' use_growable_memory: true {rest} }} }}")
    });
    table(&states.each_ref().map(|text| (text.as_str(), "")), |config, errors| check_states(config, errors));
}

#[test]
fn a_warmup_sample_says_what_to_send() {
    let sample = |size: u32, input: &str| {
        format!("model_warmup {{ name: 's' batch_size: {size} inputs {{ key: 'x' value {{ {input} }} }} }}")
    };
    for (text, wanted) in [
        (sample(1, "dims: [ 2, 3 ] zero_data: true"), ""),
        (sample(1, "random_data: false"), ""),
        (
            sample(1, "dims: [ 2, -1 ] zero_data: true"),
            "warmup setting expects all variable-size dimensions are specified for input 'x'",
        ),
        (
            sample(1, "dims: 2"),
            "[request id: <id_unknown>] warmup setting expects input 'x' to have input_data_type set",
        ),
        (sample(2, "zero_data: true"), "warmup sample 's' batch size 2 exceeds maximum 1"),
        (format!("max_batch_size: 4 {}", sample(4, "zero_data: true")), ""),
        (
            format!("max_batch_size: 4 {}", sample(5, "zero_data: true")),
            "warmup sample 's' batch size 5 exceeds maximum 4",
        ),
        (sample(0, "dims: -1"), ""),
    ] {
        table(&[(&text, wanted)], |config, errors| check_warmups(config, errors));
    }
}

#[test]
fn files_lie_in_the_model_directory() {
    let initial = "sequence_batching { state { input_name: 's' initial_state { data_file: '../../x' } } }";
    table(
        &[
            (
                "name: 'm' output { name: 'y' label_filename: '../x' }",
                "label file path '../x' for output 'y' in model 'm' is outside model directory",
            ),
            ("name: 'm' output { name: 'y' label_filename: 'a/../x' }", ""),
            (
                "name: 'm' default_model_filename: '../../x'",
                "model file path '../../x' in model 'm' is outside model directory",
            ),
            (
                "name: 'm' default_model_filename: '/x'",
                "model file path '/x' in model 'm' is outside model directory",
            ),
            ("name: 'm' default_model_filename: 'model.onnx'", ""),
            (
                "name: 'm' model_warmup { inputs { key: 'i' value { input_data_file: '/x' } } }",
                "warmup file path '/x' for input 'i' in model 'm' is outside model directory",
            ),
            (
                &format!("name: 'm' {initial}"),
                "initial state file path '../../x' for state 's' in model 'm' is outside model directory",
            ),
        ],
        |config, errors| check_paths(config, errors),
    );
}
