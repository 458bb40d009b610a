//! Backends that reschedule a request: which requests share an execution, and which responses each gets.
use std::thread;

use serde_json::{Value, json};
use testing::plugins::Kind;

use crate::plugins::place::{Place, Running, ints, parameters};

const STRATEGIES: [&str; 2] = ["direct { }", "oldest { max_candidate_sequences: 4 }"];

/// The number of requests that must share an execution so that it counts, and the number of such executions that each
/// request needs.
const TOGETHER: usize = 3;
const COUNTED: i32 = 4;

/// A model of the iterating backend. It reschedules requests until enough requests share executions.
fn iterating(strategy: &str, decoupled: bool) -> String {
    let answers = if decoupled { "each" } else { "last" };
    let parameters = parameters(&[("together", &TOGETHER.to_string()), ("answers", answers)]);
    format!(
        "backend: 'iterate' max_batch_size: 4
         input [ {{ name: 'IN' data_type: TYPE_INT32 dims: [ 1 ] }} ]
         output [ {{ name: 'SEEN' data_type: TYPE_INT32 dims: [ 3 ] }} ]
         instance_group [ {{ kind: KIND_CPU }} ]
         model_transaction_policy {{ decoupled: {decoupled} }}
         sequence_batching {{
           iterative_sequence: true
           {strategy}
           control_input [
             {{ name: 'START' control [ {{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }} ] }},
             {{ name: 'READY' control [ {{ kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] }} ] }}
           ]
           state [ {{
             input_name: 'seen_in' output_name: 'seen_out' data_type: TYPE_INT32 dims: [ 3 ]
             initial_state {{ data_type: TYPE_INT32 dims: [ 3 ] zero_data: true name: 'nothing' }}
           }} ]
         }}
         {parameters}"
    )
}

fn place() -> Place {
    Place::with(&[(Kind::Backend, "iterate")])
        .model("direct", &iterating(STRATEGIES[0], false))
        .model("oldest", &iterating(STRATEGIES[1], false))
        .model("direct_decoupled", &iterating(STRATEGIES[0], true))
        .model("oldest_decoupled", &iterating(STRATEGIES[1], true))
}

/// The results of several clients that send requests at about the same time.
fn ask_together<T: Send>(count: usize, ask: impl Fn() -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..count).map(|_| scope.spawn(&ask)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

/// From the response to a request: the number of its executions, of those that counted, and of those with START.
fn seen(elements: &Value) -> [i64; 3] {
    let elements: Vec<_> =
        elements.as_array().unwrap().iter().map(|element| element.as_i64().unwrap()).collect();
    elements.try_into().unwrap()
}

/// No request ends before `TOGETHER` requests share executions. The last request never runs alone.
fn check(model: &str, answers: &[[i64; 3]]) {
    let fewest = answers.iter().map(|[executions, ..]| *executions).min();
    assert_eq!(fewest, Some(COUNTED.into()), "{model}: {answers:?}");
    for [executions, counted, starts] in answers {
        assert!(executions >= counted, "{model}: {answers:?}");
        assert_eq!((*counted, *starts), (COUNTED.into(), 1), "{model}: {answers:?}");
    }
}

#[test]
fn requests_join_one_that_iterates_and_each_is_answered_once_at_its_end() {
    let place = place();
    let running = place.serve(&[]);
    for model in ["direct", "oldest"] {
        let answers = ask_together(TOGETHER, || {
            let (status, answer) = running.infer(model, &ints("IN", &[COUNTED]));
            assert_eq!(status, 200, "{answer}");
            seen(&answer["outputs"][0]["data"])
        });
        check(model, &answers);
        let statistics = running.statistics(model);
        assert_eq!(statistics["inference_stats"]["success"]["count"], TOGETHER, "{statistics}");
    }
    running.stop();
}

#[test]
fn requests_join_one_that_iterates_and_each_is_answered_after_every_execution_that_counts() {
    let place = place();
    let running = place.serve(&[]);
    for model in ["direct_decoupled", "oldest_decoupled"] {
        let answers = ask_together(TOGETHER, || stream_of(&running, model));
        for responses in &answers {
            let counted: Vec<_> = responses.iter().map(|[_, counted, _]| *counted).collect();
            assert_eq!(counted, (1..=i64::from(COUNTED)).collect::<Vec<_>>(), "{model}: {responses:?}");
        }
        let last: Vec<_> = answers.iter().map(|responses| *responses.last().unwrap()).collect();
        check(model, &last);
    }
    running.stop();
}

/// The values in the responses to one request.
fn stream_of(running: &Running, model: &str) -> Vec<[i64; 3]> {
    let body = serde_json::to_vec(&json!({"IN": [COUNTED]})).unwrap();
    let path = format!("/v2/models/{model}/generate_stream");
    let response = running.connect().ask("POST", &path, &[], &body).unwrap();
    let text = String::from_utf8(response.body.to_vec()).unwrap();
    assert_eq!(response.status, 200, "{text}");
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    events.map(|event| seen(&serde_json::from_str::<Value>(event).unwrap()["SEEN"])).collect()
}
