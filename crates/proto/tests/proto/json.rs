//! Tests of the JSON form: golden lines, and the sources that the reader accepts and refuses.

use std::path::Path;

use proto::json::{parse, to_json};
use proto::{ModelConfig, text};

fn from_text(source: &str) -> ModelConfig {
    text::parse(source.as_bytes()).unwrap_or_else(|error| panic!("{source}\n{error}")).config
}

const GOLDEN: &str = r#"{"name":"mini","platform":"","backend":"python","runtime":"","version_policy":{"latest":{"num_versions":1}},"max_batch_size":0,"input":[{"name":"IN","data_type":"TYPE_FP32","format":"FORMAT_NONE","dims":[1],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,"is_non_linear_format_io":false}],"output":[{"name":"OUT","data_type":"TYPE_FP32","dims":[1],"label_filename":"","is_shape_tensor":false,"is_non_linear_format_io":false}],"batch_input":[],"batch_output":[],"optimization":{"priority":"PRIORITY_DEFAULT","input_pinned_memory":{"enable":true},"output_pinned_memory":{"enable":true},"gather_kernel_buffer_threshold":0,"eager_batching":false},"instance_group":[{"name":"mini","kind":"KIND_CPU","count":1,"gpus":[],"secondary_devices":[],"profile":[],"passive":false,"host_policy":""}],"default_model_filename":"model.py","cc_model_filenames":{},"metric_tags":{},"parameters":{},"model_warmup":[]}"#;

/// The line that a running server returned for this model, with the fields that the server filled in.
#[test]
fn a_completed_configuration_is_the_golden_line_byte_for_byte() {
    let config = from_text(
        "name: 'mini' backend: 'python' default_model_filename: 'model.py'
         version_policy { latest { num_versions: 1 } }
         input { name: 'IN' data_type: TYPE_FP32 dims: 1 }
         output { name: 'OUT' data_type: TYPE_FP32 dims: 1 }
         optimization { input_pinned_memory { enable: true } output_pinned_memory { enable: true } }
         instance_group { name: 'mini' kind: KIND_CPU count: 1 }",
    );
    assert_eq!(to_json(&config), GOLDEN);
}

#[test]
fn keys_may_stand_without_quotation_marks() {
    let read = |source: &str| parse(source).map(|parsed| parsed.config);
    let quoted =
        r#"{"name": "m: n", "sequence_batching": {"direct": {}, "max_sequence_idle_microseconds": 5}}"#;
    let bare = r#"{name: "m: n", sequence_batching : {direct: {}, "max_sequence_idle_microseconds": 5}}"#;
    assert_eq!(read(bare).unwrap(), read(quoted).unwrap());
    assert!(read("{name: m}").unwrap_err().to_string().contains("invalid JSON"));
}

#[test]
fn single_quotes_and_lists_in_lists_are_refused() {
    for source in ["{'name': 'm'}", r#"{"name": 'm'}"#, r#"{"input": [{"name": "x", "dims": [[1], [2]]}]}"#] {
        assert!(parse(source).is_err(), "{source}");
    }
}

