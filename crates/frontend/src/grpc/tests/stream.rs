//! Calls of `ModelStreamInfer`.
use kserve::long_write::BRIEF;
use proto::{
    ModelStreamInferResponse, infer_parameter::ParameterChoice,
    model_infer_request::InferRequestedOutputTensor,
};

use super::*;
use crate::grpc::message::decode::tests::decoded_here;

/// The content of a response: its error, id, version, final flag, and its only output.
#[derive(Debug, PartialEq, Eq)]
struct StreamMessage {
    error: String,
    id: String,
    version: String,
    last: Option<bool>,
    output: Option<Bytes>,
}

fn response_of(message: &Bytes) -> StreamMessage {
    let message = ModelStreamInferResponse::decode(message.clone()).unwrap();
    let response = message.infer_response.unwrap();
    let last = response.parameters.get("triton_final_response").map(|parameter| {
        assert_eq!(response.parameters.len(), 1);
        parameter.parameter_choice == Some(ParameterChoice::BoolParam(true))
    });
    StreamMessage {
        error: message.error_message,
        id: response.id,
        version: response.model_version,
        last,
        output: response.raw_output_contents.into_iter().next(),
    }
}

fn answer(id: &str, last: bool, value: i32) -> StreamMessage {
    StreamMessage {
        error: String::new(),
        id: id.to_owned(),
        version: "1".to_owned(),
        last: Some(last),
        output: Some(bytes_of(&[value])),
    }
}

fn refusal(id: &str, error: &str) -> StreamMessage {
    StreamMessage {
        error: error.to_owned(),
        id: id.to_owned(),
        version: String::new(),
        last: None,
        output: None,
    }
}

async fn open(connection: &Connection, headers: &[(&str, &str)]) -> Call {
    timeout(TIMEOUT, connection.call(STREAM, &metadata(headers))).await.unwrap().unwrap()
}

async fn next(call: &mut Call) -> StreamMessage {
    response_of(&timeout(TIMEOUT, call.next()).await.unwrap().unwrap().unwrap())
}

/// Sends all requests, ends the sending side of the call, and returns all responses and the status.
async fn exchange(connection: &Connection, requests: &[ModelInferRequest]) -> (Vec<StreamMessage>, Status) {
    let mut call = open(connection, &[]).await;
    requests.iter().for_each(|request| call.send(sent(request)));
    call.finish();
    let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
    (messages.iter().map(response_of).collect(), status)
}

fn ok() -> Status {
    Status { code: 0, message: String::new() }
}

#[tokio::test]
async fn open_calls_without_requests_take_room_until_they_end() {
    let limits = host::MemoryLimits { inflight_bytes: 10_000, ..host::MemoryLimits::default() };
    let server = Server::start_within(GrpcOptions::default(), limits).await;
    let connection = server.connect().await;
    let [first, mut second] = [open(&connection, &[]).await, open(&connection, &[]).await];
    let (messages, status) = exchange(&connection, &[]).await;
    assert!(messages.is_empty() && status.code == 8, "{status:?}");
    assert!(status.message.starts_with("the server has no room for 4096 more bytes"), "{status:?}");
    let (code, text) = status_of(&connection, INFER, sent(&request("id_int32", "", &[1]))).await;
    assert!(code == 8 && text.starts_with("the server has no room for 4096 more bytes"), "{text}");
    drop(first);
    while server.engine.inflight_bytes().used() > 4096 {
        tokio::task::yield_now().await;
    }
    second.send(sent(&request("id_int32", "a", &[1])));
    assert_eq!(next(&mut second).await, answer("a", true, 1));
    second.finish();
    timeout(TIMEOUT, second.rest()).await.unwrap().unwrap();
    while server.engine.inflight_bytes().used() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(exchange(&connection, &[]).await, (vec![], ok()));
}

#[tokio::test]
async fn an_empty_stream_ends_well() {
    let (_server, connection) = connected().await;
    assert_eq!(exchange(&connection, &[]).await, (vec![], ok()));
}

#[tokio::test]
async fn many_requests_are_answered_in_their_order() {
    let (_server, connection) = connected().await;
    let requests: Vec<_> = (0..500).map(|n| request("id_int32", &n.to_string(), &[n])).collect();
    let expected: Vec<_> = (0..500).map(|n| answer(&n.to_string(), true, n)).collect();
    assert_eq!(exchange(&connection, &requests).await, (expected, ok()));
}

