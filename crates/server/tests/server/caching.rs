//! The response cache, from the command line to the protocol.

use std::sync::Arc;

use serde_json::{Value, json};
use server::Extensions;
use testing::{
    MemoryCaches, Repository,
    fixtures::Python,
    grpc::{self, framed},
    http::Connection,
    schema,
};
use tokio::runtime::Runtime;

use crate::support::Served;

const INFER: &str = "/v2/models/cached/infer";
const BODY: &[u8] = br#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[5]}]}"#;

/// A server with the recorded models, or the reason why it did not start.
fn served(arguments: &[&str], caches: Option<Arc<MemoryCaches>>) -> Result<Served, String> {
    let repository = Arc::new(Repository::golden().unwrap());
    let arguments = [&["--exit-on-error=false"], arguments].concat();
    match caches {
        None => Served::start(&repository, &arguments, vec![Arc::new(Python)]),
        Some(caches) => {
            let backends: Vec<Arc<dyn inference::backend::Backend>> = vec![Arc::new(Python)];
            let extensions = Extensions { plugins: backends.into(), host: None, cache_finder: Some(caches) };
            Served::with(&repository, &arguments, extensions)
        }
    }
}

/// The counts of inferences, executions, successes, hits and misses in the statistics.
fn statistics(connection: &mut Connection) -> [u64; 5] {
    let response = connection.ask("GET", "/v2/models/cached/stats", &[], b"").unwrap();
    let all: Value = serde_json::from_slice(&response.body).unwrap();
    let model = &all["model_stats"][0];
    let counts = &model["inference_stats"];
    let numbers = [
        &model["inference_count"],
        &model["execution_count"],
        &counts["success"]["count"],
        &counts["cache_hit"]["count"],
        &counts["cache_miss"]["count"],
    ];
    numbers.map(|number| number.as_u64().unwrap())
}

#[test]
fn a_request_that_comes_again_is_answered_from_the_cache_over_both_protocols() {
    let caches = Arc::new(MemoryCaches::default());
    let served = served(&["--cache-config=local,size=1048576"], Some(caches.clone())).unwrap();
    let mut connection = Connection::open(served.http).unwrap();
    let [first, second] = [(); 2].map(|()| connection.ask("POST", INFER, &[], BODY).unwrap());
    assert_eq!((first.status, first.text()), (200, second.text()));
    assert_eq!(statistics(&mut connection), [1, 1, 2, 1, 1]);

    let request = json!({
        "model_name": "cached",
        "inputs": [{"name": "IN", "datatype": "INT32", "shape": ["1"], "contents": {"int_contents": [5]}}]
    });
    let message = framed(&schema::encode("inference.ModelInferRequest", &request).unwrap());
    let (messages, status) = Runtime::new()
        .unwrap()
        .block_on(async {
            let connection = grpc::Connection::open(served.grpc).await?;
            connection.unary("/inference.GRPCInferenceService/ModelInfer", &[], message).await
        })
        .unwrap();
    assert_eq!((messages.len(), status.code), (1, 0), "{status:?}");
    assert_eq!(statistics(&mut connection), [1, 1, 3, 2, 1]);

    let metrics = Connection::open(served.metrics).unwrap().ask("GET", "/metrics", &[], b"").unwrap().text();
    for line in [
        r#"nv_cache_num_hits_per_model{model="cached",version="1"} 2"#,
        r#"nv_cache_num_misses_per_model{model="cached",version="1"} 1"#,
        r#"nv_inference_request_success{model="cached",version="1"} 3"#,
        r#"nv_inference_exec_count{model="cached",version="1"} 1"#,
    ] {
        assert!(metrics.lines().any(|found| found == line), "no {line}");
    }
    assert_eq!((caches.cache().lookups(), caches.cache().inserts()), (3, 1));
    served.stop().unwrap();
}

#[test]
fn a_cache_that_cannot_be_opened_is_reported_and_the_server_does_not_start() {
    let caches = || Some(Arc::new(MemoryCaches::default()));
    for (arguments, caches, text) in [
        (
            &["--cache-config=other,size=5", "--cache-directory=/c"][..],
            caches(),
            "Invalid argument - unable to find 'libtritoncache_other.so' for cache. Searched: /c",
        ),
        (
            &["--cache-config=local,colour=blue"],
            caches(),
            "Invalid argument - Failed to initialize LocalCache: config didn't contain a valid 'size' field.",
        ),
        (
            &["--response-cache-byte-size=5"],
            None,
            "Unsupported - response cache 'local' is not supported by this version of nereid",
        ),
    ] {
        let refusal = served(arguments, caches).err().unwrap();
        assert_eq!(refusal, format!("error: creating server: {text}"));
    }
}
