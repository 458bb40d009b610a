//! Tests of what a model's configuration, a client and an administrator say about the response cache.
use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    time::Duration,
};

use engine::Engine;
use inference::{
    Plugins, Request, Response, ResponseStream,
    backend::Execution,
    cache::{CacheControl, CacheStatus},
};
use testing::{Gate, MemoryCache};
use vocabulary::{DataType, Tensor};

use crate::{
    caching::{cached, counts, first_byte, send, serve_with},
    support::{Native, TIMEOUT, ask, echo, request},
};

/// A backend that answers its first execution with 1, the second with 2, and so on.
fn numbers() -> Native {
    let executed = AtomicU8::new(0);
    echo().execute(move |_, batch| {
        for Execution { responder, .. } in batch.executions {
            responder.complete(byte(executed.fetch_add(1, SeqCst) + 1));
        }
    })
}

fn byte(value: u8) -> Response {
    Response::of(vec![Tensor::new("OUT".into(), DataType::Uint8, [1, 1][..].into(), vec![value])])
}

fn parameters(pairs: &[(&str, &str)]) -> String {
    let parameter = |(key, value): &(&str, &str)| {
        format!("parameters {{ key: '{key}' value: {{ string_value: '{value}' }} }}\n")
    };
    pairs.iter().map(parameter).collect()
}

async fn serve(config: &str, backend: Native) -> (Engine, Arc<MemoryCache>) {
    let cache = Arc::new(MemoryCache::that_never_waits());
    (serve_with(cached(config).options(), backend, &cache).await, cache)
}

/// The value of the answer, and where it comes from.
async fn whence(mut stream: ResponseStream) -> (u8, Option<CacheStatus>) {
    let item = stream.next().await.expect("there is an answer");
    let response = item.result.expect("no error");
    (response.outputs[0].host().unwrap().contiguous()[0], stream.timeline().cache_status())
}

fn controlled(control: CacheControl) -> Request {
    Request { cache_control: control, ..request(0) }
}

#[tokio::test]
async fn a_client_may_refresh_an_answer_or_keep_away_from_the_cache() {
    let (engine, cache) = serve("", numbers()).await;
    let refreshing = CacheControl { refreshes: true, ..CacheControl::default() };
    let bypassing = CacheControl { bypasses: true, ..CacheControl::default() };
    assert_eq!(whence(ask(&engine, "m", 0)).await, (1, Some(CacheStatus::Miss)));
    assert_eq!(whence(send(&engine, controlled(bypassing))).await, (2, Some(CacheStatus::Bypassed)));
    assert_eq!(whence(ask(&engine, "m", 0)).await, (1, Some(CacheStatus::Hit(None))));
    assert_eq!(whence(send(&engine, controlled(refreshing))).await, (3, Some(CacheStatus::Refreshed)));
    assert_eq!(whence(ask(&engine, "m", 0)).await, (3, Some(CacheStatus::Hit(None))));
    assert_eq!((counts(&engine), cache.inserts()), ([5, 3, 2, 1], 2));
}

#[tokio::test]
async fn a_client_may_want_a_young_answer() {
    let (engine, cache) = serve("", numbers()).await;
    let young = CacheControl { max_age: Some(Duration::from_secs(60)), ..CacheControl::default() };
    assert_eq!(whence(ask(&engine, "m", 0)).await.0, 1);
    assert_eq!(whence(send(&engine, controlled(young))).await, (1, Some(CacheStatus::Hit(None))));
    cache.age_by(Duration::from_secs(100));
    assert_eq!(whence(send(&engine, controlled(young))).await, (2, Some(CacheStatus::TooOld)));
    assert_eq!(
        whence(ask(&engine, "m", 0)).await,
        (2, Some(CacheStatus::Hit(None))),
        "the old one is replaced"
    );
}

#[tokio::test]
async fn answers_age() {
    let (engine, cache) = serve(&parameters(&[("CACHE_TTL_SECONDS", "60")]), numbers()).await;
    assert_eq!(whence(ask(&engine, "m", 0)).await.0, 1);
    let (value, status) = whence(ask(&engine, "m", 0)).await;
    assert!(value == 1 && matches!(status, Some(CacheStatus::Hit(Some(rest))) if rest.as_secs() <= 60));
    cache.age_by(Duration::from_secs(61));
    assert_eq!(whence(ask(&engine, "m", 0)).await, (2, Some(CacheStatus::TooOld)));
    assert_eq!(whence(ask(&engine, "m", 0)).await.0, 2);
}

#[tokio::test]
async fn a_stale_answer_is_given_while_one_request_computes_a_new_one() {
    let gate = Gate::opened();
    let (executed, behind) = (AtomicU8::new(0), Gate::shut());
    let release = behind.clone();
    let backend = echo().execute(move |_, batch| {
        for Execution { responder, .. } in batch.executions {
            let number = executed.fetch_add(1, SeqCst) + 1;
            if number > 1 {
                behind.pass();
            }
            responder.complete(byte(number));
        }
    });
    let aging = parameters(&[("CACHE_TTL_SECONDS", "60"), ("CACHE_STALE_SECONDS", "600")]);
    let (engine, cache) = serve(&aging, backend).await;
    assert_eq!(whence(ask(&engine, "m", 0)).await.0, 1);
    cache.age_by(Duration::from_secs(61));
    for _ in 0..5 {
        assert_eq!(whence(ask(&engine, "m", 0)).await, (1, Some(CacheStatus::StaleHit)));
    }
    assert!(release.wait_for(1, TIMEOUT));
    assert_eq!(engine.in_flight(), 1, "one request computes the new answer");
    release.open();
    while engine.in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!((first_byte(ask(&engine, "m", 0)).await, cache.inserts()), (2, 2));
    cache.age_by(Duration::from_secs(661));
    assert_eq!(whence(ask(&engine, "m", 0)).await, (3, Some(CacheStatus::TooOld)));
    drop(gate);
}

