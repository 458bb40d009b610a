//! The responses of backends: immediate, late, from other threads, several for a request, and from the state of a
//! sequence.
use serde_json::{Value, json};
use testing::{eventually, grpc, plugins::Kind};
use tokio::runtime::Runtime;

use crate::plugins::place::{Place, Running, STREAM, copying, ints, parameters, question, repeating, stream};

#[test]
fn a_request_may_be_released_before_or_after_its_answer_and_from_another_thread() {
    let mut place = Place::with(&[(Kind::Backend, "identity")]);
    let ways: [(&str, &[(&str, &str)]); 4] = [
        ("plain", &[]),
        ("before", &[("release", "before")]),
        ("thread", &[("thread", "true")]),
        ("both", &[("release", "before"), ("thread", "true")]),
    ];
    for (name, pairs) in ways {
        place = place.model(name, &copying("identity", &parameters(pairs)));
    }
    let running = place.serve(&[]);
    for (name, _) in ways {
        for values in [&[1, 2, 3][..], &[7]] {
            let (status, answer) = running.infer(name, &ints("INPUT0", values));
            assert_eq!((status, &answer["outputs"][0]["data"]), (200, &json!(values)), "{name}: {answer}");
        }
        assert_eq!(running.statistics(name)["inference_stats"]["success"]["count"], 2, "{name}");
    }
    running.stop();
}

#[test]
fn what_a_library_does_not_write_of_an_output_is_zero() {
    let place = Place::with(&[(Kind::Backend, "identity")])
        .model("whole", &copying("identity", &parameters(&[])))
        .model("half", &copying("identity", &parameters(&[("half", "true")])));
    let running = place.serve(&[]);
    for len in [2, 64, 3_000] {
        let (values, mut expected) = (vec![7; len], vec![7; len / 2]);
        expected.resize(len, 0);
        for _ in 0..8 {
            // The response leaves freed memory behind. The next responses reuse that memory.
            assert_eq!(running.infer("whole", &ints("INPUT0", &values)).0, 200);
            let (status, answer) = running.infer("half", &ints("INPUT0", &values));
            assert_eq!((status, &answer["outputs"][0]["data"]), (200, &json!(expected)));
        }
    }
    running.stop();
}

#[test]
fn an_input_is_handed_over_in_pieces_and_the_answer_may_say_more_than_its_outputs() {
    let place = Place::with(&[(Kind::Backend, "identity")]);
    let running = place.model("m", &copying("identity", &parameters(&[("pieces", "true")]))).serve(&[]);
    let (status, answer) = running.infer("m", &ints("INPUT0", &[1]));
    assert_eq!((status, &answer["parameters"]["pieces"]), (200, &json!(1)), "{answer}");
    running.stop();
}

#[test]
fn a_backend_that_wants_it_is_executed_on_the_threads_of_its_instances_alone() {
    let place = Place::with(&[(Kind::Backend, "identity")]);
    let place = place.model("m", &copying("identity", &parameters(&[("pieces", "true")])));
    let running = place.serve(&["--backend-config=identity,own-thread=true"]);
    // Executions as short as these would soon run on network threads, at least in a release build.
    for _ in 0..40 {
        assert_eq!(running.infer("m", &ints("INPUT0", &[1])).1["parameters"]["thread"], "m_0_0");
    }
    running.stop();
}

#[test]
fn times_that_a_backend_reports_are_those_that_are_counted() {
    let place = Place::with(&[(Kind::Backend, "identity")]);
    let running =
        place.model("m", &copying("identity", &parameters(&[("own_statistics", "fixed")]))).serve(&[]);
    assert_eq!(running.infer("m", &ints("INPUT0", &[1])).0, 200);
    let times =
        |of: &Value| ["compute_input", "compute_infer", "compute_output"].map(|time| of[time]["ns"].clone());
    let expected = [1_000_000, 2_000_000, 3_000_000].map(|ns| json!(ns));
    let statistics = running.statistics("m");
    assert_eq!(times(&statistics["inference_stats"]), expected, "{statistics}");
    // The backend reports its batch when its requests have responses.
    eventually("the report of the batch", || times(&running.statistics("m")["batch_stats"][0]) == expected);
    running.stop();
}

#[test]
fn a_decoupled_model_sends_any_number_of_responses() {
    let place = Place::with(&[(Kind::Backend, "repeat")])
        .model("flags", &repeating(""))
        .model("last", &repeating(&parameters(&[("final", "last")])));
    let running = place.serve(&[]);
    for model in ["flags", "last"] {
        let responses = stream(&running, model, &[5, 6, 7]);
        assert_eq!(responses.len(), 3, "{model}: {responses:?}");
    }
    running.stop();
}

/// The backend continues until it learns that the request is cancelled. The server does not exit before.
#[test]
fn a_backend_is_told_that_a_request_is_cancelled() {
    let place = Place::with(&[(Kind::Backend, "repeat")])
        .model("m", &repeating(&parameters(&[("until_cancelled", "true")])));
    let running = place.serve(&["--exit-timeout-secs=20"]);
    let runtime = Runtime::new().unwrap();
    runtime
        .block_on(async {
            let connection = grpc::Connection::open(running.grpc).await?;
            let mut call = connection.call(STREAM, &[]).await?;
            call.send(question("m", &[5]));
            call.next().await
        })
        .unwrap();
    running.stop();
}

