//! Which version answers says so, also if it has been replaced and only ends its sequences.
use engine::StartupModels;
use proto::ModelStreamInferResponse;
use repository::LoadParameters;

use super::*;

const SEQUENCES: &str = "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 60000000
    control_input { name: 'START' control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } } }";

/// A request of a sequence.
fn step(sequence: i64, starts: bool) -> ModelInferRequest {
    let mut request = request("counted", "", &[1]);
    request.inputs[0].shape = vec![1, 1];
    let request = with(request, "sequence_id", ParameterChoice::Int64Param(sequence));
    with(request, "sequence_start", ParameterChoice::BoolParam(starts))
}

async fn version_of(connection: &Connection, request: &ModelInferRequest) -> String {
    infer(connection, &[], request).await.unwrap().model_version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retired_version_that_answers_a_sequence_names_itself() {
    let control = ModelControl::Explicit(StartupModels::Named(["counted".to_owned()].into()));
    let models = [("counted", &*Identity::config(SEQUENCES))];
    let limits = host::MemoryLimits::default();
    let server = Server::start_controlled(GrpcOptions::default(), limits, control, &models).await;
    server.gate.open();
    let connection = server.connect().await;
    let mut stream = connection.call(STREAM, &[]).await.unwrap();
    let mut version_on_stream = async |request: &ModelInferRequest| {
        stream.send(sent(request));
        let message = timeout(TIMEOUT, stream.next()).await.unwrap().unwrap().unwrap();
        let message = ModelStreamInferResponse::decode(message).unwrap();
        assert_eq!(message.error_message, "");
        message.infer_response.unwrap().model_version
    };
    assert_eq!(version_of(&connection, &step(1, true)).await, "1");
    assert_eq!(version_on_stream(&step(2, true)).await, "1");
    std::fs::create_dir(server.repository.path().join("counted/2")).unwrap();
    server.engine.repository().load("counted", LoadParameters::default()).await.unwrap();
    assert_eq!(version_of(&connection, &step(1, false)).await, "1");
    assert_eq!(version_on_stream(&step(2, false)).await, "1");
    assert_eq!(version_of(&connection, &step(3, true)).await, "2");
    assert_eq!(version_on_stream(&step(4, true)).await, "2");
}
