//! What clients learn of the models of a multi-model endpoint.
use std::{fs, net::SocketAddr, sync::Arc};

use engine::{ModelControl, StartupModels};
use frontend::{
    access::{Category, Restrictions},
    http::{self, HttpService, SageMakerOptions, SageMakerService},
};
use testing::{Gate, Identity, Repository, http::Connection};

use crate::{Server, keyed, web_pages::open};

/// A server without models.
fn server() -> Server {
    let control = ModelControl::Explicit(StartupModels::Named(Default::default()));
    let backend = Arc::new(Identity::behind(Gate::opened()));
    Server::controlled(control, Repository::empty().unwrap(), vec![backend], http::HttpOptions::default())
}

fn ask(address: SocketAddr, method: &str, path: &str, key: Option<&str>) -> (u16, String) {
    let headers: Vec<_> = key.map(|key| ("x-api-key", key)).into_iter().collect();
    let answer = Connection::open(address).unwrap().ask(method, path, &headers, b"").unwrap();
    (answer.status, answer.text())
}

#[test]
fn a_client_without_the_key_does_not_learn_which_hashes_are_unknown() {
    let server = server();
    let root = tempfile::tempdir().unwrap();
    let model = root.path().join("known/model/secret");
    fs::create_dir_all(&model).unwrap();
    fs::write(model.join("config.pbtxt"), Identity::config("")).unwrap();
    fs::create_dir(model.join("1")).unwrap();
    let options = keyed([("all", "*", "*"), ("other", "*", "other*"), ("prober", "health", "*")]);
    let service = HttpService::new(server.engine.clone(), options);
    let options = SageMakerOptions { model_root: root.path().into(), ..SageMakerOptions::default() };
    let address = open(&server, SageMakerService::new(service, options), Default::default());

    let url = root.path().join("known/model");
    let body = format!(r#"{{"model_name":"hash-1","url":"{}"}}"#, url.display());
    let headers = [("x-api-key", "all"), ("x-amzn-sagemaker-target-model", "secret")];
    let loaded =
        Connection::open(address).unwrap().ask("POST", "/models", &headers, body.as_bytes()).unwrap();
    assert_eq!((loaded.status, loaded.text().as_str()), (200, ""));
    assert_eq!(ask(address, "GET", "/models/hash-1", Some("all")).0, 200);

    for (method, path) in [("POST", "/models/{}/invoke"), ("GET", "/models/{}"), ("DELETE", "/models/{}")] {
        let answers =
            |key| ["hash-1", "hash-2"].map(|hash| ask(address, method, &path.replace("{}", hash), key));
        for (key, status) in [(None, 401), (Some("wrong"), 401), (Some("prober"), 403), (Some("other"), 403)]
        {
            let [known, unknown] = answers(key);
            assert_eq!((known.0, unknown.0), (status, status), "{method} {path} {key:?}");
            assert_eq!(known.1.replace("hash-1", "hash-2"), unknown.1, "{method} {path} {key:?}");
        }
        assert_eq!(
            ask(address, method, &path.replace("{}", "hash-2"), Some("all")).0,
            404,
            "{method} {path}"
        );
        let hidden = path.replace("{}", "other-hash");
        assert_eq!(ask(address, method, &hidden, Some("other")).0, 404, "{method} {path}");
    }
}

#[test]
fn a_restricted_api_needs_its_header_for_an_unknown_hash_too() {
    let server = server();
    let mut restrictions = Restrictions::default();
    restrictions.require(Category::Inference, "key", "secret");
    let options = http::HttpOptions { restrictions, ..http::HttpOptions::default() };
    let service = HttpService::new(server.engine.clone(), options);
    let service = SageMakerService::new(service, SageMakerOptions::default());
    let address = open(&server, service, Default::default());
    let text = r#"{"error":"This API is restricted, expecting header 'key'"}"#.to_owned();
    assert_eq!(ask(address, "POST", "/models/unknown/invoke", None), (403, text));
    let mut connection = Connection::open(address).unwrap();
    let answer = connection.ask("POST", "/models/unknown/invoke", &[("key", "secret")], b"").unwrap();
    assert_eq!(answer.status, 404);
}

#[test]
fn hashes_and_names_of_models_have_a_longest_length() {
    let server = server();
    let service = HttpService::new(server.engine.clone(), http::HttpOptions::default());
    let service = SageMakerService::new(service, SageMakerOptions::default());
    let address = open(&server, service, Default::default());
    let load = |hash: usize, name: usize| {
        let body = format!(r#"{{"model_name":"{}","url":"/opt/ml/models/x/model"}}"#, "h".repeat(hash));
        let name = "n".repeat(name);
        let headers = [("x-amzn-sagemaker-target-model", name.as_str())];
        let mut connection = Connection::open(address).unwrap();
        let answer = connection.ask("POST", "/models", &headers, body.as_bytes()).unwrap();
        assert_eq!(answer.status, 400);
        answer.text()
    };
    let text = |what: &str| {
        format!(r#"{{"error":"the {what} of a model has 1025 bytes, at most 1024 are allowed"}}"#)
    };
    assert_eq!((load(1025, 1), load(1, 1025)), (text("hash"), text("name")));
    assert!(!load(1024, 1024).contains("allowed"));
}
