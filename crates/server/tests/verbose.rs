//! Verbose log lines about requests that scripts search for. The log belongs to the process, so this file has only one
//! test.
#[path = "server/support.rs"]
mod support;

use std::{fs, sync::Arc};

use serde_json::json;
use server::logging::{self, Levels, LogConfig};
use testing::{
    Gate, Identity, Repository, eventually,
    grpc::{self, framed},
    http::TIMEOUT,
    schema,
};
use tokio::runtime::Runtime;

use support::Served;

const SERVICE: &str = "/inference.GRPCInferenceService";

#[test]
fn calls_that_clients_give_up_and_batchers_that_start_are_logged_in_the_words_of_triton() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log");
    let levels = Levels { verbose: 1, ..Levels::default() };
    logging::install(&LogConfig { levels, file: Some(file.clone()), escape_messages: true }).unwrap();

    let gate = Gate::shut();
    let repository = Repository::empty().unwrap();
    let config =
        Identity::config("dynamic_batching {}").replace("{kind: KIND_CPU}", "{kind: KIND_CPU count: 2}");
    repository.add("m", [("config.pbtxt", config.as_str())]).unwrap();
    let backend = Arc::new(Identity::behind(gate.clone()));
    let served = Served::start(&Arc::new(repository), &[], vec![backend]).unwrap();
    let address = served.grpc;
    let request = json!({
        "model_name": "m",
        "id": "r",
        "inputs": [{"name": "IN", "datatype": "INT32", "shape": ["1"], "contents": {"int_contents": [7]}}]
    });
    let message = framed(&schema::encode("inference.ModelInferRequest", &request).unwrap());

    let runtime = Runtime::new().unwrap();
    let unary = runtime.spawn({
        let message = message.clone();
        async move {
            let connection = grpc::Connection::open(address).await.unwrap();
            let _ = connection.unary(&format!("{SERVICE}/ModelInfer"), &[], message).await;
        }
    });
    let stream = runtime.spawn(async move {
        let connection = grpc::Connection::open(address).await.unwrap();
        let call = connection.call(&format!("{SERVICE}/ModelStreamInfer"), &[]).await.unwrap();
        call.send(message);
        let _ = call.rest().await;
    });
    assert!(gate.wait_for(2, TIMEOUT), "both requests are being executed");
    let fields = |handler: &str| {
        if handler == "ModelInferHandler" { " [model: m, version: 1, request_id: r]" } else { "" }
    };
    let logged = |words: &str| fs::read_to_string(&file).unwrap().contains(words);
    assert!(logged("\"Starting dynamic-batcher thread for m at nice 0...\""));
    assert!(logged("\"Server side auto-completed config: \"\nname: \"m\"\n"));
    assert!(logged(&format!("\"Started HTTPService at {}\"", served.http)));
    assert!(logged(&format!("\"Started Metrics Service at {}\"", served.metrics)));
    assert!(!logged("Cancellation notification"));
    unary.abort();
    stream.abort();
    for handler in ["ModelInferHandler", "ModelStreamInferHandler"] {
        let words = format!("\"Cancellation notification received for {handler}{}\"", fields(handler));
        eventually(&words, || logged(&words));
    }
    gate.open();
    let answered = runtime.block_on(async move {
        let connection = grpc::Connection::open(address).await.unwrap();
        connection.unary(&format!("{SERVICE}/ServerLive"), &[], framed(&[])).await.unwrap()
    });
    assert_eq!(answered.1.name(), "OK");
    served.stop().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("Cancellation notification").count(), 2, "{text}");
}
