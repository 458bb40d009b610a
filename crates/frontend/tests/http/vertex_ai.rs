//! The endpoint of Vertex AI with API keys.
use frontend::{
    access::{Category, Restrictions},
    http::{self, HttpService, VertexAiOptions, VertexAiService},
    metrics::MetricsService,
};
use testing::http::Connection;

use crate::{Server, keyed, web_pages::open};

/// The status of a request for the metrics at a port with these options.
fn statuses<const N: usize>(options: http::HttpOptions, headers: [(&str, &str); N]) -> [u16; N] {
    let server = Server::usual();
    let service = HttpService::new(server.engine.clone(), options);
    let metrics = Some(MetricsService::new(server.engine.clone(), true).into());
    let options = VertexAiOptions {
        predict_route: "/predict".into(),
        health_route: "/health".into(),
        default_model: "id".into(),
    };
    let address = open(&server, VertexAiService::new(service, metrics, options), Default::default());
    headers.map(|header| {
        let headers = [("x-vertex-ai-triton-redirect", "metrics"), header];
        let answer = Connection::open(address).unwrap().ask("POST", "/predict", &headers, b"").unwrap();
        assert_eq!(answer.status == 200, answer.text().contains("nv_inference"), "{}", answer.text());
        answer.status
    })
}

#[test]
fn the_metrics_of_all_models_need_a_key_for_them() {
    let options = keyed([("reader", "statistics", "*"), ("tenant", "*", "id"), ("caller", "inference", "*")]);
    let headers = ["reader", "tenant", "caller", "unknown"].map(|key| ("x-api-key", key));
    assert_eq!(statuses(options, headers), [200, 403, 403, 401]);
}

#[test]
fn restricted_statistics_are_not_told_by_metrics() {
    let mut restrictions = Restrictions::default();
    restrictions.require(Category::Statistics, "admin-key", "secret");
    let options = http::HttpOptions { restrictions, ..http::HttpOptions::default() };
    assert_eq!(statuses(options, [("admin-key", "secret"), ("admin-key", "guess")]), [200, 403]);
}