#[tokio::test]
async fn an_answer_above_the_limit_of_the_model_is_not_stored() {
    let wide = || {
        echo().execute(|_, batch| {
            for Execution { responder, request, .. } in batch.executions {
                let size = usize::from(request.tensors()[0].host().unwrap().contiguous()[0]);
                let data = vec![0; size];
                let shape = [1, i64::try_from(size).unwrap()];
                let output = Tensor::new("OUT".into(), DataType::Uint8, shape[..].into(), data);
                responder.complete(Response::of(vec![output]));
            }
        })
    };
    let (engine, cache) = serve(&parameters(&[("CACHE_MAX_ANSWER_BYTES", "400")]), wide()).await;
    for (size, inserted) in [(144, 1), (145, 1), (100, 2)] {
        assert_eq!(ask(&engine, "m", size).only().await.unwrap().outputs[0].byte_size(), usize::from(size));
        assert_eq!(cache.inserts(), inserted, "{size}");
    }
}

#[tokio::test]
async fn all_responses_of_a_decoupled_model_are_one_answer() {
    let decoupled = "model_transaction_policy { decoupled: true }";
    let counting = || {
        echo().execute(|_, batch| {
            for Execution { responder, .. } in batch.executions {
                for value in 1..=3 {
                    responder.send(byte(value));
                }
                responder.finish();
            }
        })
    };
    let config = format!("{decoupled} {}", parameters(&[("CACHE_DECOUPLED", "true")]));
    let (engine, cache) = serve(&config, counting()).await;
    for _ in 0..2 {
        let mut stream = ask(&engine, "m", 0);
        let mut values = Vec::new();
        while let Some(item) = stream.next().await {
            if let Some(output) = item.result.unwrap().outputs.first() {
                values.push(output.host().unwrap().contiguous()[0]);
            }
        }
        assert_eq!(values, [1, 2, 3]);
    }
    assert_eq!((counts(&engine), cache.inserts()), ([2, 1, 1, 1], 1));
}

#[tokio::test]
async fn the_cache_of_a_model_can_be_emptied() {
    let gate = Gate::shut();
    let (executed, behind) = (AtomicU8::new(0), gate.clone());
    let backend = echo().execute(move |_, batch| {
        for Execution { responder, .. } in batch.executions {
            let number = executed.fetch_add(1, SeqCst) + 1;
            if number == 2 {
                behind.pass();
            }
            responder.complete(byte(number));
        }
    });
    let (engine, cache) = serve("", backend).await;
    assert_eq!(whence(ask(&engine, "m", 0)).await.0, 1);
    let model = engine.model("m", None).unwrap();
    assert_eq!(model.empty_cache().await.unwrap(), 1);
    let early = ask(&engine, "m", 0);
    assert!(gate.wait_for(1, TIMEOUT));
    assert_eq!(model.empty_cache().await.unwrap(), 0);
    let late = ask(&engine, "m", 0);
    gate.open();
    assert_eq!(whence(early).await.0, 2, "its client had asked before");
    assert_eq!(whence(late).await, (3, Some(CacheStatus::Miss)));
    assert_eq!((whence(ask(&engine, "m", 0)).await.0, cache.inserts()), (3, 2));
}

#[tokio::test]
async fn an_answer_that_was_being_stored_does_not_outlive_the_emptying() {
    let (engine, cache) = serve("", numbers()).await;
    let stored = cache.hold_insertions();
    assert_eq!(whence(ask(&engine, "m", 0)).await.0, 1);
    assert_eq!(engine.model("m", None).unwrap().empty_cache().await.unwrap(), 0);
    stored.notify_one();
    // The insertion ends with the removal.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(cache.keys().is_empty());
    assert_eq!(whence(ask(&engine, "m", 0)).await, (2, Some(CacheStatus::Miss)));
}

#[tokio::test]
async fn a_model_without_a_cache_has_none_to_empty() {
    let engine = cached("").serve(echo()).await;
    let error = engine.model("m", None).unwrap().empty_cache().await.unwrap_err();
    assert_eq!(error.message, "model 'm' does not use a response cache");
}

#[tokio::test]
async fn a_model_that_asks_for_what_the_cache_cannot_do_is_not_loaded() {
    let quota = cached(&parameters(&[("CACHE_QUOTA_BYTES", "4096")]));
    let cache: Arc<MemoryCache> = Arc::default();
    let backends: Vec<Arc<dyn inference::backend::Backend>> = vec![Arc::new(echo())];
    let plugins = Plugins { backends, cache: Some(cache), ..Plugins::default() };
    let engine = Engine::start(quota.options(), plugins).await.unwrap();
    let state = format!("{:?}", engine.index(false).await);
    assert!(state.contains("cache 'local' has no quotas, which model 'm' asks for"), "{state}");
}