#[tokio::test]
async fn long_decoding_leaves_the_network_thread_and_no_message_overtakes_it() {
    let (_server, connection) = connected().await;
    let values = vec![1; 2 * BRIEF];
    let mut requests = Vec::new();
    let mut expected = Vec::new();
    for n in 0..10 {
        let (long, brief) = (format!("long {n}"), format!("brief {n}"));
        requests.extend([typed(request("id_int32", &long, &values)), request("id_int32", &brief, &[n])]);
        expected.extend([
            StreamMessage { output: Some(bytes_of(&values)), ..answer(&long, true, 0) },
            answer(&brief, true, n),
        ]);
    }
    requests.push(typed(request("none", "unknown", &values)));
    expected.push(refusal("unknown", "Request for unknown model: 'none' is not found"));
    let before = decoded_here();
    let (messages, status) = exchange(&connection, &requests).await;
    assert!(messages == expected, "{:?}", messages.iter().map(|said| &said.id).collect::<Vec<_>>());
    assert_eq!((status, decoded_here() - before), (ok(), 10));
}

#[tokio::test]
async fn a_long_message_that_is_none_ends_the_stream() {
    let (_server, connection) = connected().await;
    let mut message = typed(request("id_int32", "", &vec![1; 2 * BRIEF])).encode_to_vec();
    message.push(0xff);
    let status = status_of(&connection, STREAM, framed(&message)).await;
    assert_eq!(status, expect(13, "Unable to parse request"));
}

#[tokio::test]
async fn of_several_responses_of_a_model_that_is_not_decoupled_the_first_is_forwarded() {
    let (_server, connection) = connected().await;
    let mut requests: Vec<_> =
        (1..50).map(|count| request("repeat_and_fail", &count.to_string(), &[count])).collect();
    requests.push(request("id_int32", "last", &[7]));
    let mut expected: Vec<_> = (1..50).map(|count| answer(&count.to_string(), false, 0)).collect();
    expected.push(answer("last", true, 7));
    assert_eq!(exchange(&connection, &requests).await, (expected, ok()));
    // An error is dropped only after a response.
    let (messages, status) = exchange(&connection, &[request("repeat_and_fail", "none", &[0])]).await;
    assert_eq!(
        (messages, status),
        (vec![StreamMessage { last: Some(false), ..refusal("none", "neg input") }], ok())
    );
    let mut call = open(&connection, &[("triton_grpc_error", "true")]).await;
    call.send(sent(&request("repeat_and_fail", "one", &[1])));
    call.finish();
    let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
    assert_eq!(
        (messages.iter().map(response_of).collect::<Vec<_>>(), status),
        (vec![answer("one", false, 0)], ok())
    );
}

#[tokio::test]
async fn a_slow_request_holds_back_later_answers_but_not_decoupled_ones() {
    let (server, connection) = connected().await;
    let mut call = open(&connection, &[]).await;
    for one in
        [request("gated", "slow", &[1]), request("id_int32", "fast", &[2]), request("repeat", "many", &[1])]
    {
        call.send(sent(&one));
    }
    assert_eq!(next(&mut call).await, answer("many", false, 0));
    server.gate.open();
    assert_eq!(next(&mut call).await, answer("slow", true, 1));
    assert_eq!(next(&mut call).await, answer("fast", true, 2));
    call.finish();
    assert_eq!(timeout(TIMEOUT, call.rest()).await.unwrap().unwrap(), (vec![], ok()));
}

#[tokio::test]
async fn an_empty_final_response_comes_only_if_asked_for() {
    let (_server, connection) = connected().await;
    let asking = |model| {
        with(
            request(model, "a", &[2]),
            "triton_enable_empty_final_response",
            ParameterChoice::BoolParam(true),
        )
    };
    let two = || vec![answer("a", false, 0), answer("a", false, 1)];
    assert_eq!(exchange(&connection, &[request("repeat", "a", &[2])]).await, (two(), ok()));
    let mut with_final = two();
    with_final.push(StreamMessage { version: String::new(), output: None, ..answer("a", true, 0) });
    assert_eq!(exchange(&connection, &[asking("repeat")]).await, (with_final, ok()));
    // The response of a model that is not decoupled contains the final flag.
    assert_eq!(exchange(&connection, &[asking("id_int32")]).await, (vec![answer("a", true, 2)], ok()));
}

