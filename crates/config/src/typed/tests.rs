//! Tests of the conversion of sequences, warm-up and instance groups.
use std::time::Duration;

use scheduling::{OldestStrategy, SequenceStrategy};

use super::{
    super::{
        FlagValues, InstanceGroup, InstanceKind, ResourceNeed, SecondaryDevice, SequenceControl,
        SequenceScheduling, WarmupData,
        complete::{CompletionContext, complete_instance_groups, normalise},
    },
    *,
};

/// The typed form of a model `m` with its warnings, or the problems.
fn converted(text: &str) -> Result<(ModelConfig, Vec<String>), ConfigErrors> {
    let mut config =
        proto::text::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}\n{error}")).config;
    "m".clone_into(&mut config.name);
    normalise(&mut config);
    complete_instance_groups(&mut config, &CompletionContext::default());
    typed(&config)
}

fn sequence(text: &str) -> SequenceScheduling {
    let config = converted(text).unwrap().0;
    let Scheduling::Sequence(scheduling) = config.scheduling else { panic!("{:?}", config.scheduling) };
    scheduling
}

#[test]
fn a_sequence_batcher_without_settings_is_direct_with_the_default_idle_time() {
    let scheduling = sequence("sequence_batching {}");
    assert_eq!(scheduling.batching, scheduling::SequenceBatching::default());
    assert!(scheduling.controls.is_empty() && scheduling.states.is_empty());
}

#[test]
fn the_direct_strategy_keeps_its_settings() {
    let text =
        "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 5 iterative_sequence: true
                direct { max_queue_delay_microseconds: 7 minimum_slot_utilization: 0.5 } }";
    let batching = sequence(text).batching;
    let SequenceStrategy::Direct(direct) = batching.strategy else { panic!("{batching:?}") };
    assert_eq!((direct.max_queue_delay, direct.minimum_slot_utilization), (Duration::from_micros(7), 0.5));
    assert_eq!((batching.max_batch_size, batching.iterative), (4, true));
    assert_eq!(batching.max_sequence_idle, Duration::from_micros(5));
    assert_eq!((batching.hold_until_queued, batching.hold_until_backlogged), (0, 0));
}

#[test]
fn the_oldest_strategy_keeps_its_settings() {
    let text = "max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 16
                preferred_batch_size: [ 4, 2 ] max_queue_delay_microseconds: 7 preserve_ordering: true } }";
    let oldest = OldestStrategy {
        max_candidate_sequences: 16,
        preferred_batch_sizes: [2, 4].into(),
        max_queue_delay: Duration::from_micros(7),
        preserve_ordering: true,
    };
    assert_eq!(sequence(text).batching.strategy, SequenceStrategy::Oldest(oldest));
    let few = sequence("sequence_batching { oldest { max_candidate_sequences: -3 } }").batching.strategy;
    assert_eq!(few, SequenceStrategy::Oldest(OldestStrategy::default()), "a negative number is none");
}

#[test]
fn controls_have_a_name_a_kind_and_values() {
    let text = "sequence_batching {
        control_input { name: 'S' control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
        control_input { name: 'E' control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ -1, 1 ] } }
        control_input { name: 'R' control { kind: CONTROL_SEQUENCE_READY bool_false_true: [ true, false ] } }
        control_input { name: 'C' control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
        control_input { name: 'nothing' } }";
    let controls: Vec<_> =
        sequence(text).controls.into_iter().map(|input| (input.name.to_string(), input.control)).collect();
    assert_eq!(
        controls,
        [
            ("S".to_owned(), SequenceControl::Start(FlagValues::Int32([0, 1]))),
            ("E".to_owned(), SequenceControl::End(FlagValues::Fp32([-1.0, 1.0]))),
            ("R".to_owned(), SequenceControl::Ready(FlagValues::Bool([true, false]))),
            ("C".to_owned(), SequenceControl::CorrelationId(DataType::Bytes)),
        ]
    );
}

