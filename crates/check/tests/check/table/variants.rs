//! Rules that hold for many fields alike: dims of inputs and outputs, steps of ensembles, kinds of controls.
use super::{IO, Row};

/// Dims and reshapes, of inputs and of outputs.
pub(super) fn tensors() -> Vec<Row> {
    let cases = [
        ("dims: 0", "dimension must be integer >= 1, or -1"),
        ("dims: -2", "dimension must be integer >= 1, or -1"),
        ("dims: 4 reshape { shape: 0 }", "reshape dimensions must be integer >= 1, or -1"),
        ("dims: 4 reshape { shape: [ 2, 2 ] }", ""),
        ("dims: 4 reshape { shape: 5 }", "has different size for dims and reshape"),
        ("dims: 4 reshape { shape: -1 }", "has different size for dims and reshape"),
        ("dims: [ -1, 4 ] reshape { shape: [ -1, 2, 2 ] }", ""),
        ("dims: [ -1, -1 ] reshape { shape: -1 }", "has different number of variable-size dimensions"),
        ("dims: 1 reshape { }", "cannot have empty reshape for non-batching model"),
        ("dims: [ 9223372036854775807, 3 ]", "exceeds maximum size of 9223372036854775807"),
        ("dims: 1 is_shape_tensor: true", "shape tensors are only supported for TensorRT platform"),
        ("dims: 1 is_non_linear_format_io: true", "Non-linear IO format is only supported"),
    ];
    let mut rows = Vec::new();
    for side in ["input", "output"] {
        for (text, refusal) in cases {
            let config = format!(
                "backend: 'identity' {IO} {side} {{ name: 'X' data_type: TYPE_FP32 {text} {} }}",
                if side == "input" { "optional: true" } else { "" }
            );
            rows.push(Row::new(config, refusal));
        }
    }
    for format in ["FORMAT_NHWC", "FORMAT_NCHW"] {
        let config = |dims: &str| {
            format!(
                "backend: 'identity' {IO} input {{ name: 'X' data_type: TYPE_FP32 format: {format} dims: {dims} }}"
            )
        };
        rows.push(Row::new(config("[ 1, 2 ]"), "model input NHWC/NCHW require 3 dims"));
        rows.push(Row::new(config("[ 1, 2, 3 ]"), ""));
    }
    rows
}

/// Ensembles that break a rule without their members. The members do not exist.
pub(super) fn ensembles() -> Vec<Row> {
    let step =
        "step { model_name: 'none' input_map { key: 'X' value: 'IN' } output_map { key: 'Y' value: 'OUT' } }";
    let cases = [
        (String::new(), "must specify 'step' for ensemble"),
        (
            "step { input_map { key: 'X' value: 'IN' } output_map { key: 'Y' value: 'OUT' } }".to_owned(),
            "must specify 'model_name' in step 0",
        ),
        (
            "step { model_name: 'a' output_map { key: 'Y' value: 'OUT' } }".to_owned(),
            "must specify 'input_map' in step 0",
        ),
        (
            "step { model_name: 'a' input_map { key: 'X' value: 'IN' } }".to_owned(),
            "must specify 'output_map' in step 0",
        ),
        (format!("{step} {step}"), "can appear in an output map only once"),
        (step.replace("value: 'IN'", "value: 'INN'"), "is not used"),
        (step.replace("value: 'OUT'", "value: 'OUTT'"), "is not used"),
        (
            format!(
                "{step} step {{ model_name: 'a' input_map {{ key: 'X' value: 'z' }} output_map {{ key: 'Y' value: 'z' }} }}"
            ),
            "is unused in ensemble",
        ),
        (step.to_owned(), "contains models that are not available or ambiguous: none"),
    ];
    let ensemble = |steps: &str, more: &str| {
        format!("platform: 'ensemble' {IO} ensemble_scheduling {{ {steps} }} {more}")
    };
    let mut rows: Vec<_> =
        cases.iter().map(|(steps, refusal)| Row::new(ensemble(steps, ""), refusal)).collect();
    for (more, refusal) in [
        ("instance_group { }", "instance group should not be specified for ensemble"),
        ("optimization { }", "optimization should not be specified for ensemble"),
        ("model_warmup { }", "model_warmup can not be specified for ensemble"),
        ("max_batch_size: -1", "'max_batch_size' must be non-negative value"),
    ] {
        rows.push(Row::new(ensemble(step, more), refusal));
    }
    rows
}

/// The values of controls, for each kind.
pub(super) fn controls() -> Vec<Row> {
    let mut rows = Vec::new();
    let config = |controls: &str| format!("backend: 'identity' {IO} sequence_batching {{ {controls} }}");
    for kind in ["START", "END", "READY"] {
        let control = |values: &str| {
            config(&format!(
                "control_input {{ name: 'C' control {{ kind: CONTROL_SEQUENCE_{kind} {values} }} }}"
            ))
        };
        rows.push(Row::new(control(""), "must specify either 'int32_false_true', 'fp32_false_true' or"));
        rows.push(Row::new(
            control("int32_false_true: [ 0, 1 ] bool_false_true: [ false, true ]"),
            "specifies more than one from",
        ));
        for values in ["int32", "fp32", "bool"] {
            rows.push(Row::new(control(&format!("{values}_false_true: [ 0, 1 ]")), ""));
            rows.push(Row::new(control(&format!("{values}_false_true: 0")), "must have exactly 2 entries"));
        }
        let twice = format!(
            "control_input {{ name: 'A' control {{ kind: CONTROL_SEQUENCE_{kind} int32_false_true: [ 0, 1 ] }} }} \
             control_input {{ name: 'B' control {{ kind: CONTROL_SEQUENCE_{kind} int32_false_true: [ 0, 1 ] }} }}"
        );
        rows.push(Row::new(config(&twice), "specifies multiple CONTROL_SEQUENCE_"));
        rows.push(Row::new(config(&twice.replace("'B'", "'A'")), "is specified for multiple control kinds"));
    }
    for datatype in ["UINT64", "INT64", "UINT32", "INT32", "STRING"] {
        let control = format!(
            "control_input {{ name: 'C' control {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_{datatype} }} }}"
        );
        rows.push(Row::new(config(&control), ""));
    }
    for datatype in ["FP32", "BOOL", "INT8", "UINT16", "BF16", "INVALID"] {
        let control = format!(
            "control_input {{ name: 'C' control {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_{datatype} }} }}"
        );
        rows.push(Row::new(config(&control), "unexpected data type for control CONTROL_SEQUENCE_CORRID"));
    }
    let corrid = "control_input { name: 'C' control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 int32_false_true: [ 0, 1 ] } }";
    rows.push(Row::new(config(corrid), "must not specify either"));
    rows
}