#[tokio::test]
async fn a_refused_request_does_not_end_the_stream() {
    let (_server, connection) = connected().await;
    let mut incomplete = request("id_int32", "x", &[]);
    incomplete.inputs.clear();
    let requests = [request("none", "w", &[1]), incomplete, request("id_int32", "y", &[5])];
    let missing = "[request id: x] expected 1 inputs but got 0 inputs for model 'id_int32'. Got input(s) [], but \
                   missing required input(s) ['IN']. Please provide all required input(s).";
    let expected = vec![
        refusal("w", "Request for unknown model: 'none' is not found"),
        refusal("x", missing),
        answer("y", true, 5),
    ];
    assert_eq!(exchange(&connection, &requests).await, (expected, ok()));
}

#[tokio::test]
async fn a_request_without_room_does_not_end_the_stream() {
    let limits = host::MemoryLimits { inflight_bytes: 100_000, ..host::MemoryLimits::default() };
    let server = Server::start_within(GrpcOptions::default(), limits).await;
    let connection = server.connect().await;
    let large = |id| request("id_int32", id, &[0; 100_000]);
    let brief = |id, value| request("id_int32", id, &[value]);
    let requests = [brief("a", 1), large("b"), large("c"), brief("d", 2)];
    let (messages, status) = exchange(&connection, &requests).await;
    assert_eq!((status, messages.len()), (ok(), 4));
    counted(&server, 0..=0).await;
    assert_eq!((&messages[0], &messages[3]), (&answer("a", true, 1), &answer("d", true, 2)));
    for (message, id) in messages[1..3].iter().zip(["b", "c"]) {
        assert!(message.error.starts_with("the server has no room for "), "{message:?}");
        // The id is missing if it is in another frame than the beginning of the message.
        assert!(message.id == id || message.id.is_empty(), "{message:?}");
    }
}

#[tokio::test]
async fn the_error_of_a_model_is_a_message_of_the_stream() {
    let (_server, connection) = connected().await;
    let (messages, status) = exchange(&connection, &[request("errs", "e", &[3])]).await;
    assert_eq!(messages, [StreamMessage { last: Some(true), ..refusal("e", "code 3") }]);
    assert_eq!(status, ok());
}

#[tokio::test]
async fn a_client_that_wants_codes_gets_the_first_error_as_the_end_of_the_call() {
    let (server, connection) = connected().await;
    let mut call = open(&connection, &[("triton_grpc_error", "true")]).await;
    call.send(sent(&request("none", "x", &[1])));
    assert_eq!(next(&mut call).await, refusal("x", "Request for unknown model: 'none' is not found"));
    call.send(sent(&request("errs", "e", &[3])));
    call.send(sent(&request("gated", "g", &[1])));
    let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
    assert_eq!((messages.len(), status.code, &*status.message), (0, 3, "code 3"));
    server.gate.open();
    server.in_flight(0).await;
}

#[tokio::test]
async fn a_response_that_cannot_have_the_form_that_was_asked_for_ends_such_a_call_too() {
    let (_server, connection) = connected().await;
    let mut message = request("id_fp16", "c", &[0]);
    let input = &mut message.inputs[0];
    (input.datatype, input.shape) = ("FP16".to_owned(), vec![2]);
    let classes = InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(1)) };
    message.outputs.push(InferRequestedOutputTensor {
        name: "OUT".to_owned(),
        parameters: [("classification".to_owned(), classes)].into(),
    });
    let text = "class result not available for output due to unsupported type 'FP16'";
    let (messages, status) = exchange(&connection, std::slice::from_ref(&message)).await;
    assert_eq!(messages, [StreamMessage { last: Some(true), ..refusal("c", text) }]);
    assert_eq!(status, ok());

    let call = open(&connection, &[("triton_grpc_error", "true")]).await;
    call.send(sent(&message));
    let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
    assert_eq!((messages.len(), status.code, &*status.message), (0, 3, text));
}

#[tokio::test]
async fn cancelling_the_call_cancels_all_its_requests() {
    let (server, connection) = connected().await;
    let call = open(&connection, &[]).await;
    for n in 0..3 {
        call.send(sent(&request("gated", "", &[n])));
    }
    server.in_flight(3).await;
    drop(call);
    // The execution that waits at the gate cannot be cancelled.
    server.in_flight(1).await;
    server.gate.open();
    server.in_flight(0).await;
}

