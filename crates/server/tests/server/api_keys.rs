//! API keys stay between the client and the server: models never see them.

use std::{fs, sync::Arc};

use crate::support::{self, Served};
use server::options::ProcessEnvironment;
use testing::{
    Repository,
    fixtures::Python,
    grpc::{self, framed},
    http::Connection,
    schema,
};
use tokio::runtime::Runtime;

const KEY: &str = "a-key-of-a-client";

/// The digest of the key.
const DIGEST: &str = "9cc789f622064ac6cfd94d6c26cb23b9e5bb64e5bf3a8f4af23e3883a4dfdf8e";

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// The model `params` answers with the parameters of the request.
fn serve(arguments: &[&str]) -> Served {
    let repository = Arc::new(Repository::golden().unwrap());
    let forward =
        ["http", "grpc"].map(|port| format!("--{port}-header-forward-pattern=^(authorization|x-.*)$"));
    let all: Vec<_> =
        ["--exit-on-error=false", &forward[0], &forward[1]].iter().chain(arguments).copied().collect();
    Served::start(&repository, &all, vec![Arc::new(Python)]).unwrap()
}

fn headers() -> [(&'static str, String); 3] {
    [
        ("authorization", format!("Bearer {KEY}")),
        ("x-api-key", KEY.to_owned()),
        ("x-other", "seen".to_owned()),
    ]
}

/// What the model answers over HTTP and over gRPC.
fn answers(served: &Served) -> [String; 2] {
    let headers = headers();
    let pairs: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let body = br#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[7]}]}"#;
    let mut connection = Connection::open(served.http).unwrap();
    let http = connection.ask("POST", "/v2/models/params/infer", &pairs, body).unwrap();
    assert_eq!(http.status, 200, "{}", http.text());
    let request = serde_json::json!({
        "model_name": "params",
        "inputs": [{"name": "IN", "datatype": "INT32", "shape": ["1"], "contents": {"int_contents": [1]}}]
    });
    let (request_type, _) = schema::method(INFER).unwrap();
    let message = framed(&schema::encode(&request_type, &request).unwrap());
    let metadata: Vec<_> = headers.map(|(name, value)| (name.to_owned(), value)).into();
    let (messages, status) = Runtime::new()
        .unwrap()
        .block_on(async { grpc::Connection::open(served.grpc).await?.unary(INFER, &metadata, message).await })
        .unwrap();
    assert_eq!(status.name(), "OK", "{}", status.message);
    [http.text(), String::from_utf8_lossy(&messages[0]).into_owned()]
}

#[test]
fn a_key_never_becomes_a_parameter() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    let keys = format!(r#"{{"keys":[{{"name":"a","sha256":"{DIGEST}","apis":["*"],"models":["*"]}}]}}"#);
    fs::write(&path, keys).unwrap();
    let served = serve(&[&format!("--api-key-file={}", path.display())]);
    for answer in answers(&served) {
        assert!(answer.contains("seen") && !answer.contains(KEY), "{answer}");
    }
    // Nobody needs a key for metrics.
    let scrape = Connection::open(served.metrics).unwrap().ask("GET", "/metrics", &[], b"").unwrap();
    assert_eq!(scrape.status, 200);
    served.stop().unwrap();
    // A server without keys forwards what the pattern says, as Triton does.
    let served = serve(&[]);
    for answer in answers(&served) {
        assert!(answer.contains(KEY), "{answer}");
    }
    served.stop().unwrap();
    let none = support::parse_in(vec!["--api-key-file=".into()], &ProcessEnvironment::default()).unwrap();
    assert_eq!(none.credentials.api_key_file, None);
}