#[test]
fn states_are_pairs_that_may_begin_with_something() {
    let text = "sequence_batching {
        state { input_name: 'a' output_name: 'z' data_type: TYPE_FP32 dims: [ -1, 0 ] }
        state { input_name: 'b' output_name: 'y' data_type: TYPE_STRING dims: -1
                initial_state { name: 'i' data_type: TYPE_STRING dims: 3 data_file: 'f' } }
        state { input_name: 'c' output_name: 'x' data_type: TYPE_INT8 dims: 2
                initial_state { name: 'i' data_type: TYPE_INT8 dims: 2 zero_data: false } } }";
    let states = sequence(text).states;
    let pairs: Vec<_> =
        states.iter().map(|state| (state.input_name.as_str(), state.output_name.as_str())).collect();
    assert_eq!(pairs, [("a", "z"), ("b", "y"), ("c", "x")]);
    assert_eq!((states[0].datatype, &states[0].dims[..]), (DataType::Fp32, &[-1, 0][..]));
    assert!(states[0].initial.is_none());
    let from_file = states[1].initial.as_ref().unwrap();
    assert_eq!((&from_file.dims[..], from_file.file.as_deref()), (&[3][..], Some("f")));
    let zeros = states[2].initial.as_ref().unwrap();
    assert_eq!((&zeros.dims[..], zeros.file.as_deref()), (&[2][..], None));
}

#[test]
fn a_state_that_repeats_a_name_is_ignored_with_a_warning() {
    let state = |input: &str, output: &str| {
        format!("state {{ input_name: '{input}' output_name: '{output}' data_type: TYPE_FP32 dims: 1 }}")
    };
    let all = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")].map(|(input, output)| state(input, output));
    let (config, warnings) = converted(&format!("sequence_batching {{ {} }}", all.concat())).unwrap();
    let Scheduling::Sequence(scheduling) = config.scheduling else { panic!("{:?}", config.scheduling) };
    let kept: Vec<_> = scheduling.states.iter().map(|state| state.input_name.as_str()).collect();
    assert_eq!(kept, ["a", "b"]);
    assert_eq!(
        warnings,
        [
            "model 'm': ignore state 1, input 'a' and output 'y': its 'input_name' is that of a state before it",
            "model 'm': ignore state 2, input 'b' and output 'x': its 'output_name' is that of a state before it",
        ]
    );
}

#[test]
fn states_that_cannot_be_made_are_refused() {
    let given = "input_name: 's' output_name: 't' data_type: TYPE_FP32";
    for (state, wanted) in [
        (
            "dims: 1 output_name: 't' data_type: TYPE_FP32".to_owned(),
            "input_name' of model 'm' must be given",
        ),
        (
            "dims: 1 input_name: 's' data_type: TYPE_FP32".to_owned(),
            "output_name' of model 'm' must be given",
        ),
        ("dims: 1 input_name: 's' output_name: 't'".to_owned(), "data_type' of model 'm' must be given"),
        (given.to_owned(), "dims' of model 'm' must be given for a model without a batch dimension"),
        (
            format!("{given} dims: -2"),
            "dims' of model 'm' must not be negative, except -1 for a variable-size dimension",
        ),
        (
            format!("{given} dims: [ 2305843009213693952, -1 ]"),
            "dims' of model 'm' has more elements than fit in memory",
        ),
        (
            format!("{given} dims: -1 initial_state {{ dims: [ 4294967296, 4294967296 ] }}"),
            "initial_state.dims' of model 'm' has more elements than fit in memory",
        ),
    ] {
        let error = converted(&format!("sequence_batching {{ state {{ {state} }} }}")).unwrap_err();
        assert_eq!(error.to_string(), format!("'sequence_batching.state[0].{wanted}"), "{state}");
    }
    let scalar = format!("max_batch_size: 1 sequence_batching {{ state {{ {given} }} }}");
    assert!(sequence(&scalar).states[0].dims.is_empty());
}

#[test]
fn warmup_samples_are_taken_over_in_order() {
    let text = "max_batch_size: 4
        model_warmup { name: 'first' batch_size: 2 count: 3
          inputs { key: 'z' value { data_type: TYPE_FP16 dims: [ 2, 3 ] zero_data: false } }
          inputs { key: 'r' value { data_type: TYPE_INT64 dims: 0 random_data: true } }
          inputs { key: 's' value { data_type: TYPE_STRING dims: 1 random_data: true } }
          inputs { key: 'f' value { data_type: TYPE_BOOL dims: 1 input_data_file: 'x.bin' } } }
        model_warmup { name: 'skipped' inputs { key: 'x' value { dims: -1 } } }";
    let warmups = converted(text).unwrap().0.warmups;
    let samples: Vec<_> = warmups
        .iter()
        .map(|warmup| (warmup.name.as_str(), warmup.batch_size, warmup.count.get(), warmup.inputs.len()))
        .collect();
    assert_eq!(samples, [("first", 2, 3, 4), ("skipped", 0, 1, 0)]);
    let inputs: Vec<_> = warmups[0]
        .inputs
        .iter()
        .map(|input| (input.name.as_str(), input.datatype, &input.dims[..], input.data.clone()))
        .collect();
    assert_eq!(
        inputs,
        [
            ("f", DataType::Bool, &[1][..], WarmupData::File("x.bin".to_owned())),
            ("r", DataType::Int64, &[0][..], WarmupData::Random),
            ("s", DataType::Bytes, &[1][..], WarmupData::Zero),
            ("z", DataType::Fp16, &[2, 3][..], WarmupData::Zero),
        ]
    );
}