#[tokio::test]
async fn a_deadline_ends_the_stream() {
    let (server, connection) = connected().await;
    let call = open(&connection, &[("grpc-timeout", "50m")]).await;
    call.send(sent(&request("gated", "", &[1])));
    let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
    assert_eq!((messages.len(), status.code, &*status.message), (0, 4, "Deadline Exceeded"));
    server.gate.open();
}

/// The server refuses the late request. If the early request still runs, the refusal is a message of the stream.
/// Otherwise it is the status of the call.
#[tokio::test]
async fn a_stream_of_a_stopping_server_finishes_its_requests_and_refuses_new_ones() {
    let (server, connection) = connected().await;
    let mut call = open(&connection, &[]).await;
    call.send(sent(&request("gated", "early", &[1])));
    server.in_flight(1).await;
    server.drain.begin();
    call.send(sent(&request("id_int32", "late", &[2])));
    server.gate.open();
    assert_eq!(next(&mut call).await, answer("early", true, 1));
    let text = "GRPC server is shutting down and has stopped accepting new requests.";
    let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
    assert!(
        messages.iter().map(response_of).all(|said| said == refusal("late", text)) && messages.len() <= 1
    );
    assert_eq!((status.code, &*status.message), (14, text));
    timeout(TIMEOUT, server.serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn an_idle_stream_ends_when_the_server_stops() {
    let (server, connection) = connected().await;
    let mut call = open(&connection, &[]).await;
    call.send(sent(&request("id_int32", "r", &[1])));
    assert_eq!(next(&mut call).await, answer("r", true, 1));
    server.drain.begin();
    let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
    assert_eq!((messages.len(), status.code), (0, 14));
    timeout(TIMEOUT, server.serving).await.unwrap().unwrap().unwrap();
}

/// The client reads nothing while the model produces far more than the client's window. The model waits, and no
/// response is lost.
#[tokio::test]
async fn a_slow_client_gets_every_response() {
    let server = Server::start(GrpcOptions {
        most_unread_responses: std::num::NonZeroUsize::new(2),
        ..GrpcOptions::default()
    })
    .await;
    let connection = server.connect().await;
    let mut call = open(&connection, &[]).await;
    call.send(sent(&request("repeat", "r", &[20_000])));
    call.finish();
    server.in_flight(1).await;
    let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
    assert_eq!((messages.len(), status), (20_000, ok()));
    assert_eq!(response_of(&messages[19_999]), answer("r", false, 19_999));
}

#[tokio::test]
async fn refusals_that_wait_are_counted_and_stop_the_reader() {
    let server = Server::start(GrpcOptions::default()).await;
    let connection = server.connect().await;
    let budget = server.engine.inflight_bytes();
    let mut call = open(&connection, &[]).await;
    call.send(sent(&request("gated", "slow", &[1])));
    server.in_flight(1).await;
    let before = budget.used();
    // The refusals wait behind the slow request: about 64 of them fit.
    let id = "i".repeat(64 << 10);
    for _ in 0..200 {
        call.send(sent(&request("none", &id, &[1])));
    }
    let counted = async {
        while budget.used() < before + 64 * id.len() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, counted).await.expect("the refusals are counted");
    server.gate.open();
    assert_eq!(next(&mut call).await, answer("slow", true, 1));
    let text = "Request for unknown model: 'none' is not found";
    for _ in 0..200 {
        assert_eq!(next(&mut call).await, refusal(&id, text));
    }
    call.finish();
    assert_eq!(timeout(TIMEOUT, call.rest()).await.unwrap().unwrap(), (vec![], ok()));
    while budget.used() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_id_that_is_too_long_is_refused_without_it() {
    let (_server, connection) = connected().await;
    let id = "i".repeat((64 << 10) + 1);
    let text = "the id of the request has 65537 bytes, and at most 65536 are allowed";
    let requests = [request("id_int32", &id, &[1]), request("id_int32", "b", &[2])];
    let expected = vec![refusal("", text), answer("b", true, 2)];
    assert_eq!(exchange(&connection, &requests).await, (expected, ok()));
}