#[test]
fn members_stand_in_the_order_that_clients_know() {
    let rows = [
        (
            "sequence_batching { iterative_sequence: true state {} control_input {} max_sequence_idle_microseconds: 3 oldest {} }",
            r#""sequence_batching":{"oldest":{"max_candidate_sequences":0,"preferred_batch_size":[],"max_queue_delay_microseconds":0,"preserve_ordering":false},"max_sequence_idle_microseconds":3,"control_input":[{"name":"","control":[]}],"state":[{"input_name":"","#,
        ),
        ("input { reshape {} dims: 1 }", r#""dims":[1],"reshape":{"shape":[]},"is_shape_tensor""#),
        ("output { reshape {} dims: 1 }", r#""dims":[1],"reshape":{"shape":[]},"label_filename""#),
        (
            "instance_group { rate_limiter { priority: 2 } }",
            r#""count":0,"rate_limiter":{"resources":[],"priority":2},"gpus":[]"#,
        ),
        (
            "dynamic_batching {} optimization {}",
            r#""eager_batching":false},"dynamic_batching":{"preferred_batch_size":[],"#,
        ),
        (
            "response_cache {} model_transaction_policy {} model_operations {}",
            r#""model_operations":{"op_library_filename":[]},"model_transaction_policy":{"decoupled":false},"response_cache":{"enable":false}}"#,
        ),
    ];
    for (source, wanted) in rows {
        let json = to_json(&from_text(source));
        assert!(json.contains(wanted), "{source}\n gives {json}\n and not {wanted}");
    }
}

#[test]
fn a_chosen_scalar_stands_behind_everything_else() {
    let json = to_json(&from_text(
        "sequence_batching { state { initial_state { zero_data: false name: 'n' dims: 1 } } }
         model_warmup { inputs { key: 'x' value { input_data_file: 'f' dims: 2 } } }",
    ));
    assert!(
        json.contains(r#"{"data_type":"TYPE_INVALID","dims":["1"],"name":"n","zero_data":false}"#),
        "{json}"
    );
    assert!(
        json.contains(r#""inputs":{"x":{"data_type":"TYPE_INVALID","dims":[2],"input_data_file":"f"}}"#),
        "{json}"
    );
}

#[test]
fn long_integers_are_numbers_but_for_three_fields() {
    let json = to_json(&from_text(
        "version_policy { specific { versions: 9223372036854775807 } }
         dynamic_batching { priority_levels: 18446744073709551615 priority_queue_policy { key: 1 } }
         input { dims: -1 reshape { shape: 7 } }
         instance_group { secondary_devices { device_id: 5 } }
         optimization { cuda { graph_spec { input { key: 'x' value { dim: [ 1, 2 ] } }
           graph_lower_bound { input { key: 'x' value { dim: 3 } } } } } }",
    ));
    for wanted in [
        r#""versions":[9223372036854775807]"#,
        r#""priority_levels":18446744073709551615"#,
        r#""priority_queue_policy":{"1":{"timeout_action":"REJECT""#,
        r#""dims":[-1],"reshape":{"shape":[7]}"#,
        r#""secondary_devices":[{"kind":"KIND_NVDLA","device_id":"5"}]"#,
        r#""input":{"x":{"dim":["1","2"]}},"graph_lower_bound":{"batch_size":0,"input":{"x":{"dim":["3"]}}}"#,
    ] {
        assert!(json.contains(wanted), "{wanted} is not in {json}");
    }
}

#[test]
fn floats_are_short() {
    let json = to_json(&from_text(
        "sequence_batching { direct { minimum_slot_utilization: 0.1 } control_input { control {
           fp32_false_true: [ 0, 1, 0.5, -2.25 ] } } }
         model_metrics { metric_control { histogram_options { buckets: [ 0.1, 100, 1e300, 1e-9, -0.0, inf ] } } }",
    ));
    assert!(json.contains(r#""minimum_slot_utilization":0.1}"#), "{json}");
    assert!(json.contains(r#""fp32_false_true":[0,1,0.5,-2.25]"#), "{json}");
    assert!(json.contains(r#""buckets":[0.1,100,1e300,1e-9,-0,"Infinity"]"#), "{json}");
}

#[test]
fn an_enumeration_without_a_name_is_its_number() {
    assert!(to_json(&from_text("input { data_type: 99 }")).contains(r#""data_type":99"#));
}

#[test]
fn texts_are_escaped() {
    let json = to_json(&from_text(r#"name: "a\"\\\n\x01é<""#));
    assert!(json.starts_with(r#"{"name":"a\"\\\n\u0001é<","#), "{json}");
}

#[test]
fn every_sample_is_unchanged_after_json() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let source = std::fs::read(&path).unwrap();
        let config = text::parse(&source).unwrap_or_else(|error| panic!("{}", error.in_file(&path))).config;
        let json = to_json(&config);
        let _is_json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let read = parse(&json).unwrap_or_else(|error| panic!("{}: {error}", path.display())).config;
        assert_eq!(read, config, "{}", path.display());
        assert_eq!(to_json(&read), json);
        seen += 1;
    }
    assert!(seen >= 8);
}

#[test]
fn every_notation_that_is_accepted_means_what_its_text_means() {
    let rows = [
        ("{}", ""),
        (r#"{"name":"a","max_batch_size":4}"#, "name: 'a' max_batch_size: 4"),
        (r#"{"maxBatchSize":4}"#, "max_batch_size: 4"),
        (r#"{"max_batch_size":"4"}"#, "max_batch_size: 4"),
        (r#"{"max_batch_size":4.0}"#, "max_batch_size: 4"),
        (r#"{"name":null,"input":null,"dynamic_batching":null}"#, ""),
        (r#"{"dynamic_batching":null,"sequence_batching":{}}"#, "sequence_batching {}"),
        (
            r#"{"input":[{"data_type":"type_fp32"},{"dataType":11}]}"#,
            "input { data_type: TYPE_FP32 } input { data_type: 11 }",
        ),
        (r#"{"input":[{"dims":["1",2,-1]}]}"#, "input { dims: [ 1, 2, -1 ] }"),
        (r#"{"input":{"dims":"3"}}"#, "input { dims: 3 }"),
        (r#"{"instance_group":{"count":2}}"#, "instance_group { count: 2 }"),
        (
            r#"{"parameters":{"k":{"string_value":"v"}}}"#,
            "parameters { key: 'k' value { string_value: 'v' } }",
        ),
        (
            r#"{"dynamicBatching":{"priorityQueuePolicy":{"2":{}}}}"#,
            "dynamic_batching { priority_queue_policy { key: 2 } }",
        ),
        (
            r#"{"instance_group":[{"secondary_devices":[{"device_id":"5"},{"device_id":6}]}]}"#,
            "instance_group { secondary_devices { device_id: 5 } secondary_devices { device_id: 6 } }",
        ),
        (
            r#"{"sequence_batching":{"direct":{"minimum_slot_utilization":"0.5"}}}"#,
            "sequence_batching { direct { minimum_slot_utilization: 0.5 } }",
        ),
        (
            r#"{"sequence_batching":{"direct":{"minimumSlotUtilization":1}}}"#,
            "sequence_batching { direct { minimum_slot_utilization: 1 } }",
        ),
    ];
    for (source, text) in rows {
        let read = parse(source).unwrap_or_else(|error| panic!("{source}: {error}"));
        assert_eq!(read.config, from_text(text), "{source}");
    }
}

#[test]
fn mistakes_name_their_place() {
    let rows = [
        ("", "invalid JSON: "),
        ("{\"name\":\"a\",}", "invalid JSON: "),
        ("{} {}", "invalid JSON: "),
        ("[]", "expected an object, found a list"),
        (r#"{"naem":"a"}"#, "'naem' is not a field of ModelConfig, did you mean 'name'?"),
        (r#"{"frobnicate":null}"#, "'frobnicate' is not a field of ModelConfig"),
        (
            r#"{"input":[{},{"dim":[1]}]}"#,
            "input[1]: 'dim' is not a field of ModelInput, did you mean 'dims'?",
        ),
        (r#"{"input":[{"dims":[1,"x"]}]}"#, "input[0].dims[1]: expected a 64-bit integer, found 'x'"),
        (r#"{"input":[{"data_type":"FP32"}]}"#, "input[0].data_type: 'FP32' is not a value of DataType"),
        (r#"{"input":[null]}"#, "input[0]: expected an object, found null"),
        (r#"{"input":"x"}"#, "input[0]: expected an object, found 'x'"),
        (r#"{"max_batch_size":1.5}"#, "max_batch_size: expected a 32-bit integer, found 1.5"),
        (r#"{"max_batch_size":2147483648}"#, "max_batch_size: expected a 32-bit integer, found 2147483648"),
        (r#"{"max_batch_size":"+1"}"#, "max_batch_size: expected a 32-bit integer, found '+1'"),
        (
            r#"{"model_warmup":[{"count":-1}]}"#,
            "model_warmup[0].count: expected a 32-bit integer that is not negative, found -1",
        ),
        (r#"{"name":1}"#, "name: expected a string, found 1"),
        (
            r#"{"response_cache":{"enable":"true"}}"#,
            "response_cache.enable: expected true or false, found 'true'",
        ),
        (
            r#"{"dynamic_batching":{},"sequence_batching":{}}"#,
            "'sequence_batching' excludes 'dynamic_batching': only one scheduling choice",
        ),
        (r#"{"name":"a","name":"b"}"#, "'name' is given twice"),
        (r#"{"max_batch_size":1,"maxBatchSize":2}"#, "'max_batch_size' is given twice, in both spellings"),
        (
            r#"{"dynamic_batching":{"priority_queue_policy":{"x":{}}}}"#,
            "dynamic_batching.priority_queue_policy: expected a 64-bit integer",
        ),
        (
            r#"{"sequence_batching":{"direct":{"minimum_slot_utilization":"half"}}}"#,
            "expected a number, found 'half'",
        ),
    ];
    for (source, wanted) in rows {
        let error = parse(source).expect_err(source).to_string();
        assert!(error.contains(wanted), "{source}\n gives {error}\n and not {wanted}");
    }
}

#[test]
fn deep_documents_are_an_error_and_nothing_more() {
    assert!(parse(&"[".repeat(100_000)).is_err());
    assert!(parse(&r#"{"optimization":"#.repeat(100_000)).is_err());
}

#[test]
fn what_the_source_set_is_known() {
    let fields = parse(r#"{"maxBatchSize":0,"input":[{"dims":[]}],"name":null}"#).unwrap().fields;
    assert_eq!(fields.top_level().collect::<Vec<_>>(), ["input", "max_batch_size"]);
    assert!(fields.contains("input[0].dims"));
    assert_eq!(fields.line("input"), None);
}
