//! The lines by which platforms and public charts start Triton, as they stand there with the defaults of their values.

use super::options_in;
use crate::options::ProcessEnvironment;

/// Each with its source, and the arguments of `tritonserver`.
const LINES: &[(&str, &[&str])] = &[
    (
        "kserve/kserve, config/runtimes/kserve-tritonserver.yaml",
        &[
            "--model-store=/mnt/models",
            "--grpc-port=9000",
            "--http-port=8080",
            "--allow-grpc=true",
            "--allow-http=true",
        ],
    ),
    ("triton-inference-server/server, deploy/k8s-onprem", &["--model-repository=/models"]),
    (
        "triton-inference-server/server, deploy/aws",
        &["--model-store=s3://bucket/models", "--model-control-mode=poll", "--repository-poll-secs=5"],
    ),
    ("triton-inference-server/server, deploy/gcp", &["--model-store=gs://bucket/models"]),
    (
        "triton-inference-server/server, deploy/fleetcommand",
        &[
            "--model-repository=s3://https://your-s3-endpoint:443/bucket/models",
            "--model-control-mode=explicit",
        ],
    ),
    (
        "triton-inference-server/server, deploy/gke-marketplace-app",
        &[
            "--model-store=gs://triton_sample_models/23_09",
            "--strict-model-config=False",
            "--log-verbose=0",
            "--allow-gpu-metrics=True",
        ],
    ),
];

#[test]
fn lines_of_platforms_and_charts_are_accepted() {
    for (source, line) in LINES {
        let options = options_in(&ProcessEnvironment::default(), line);
        let (_, repository) = line[0].split_once('=').unwrap();
        assert!(options.repository.paths.iter().eq([repository]), "{source}");
        let port = if source.starts_with("kserve") { (8080, 9000) } else { (8000, 8001) };
        assert_eq!((options.http.unwrap().listen.port, options.grpc.unwrap().listen.port), port, "{source}");
    }
}

/// Vertex AI gives the repository and the ports as variables. Its arguments have no name of a program.
#[test]
fn the_line_of_vertex_ai_is_accepted() {
    let environment = ProcessEnvironment {
        storage_uri: Some("gs://bucket/models".into()),
        aip_mode: Some("PREDICTION".into()),
        aip_http_port: Some("8080".into()),
        aip_predict_route: Some("/v1/endpoints/1/deployedModels/2:predict".into()),
        aip_health_route: Some("/v1/endpoints/1/deployedModels/2".into()),
        ..ProcessEnvironment::default()
    };
    let options = options_in(&environment, &["--strict-model-config=false"]);
    assert!(options.repository.paths.iter().eq(["gs://bucket/models"]));
    assert!(options.http.is_none() && options.grpc.is_none());
    assert_eq!(options.vertex_ai.unwrap().listen.port, 8080);
}
