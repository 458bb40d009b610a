//! Tests of clients that read slowly or not at all, and of too many requests: what the server holds, and which requests
//! end.
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use engine::{Engine, EngineOptions};
use host::MemoryLimits;
use inference::{Request, RequestInputs, Response, ResponseItem, ResponseStream, backend::Execution};
use vocabulary::{DataType, ErrorCode, REQUEST_BYTES, Tensor};

use crate::support::{Native, Repository, TIMEOUT, ask, echo, serves, until, value};

/// A decoupled model of the backend `many`.
const MANY: &str = "backend: 'many' max_batch_size: 8 model_transaction_policy { decoupled: true }
    input { name: 'IN' data_type: TYPE_UINT8 dims: -1 } output { name: 'OUT' data_type: TYPE_UINT8 dims: -1 }
    dynamic_batching { } instance_group { kind: KIND_CPU count: 1 }";

const RESPONSES: usize = 100;
const RESPONSE_BYTES: usize = 10_000;

/// The input of a request that gets twenty times as many responses as others.
const GREEDY: u8 = 255;

/// Answers each request with many large responses. Counts the executions that have ended.
fn many(ended: &Arc<AtomicUsize>) -> Native {
    let ended = ended.clone();
    Native::new("many").execute(move |_, batch| {
        let times = |execution: &Execution| if value(&execution.request) == GREEDY { 20 } else { 1 };
        for index in 0..20 * RESPONSES {
            for execution in batch.executions.iter().filter(|each| index < times(each) * RESPONSES) {
                let shape = [1, RESPONSE_BYTES as i64][..].into();
                let output = Tensor::new("OUT".into(), DataType::Uint8, shape, vec![7; RESPONSE_BYTES]);
                execution.responder.send(Response::of(vec![output]));
            }
        }
        batch.executions.into_iter().for_each(|Execution { responder, .. }| responder.finish());
        ended.fetch_add(1, SeqCst);
    })
}

fn limited(repository: &Repository, limits: MemoryLimits) -> EngineOptions {
    EngineOptions { limits, ..repository.options() }
}

/// The number of responses that a client gets if it reads all of them, and the error that ends them, if any.
async fn read(mut stream: ResponseStream) -> (usize, Option<ErrorCode>) {
    let mut count = 0;
    while let Some(ResponseItem { result, .. }) = stream.next().await {
        match result {
            Ok(_) => count += 1,
            Err(error) => return (count, Some(error.code)),
        }
    }
    (count, None)
}

async fn serve(config: &str, unread_response_bytes: usize) -> (Engine, Arc<AtomicUsize>) {
    let repository = Repository::new().model("m", config, &["1"]);
    let limits = MemoryLimits { unread_response_bytes, ..MemoryLimits::default() };
    let ended = Arc::new(AtomicUsize::new(0));
    (Engine::start(limited(&repository, limits), vec![Arc::new(many(&ended)) as _]).await.unwrap(), ended)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_request_whose_client_stops_reading_ends() {
    // The budget holds all that eight readers can leave unread, and half as much again.
    let (engine, _) = serve(MANY, 12 * RESPONSES * RESPONSE_BYTES).await;
    let stopped = ask(&engine, "m", GREEDY);
    for _ in 0..8 {
        let readers: Vec<_> = (0..8).map(|value| tokio::spawn(read(ask(&engine, "m", value)))).collect();
        for reader in readers {
            let read = tokio::time::timeout(TIMEOUT, reader).await.unwrap().unwrap();
            assert_eq!(read, (RESPONSES, None));
        }
    }
    assert_eq!(read(stopped).await, (0, Some(ErrorCode::ResourceExhausted)));
    engine.stop(TIMEOUT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_instance_waits_for_clients_and_the_client_furthest_behind_gets_an_error() {
    let (engine, ended) = serve(MANY, 2 * RESPONSES * RESPONSE_BYTES).await;
    let unread: Vec<_> = (0..6).map(|value| ask(&engine, "m", value)).collect();
    // No client reads, and still all executions end.
    until("the end of all executions", || engine.in_flight() == 0 && ended.load(SeqCst) > 0).await;
    let mut whole = 0;
    for stream in unread {
        match read(stream).await {
            (RESPONSES, None) => whole += 1,
            (0, Some(ErrorCode::ResourceExhausted)) => {}
            other => panic!("a request ends whole or with the error alone: {other:?}"),
        }
    }
    assert!((1..=2).contains(&whole), "{whole} requests fit the budget");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_may_be_slowed_down_by_its_clients() {
    let config =
        format!("{MANY} parameters {{ key: 'MAX_UNREAD_RESPONSES' value: {{ string_value: '2' }} }}");
    let (engine, ended) = serve(&config, 5 * RESPONSE_BYTES).await;
    let mut stream = ask(&engine, "m", 0);
    for _ in 0..RESPONSES - 3 {
        assert!(stream.next().await.unwrap().result.is_ok());
        assert_eq!(ended.load(SeqCst), 0, "the backend is never more than two responses ahead");
    }
    assert_eq!(read(stream).await, (3, None));
}

#[tokio::test]
async fn a_parameter_that_is_no_number_fails_the_load_and_says_so() {
    let config =
        format!("{MANY} parameters {{ key: 'MAX_UNREAD_RESPONSES' value: {{ string_value: '0' }} }}");
    let (engine, _) = serve(&config, 1).await;
    let reason = &engine.known_models(false)[0].reason;
    assert!(reason.contains("'parameters.MAX_UNREAD_RESPONSES' of model 'm' has the value '0'"), "{reason}");
}

#[tokio::test]
async fn requests_beyond_the_limit_of_bytes_are_refused_and_free_their_room_when_they_end() {
    let repository = Repository::new().model("m", crate::support::ECHO, &["1"]);
    let limit = REQUEST_BYTES + 1_000;
    let limits = MemoryLimits { inflight_bytes: limit, ..MemoryLimits::default() };
    let engine = Engine::start(limited(&repository, limits), vec![Arc::new(echo()) as _]).await.unwrap();
    let sized = |bytes: usize| {
        let tensor = Tensor::new("IN".into(), DataType::Uint8, [1, bytes as i64][..].into(), vec![0; bytes]);
        Request { inputs: RequestInputs::Tensors(vec![tensor]), ..Request::default() }
    };
    let model = engine.model("m", None).unwrap();
    let refused = model.infer(sized(1_001)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::ResourceExhausted);
    assert_eq!(
        refused.message,
        format!(
            "the server has no room for {} more bytes of requests: 0 of {limit} are in use (--max-inflight-bytes)",
            limit + 1
        )
    );
    for _ in 0..3 {
        assert!(model.infer(sized(1_000)).unwrap().only().await.is_ok());
        while engine.inflight_bytes().used() > 0 {
            tokio::task::yield_now().await;
        }
    }
    let held = engine.inflight_bytes().reserve(999).unwrap();
    assert!(model.infer(sized(2)).is_err());
    drop(held);
    assert!(serves(&engine, "m").await);
}