const STATEFUL: &str = "
    backend: 'stateful' max_batch_size: 1
    input [ { name: 'INPUT' data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: 'OUTPUT' data_type: TYPE_INT32 dims: [ 1 ] }, { name: 'SEEN' data_type: TYPE_STRING dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU } ]
    sequence_batching {
      direct { }
      control_input [
        { name: 'START' control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
        { name: 'END' control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } ] },
        { name: 'READY' control [ { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } ] },
        { name: 'CORRID' control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
      ]
      state [ {
        input_name: 'sum_in' output_name: 'sum_out' data_type: TYPE_INT32 dims: [ 1 ]
        initial_state { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true name: 'zero' }
      } ]
    }";

/// One step of a sequence, which begins or ends: the sum, and what the backend has seen besides.
fn step(running: &Running, model: &str, id: u64, value: i32, [start, end]: [bool; 2]) -> (i64, Value) {
    let (status, answer) = running.infer(model, &step_of(id, value, [start, end]));
    assert_eq!(status, 200, "{answer}");
    let outputs = answer["outputs"].as_array().unwrap();
    let data = |name: &str| outputs.iter().find(|output| output["name"] == name).unwrap()["data"][0].clone();
    let seen: Value = serde_json::from_str(data("SEEN").as_str().unwrap()).unwrap();
    (data("OUTPUT").as_i64().unwrap(), seen)
}

fn step_of(id: u64, value: i32, [start, end]: [bool; 2]) -> Value {
    let mut request = ints("INPUT", &[value]);
    request["parameters"] = json!({"sequence_id": id, "sequence_start": start, "sequence_end": end});
    request
}

/// The same with these settings in its only state.
fn with_state(settings: &str) -> String {
    STATEFUL.replace("input_name: 'sum_in'", &format!("input_name: 'sum_in' {settings}"))
}

#[test]
fn a_state_with_one_buffer_is_written_where_its_input_lies() {
    let in_place = with_state("use_same_buffer_for_input_output: true");
    let never_updates = format!("{in_place} {}", parameters(&[("update", "never")]));
    let place = Place::with(&[(Kind::Backend, "stateful")])
        .model("one", &in_place)
        .model("one_never", &never_updates)
        .model("two_never", &format!("{STATEFUL} {}", parameters(&[("update", "never")])));
    let running = place.serve(&[]);
    for (model, sums, is_in_place) in
        [("one", [1, 11, 111], true), ("one_never", [1, 11, 111], true), ("two_never", [1, 10, 100], false)]
    {
        for sequence in [42, 43] {
            for ((value, ends), sum) in
                [(1, [true, false]), (10, [false, false]), (100, [false, true])].into_iter().zip(sums)
            {
                let (got, seen) = step(&running, model, sequence, value, ends);
                assert_eq!((got, &seen["in_place"]), (sum, &json!(is_in_place)), "{model}: {seen}");
            }
        }
    }
    running.stop();
}

#[test]
fn growable_memory_is_refused_when_a_sequence_begins_and_not_at_load() {
    let one = with_state("use_growable_memory: true");
    let both = with_state("use_growable_memory: true use_same_buffer_for_input_output: true");
    let other = "state [ {
        input_name: 'other_in' output_name: 'other_out' data_type: TYPE_INT32 dims: [ 1 ] use_growable_memory: true }, {";
    let place = Place::with(&[(Kind::Backend, "stateful")])
        .model("one", &one)
        .model("both", &both)
        .model("other", &STATEFUL.replace("state [ {", other));
    let running = place.serve(&[]);
    for (model, reason) in [
        (
            "one",
            "In order to 'use_growable_memory', you must also enable 'use_single_buffer' for state input name 'sum_in'.",
        ),
        (
            "both",
            "'use_growable_memory' can only work with KIND_GPU model instances right now. Please either change the \
             instance type to KIND_GPU or set 'use_growable_memory' to false for state input 'sum_in'.",
        ),
    ] {
        let (status, answer) = running.infer(model, &step_of(1, 1, [true, true]));
        assert_eq!(
            (status, &answer["error"]),
            (400, &json!("[request id: <id_unknown>] unknown request input name sum_in")),
            "{model}"
        );
        running.program.wait_for_complaint(&format!("Failed to initialize sequence state: {reason}"));
    }
    assert_eq!(step(&running, "other", 1, 7, [true, true]).0, 7, "the other state is remembered");
    running.stop();
}

#[test]
fn a_sequence_remembers_what_a_backend_stores_and_brings_its_controls() {
    let place = Place::with(&[(Kind::Backend, "stateful")]).model("m", STATEFUL);
    let running = place.serve(&[]);
    let step = |id: u64, value: i32, start: bool, end: bool| step(&running, "m", id, value, [start, end]);
    let (sum, seen) = step(42, 1, true, false);
    assert_eq!(sum, 1);
    let controls = json!({"flags": 1, "correlation_id": 42, "START": 1, "END": 0, "READY": true, "CORRID": 42,
               "in_place": false});
    assert_eq!(seen, controls);
    assert_eq!(step(42, 10, false, false).0, 11);
    let (sum, seen) = step(42, 100, false, true);
    assert_eq!((sum, &seen["END"], &seen["flags"]), (111, &json!(1), &json!(2)), "{seen}");
    assert_eq!(step(43, 5, true, true).0, 5, "a new sequence begins anew");
    running.stop();
}
