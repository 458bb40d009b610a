//! Tests of a backend that sends requests to other models.
use std::sync::{Arc, OnceLock};

use engine::Engine;
use inference::{Inferer, backend::Execution};
use vocabulary::ErrorCode;

use crate::support::{ECHO, Native, Repository, ask, echo, request};

/// Sends its request to another model. Answers with an error if that model cannot answer.
fn caller(inferer: Arc<OnceLock<Arc<dyn Inferer>>>) -> Native {
    let opened = inferer.clone();
    Native::new("caller")
        .open(move |source| {
            let inferer = source.inferer.clone().expect("a model of a server can send requests");
            let _ = opened.set(inferer);
            Ok(())
        })
        .execute(move |_, batch| {
            let inferer = inferer.get().unwrap();
            // The instance has its own thread, which may wait.
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for Execution { request, responder, .. } in batch.executions {
                match inferer
                    .infer("called", None, request)
                    .and_then(|stream| runtime.block_on(stream.only()))
                {
                    Ok(response) => responder.complete(response),
                    Err(error) => responder.fail(error),
                }
            }
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_a_backend_is_a_request_like_any_other() {
    let calling = ECHO.replace("echo", "caller");
    let repository = Repository::new().model("calling", &calling, &["1"]).model("called", ECHO, &["1"]);
    let inferer: Arc<OnceLock<Arc<dyn Inferer>>> = Arc::default();
    let backends = vec![Arc::new(echo()) as _, Arc::new(caller(inferer.clone())) as _];
    let engine = Engine::start(repository.options(), backends).await.unwrap();
    let called = engine.model("called", None).unwrap();
    assert!(called.infer(request(1)).unwrap().only().await.is_ok());
    assert!(ask(&engine, "calling", 7).only().await.is_ok());
    assert_eq!(engine.statistics(Some("called"), None).unwrap()[0].totals.success.count, 2);
    let unknown = inferer.get().unwrap().infer("unknown", None, request(1)).unwrap_err();
    assert_eq!(unknown.code, ErrorCode::NotFound);
    // The inferer does not keep the server alive.
    engine.stop(crate::support::TIMEOUT).await.unwrap();
    drop((engine, called));
}