#[test]
fn warmup_inputs_that_cannot_be_made_are_refused() {
    for (name, input, wanted) in [
        ("x", "dims: 1", "inputs.x.data_type' of model 'm' must be given"),
        (
            "x",
            "data_type: TYPE_FP32 dims: -2",
            "inputs.x.dims' of model 'm' must not be negative, except -1 for a variable-size dimension",
        ),
        (
            "x",
            "data_type: TYPE_STRING dims: 4611686018427387904",
            "inputs.x.dims' of model 'm' has more elements than fit in memory",
        ),
        ("", "data_type: TYPE_FP32", "inputs' of model 'm' must be given"),
        ("a\\0b", "data_type: TYPE_FP32", "inputs' of model 'm' contains a NUL character"),
    ] {
        let text = format!(
            "model_warmup {{ batch_size: 1 inputs {{ key: '{name}' value {{ {input} zero_data: true }} }} }}"
        );
        let error = converted(&text).unwrap_err();
        assert_eq!(error.to_string(), format!("'model_warmup[0].{wanted}"), "{text}");
    }
}

#[test]
fn a_plain_instance_group_has_its_defaults() {
    let groups = converted("backend: 'python' instance_group {} instance_group { kind: KIND_MODEL }")
        .unwrap()
        .0
        .instance_groups;
    let plain = InstanceGroup {
        name: "m_0".into(),
        kind: InstanceKind::Cpu,
        count: std::num::NonZeroUsize::MIN,
        passive: false,
        host_policy: "cpu".into(),
        profiles: Vec::new(),
        secondary_devices: Vec::new(),
        rate_limiter: super::super::RateLimits::default(),
    };
    let of_the_model = InstanceGroup {
        name: "m_1".into(),
        kind: InstanceKind::Model,
        host_policy: "model".into(),
        ..plain.clone()
    };
    assert_eq!(groups, [plain, of_the_model]);
}

#[test]
fn an_instance_group_keeps_what_it_says() {
    let text = "instance_group { passive: true host_policy: 'p' profile: [ '0', '1' ]
        secondary_devices { kind: KIND_NVDLA device_id: 3 }
        rate_limiter { priority: 2 resources { name: 'r' count: 4 } resources { name: 'g' global: true count: 1 } } }
        instance_group { rate_limiter { resources { name: 'r' } } }";
    let groups = converted(text).unwrap().0.instance_groups;
    let group = &groups[0];
    assert_eq!((group.passive, group.host_policy.as_str()), (true, "p"));
    assert_eq!(group.profiles, ["0", "1"]);
    assert_eq!(group.secondary_devices, [SecondaryDevice { kind: "KIND_NVDLA".into(), device_id: 3 }]);
    assert_eq!(group.rate_limiter.priority.get(), 2);
    assert_eq!(
        group.rate_limiter.resources,
        [
            ResourceNeed { name: "r".into(), global: false, count: 4 },
            ResourceNeed { name: "g".into(), global: true, count: 1 },
        ]
    );
    assert_eq!(groups[1].rate_limiter.priority.get(), 1, "0 is the first priority");
}

#[test]
fn a_metric_tag_must_be_able_to_be_the_name_of_a_label() {
    let tags = converted("metric_tags { key: 'team_1' value: 'a \"b\"' }").unwrap().0.metric_tags;
    assert_eq!(tags.get("_team_1").map(String::as_str), Some("a \"b\""));
    for key in ["a b", "é", "", "_a", "a-b", "a{"] {
        let errors = converted(&format!("metric_tags {{ key: '{key}' value: 'x' }}")).unwrap_err();
        let expected = format!("'metric_tags' of model 'm' has the key '{key}', but ");
        assert!(errors.to_string().starts_with(&expected), "{errors}");
    }
}
