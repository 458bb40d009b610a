//! Calls with one request and one response.
use kserve::long_write::BRIEF;
use prost::Message;
use proto::{
    ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse,
    ModelRepositoryParameter, ModelStatisticsRequest, RepositoryIndexRequest, RepositoryModelLoadRequest,
    RepositoryModelUnloadRequest, ServerReadyResponse, TraceSettingRequest, infer_parameter::ParameterChoice,
    model_infer_request::InferRequestedOutputTensor,
    model_repository_parameter::ParameterChoice as LoadChoice,
};
use testing::grpc::framed_gzip;

use super::*;
use crate::{
    access::{Category, Restrictions},
    forward::HeaderForward,
    grpc::{CompressionLevel, message::decode::tests::decoded_here},
    port::ClientLimits,
};

const SERVICE: &str = "/inference.GRPCInferenceService/";

#[tokio::test]
async fn a_request_comes_back_from_the_identity_model() {
    let (_server, connection) = connected().await;
    let response = infer(&connection, &[], &request("id_int32", "r1", &[7])).await.unwrap();
    assert_eq!((&*response.model_name, &*response.model_version, &*response.id), ("id_int32", "1", "r1"));
    assert_eq!((&*response.outputs[0].name, &*response.outputs[0].datatype), ("OUT", "INT32"));
    assert_eq!(response.outputs[0].shape, [1]);
    assert_eq!(response.raw_output_contents, [bytes_of(&[7])]);
    // Only streamed responses contain the final flag.
    assert_eq!(response.parameters, no_parameters());
}

#[tokio::test]
async fn the_load_follows_the_answers_of_calls_that_ask_for_it() {
    let (_server, connection) = connected().await;
    let asks = metadata(&[("endpoint-load-metrics-format", "any")]);
    for name in ["ModelInfer", "ModelStreamInfer"] {
        for headers in [&asks[..], &[]] {
            let mut call = connection.call(&format!("{SERVICE}{name}"), headers).await.unwrap();
            call.send(sent(&request("id_int32", "", &[7])));
            call.finish();
            while timeout(TIMEOUT, call.next()).await.unwrap().unwrap().is_some() {}
            assert_eq!(call.trailer("grpc-status"), Some("0"));
            let report = call.trailer("endpoint-load-metrics-bin");
            assert_eq!(report.is_some(), !headers.is_empty(), "{name}");
        }
    }
}

#[tokio::test]
async fn a_tensor_of_many_frames_is_echoed_unchanged() {
    let (server, connection) = connected().await;
    server.gate.open();
    let values: Vec<i32> = (0..3_000_000).collect();
    let response = infer(&connection, &[], &request("gated", "", &values)).await.unwrap();
    assert!(response.raw_output_contents[0] == bytes_of(&values));
}

#[tokio::test]
async fn long_decoding_leaves_the_network_thread() {
    let (_server, connection) = connected().await;
    let before = decoded_here();
    for (count, decoded) in [(10, 1), (2 * BRIEF, 1), (10, 2)] {
        let values = vec![1; count];
        let response = infer(&connection, &[], &typed(request("id_int32", "", &values))).await.unwrap();
        assert!(response.raw_output_contents[0] == bytes_of(&values));
        assert_eq!(decoded_here() - before, decoded);
    }
    let unknown = typed(request("none", "", &vec![1; 2 * BRIEF]));
    let refused = infer(&connection, &[], &unknown).await.unwrap_err();
    assert_eq!(refused.message, "Request for unknown model: 'none' is not found");
}

#[tokio::test]
async fn what_cannot_be_called_is_refused_without_details() {
    let (_server, connection) = connected().await;
    let paths =
        ["/inference.GRPCInferenceService/Nope", "/grpc.health.v1.Health/Watch", "/", "/a.B/ServerLive"];
    for path in paths {
        assert_eq!(status_of(&connection, path, framed(b"")).await, expect(12, ""), "{path}");
    }
    let not_offered = [
        ("LogSettings", "the log of this process is not the server's to set"),
        (
            "SystemSharedMemoryRegister",
            "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
        ),
    ];
    for (name, text) in not_offered {
        let path = format!("{SERVICE}{name}");
        assert_eq!(status_of(&connection, &path, framed(b"")).await, expect(12, text));
    }
}

#[tokio::test]
async fn what_is_no_message_is_refused() {
    let (_server, connection) = connected().await;
    let broken = framed(&[0xff, 0xff, 0xff, 0xff]);
    for name in ["ModelInfer", "ModelReady", "ModelStreamInfer"] {
        let status = status_of(&connection, &format!("{SERVICE}{name}"), broken.clone()).await;
        assert_eq!(status, expect(13, "Unable to parse request"), "{name}");
    }
}

#[tokio::test]
async fn a_ready_check_of_an_unknown_model_is_no_error() {
    let (_server, connection) = connected().await;
    let path = format!("{SERVICE}ModelReady");
    for (name, version, ready) in [("simple", "", true), ("simple", "0", false), ("none", "", false)] {
        let message = sent(&ModelReadyRequest { name: name.into(), version: version.into() });
        let (messages, status) = connection.unary(&path, &[], message).await.unwrap();
        assert_eq!(status.code, 0);
        assert_eq!(ModelReadyResponse::decode(messages[0].clone()).unwrap().ready, ready, "{name} {version}");
    }
    let message = sent(&ModelReadyRequest { name: "simple".into(), version: "1abc".into() });
    let text = "failed to get model version from specified version string '1abc' (details: stol), version should be an integral value > 0";
    assert_eq!(status_of(&connection, &path, message).await, expect(3, text));
}

#[tokio::test]
async fn health_and_readiness_agree() {
    let (server, connection) = connected().await;
    let (messages, _) = connection.unary(&format!("{SERVICE}ServerReady"), &[], framed(b"")).await.unwrap();
    assert!(ServerReadyResponse::decode(messages[0].clone()).unwrap().ready);
    let (messages, _) = connection.unary("/grpc.health.v1.Health/Check", &[], framed(b"")).await.unwrap();
    assert_eq!(messages[0], [8_u8, 1][..]);
    server.engine.stop(TIMEOUT).await.unwrap();
    let exiting = expect(14, "Server exiting");
    assert_eq!(status_of(&connection, "/grpc.health.v1.Health/Check", framed(b"")).await, exiting);
}

#[tokio::test]
async fn metadata_shows_tensors_with_the_batch_dimension() {
    let (_server, connection) = connected().await;
    let message = sent(&ModelMetadataRequest { name: "simple".into(), version: String::new() });
    let (messages, _) = connection.unary(&format!("{SERVICE}ModelMetadata"), &[], message).await.unwrap();
    let model = ModelMetadataResponse::decode(messages[0].clone()).unwrap();
    assert_eq!((model.platform.as_str(), model.versions.as_slice()), ("python", &["1".to_owned()][..]));
    assert_eq!(
        (model.inputs[0].datatype.as_str(), model.inputs[0].shape.as_slice()),
        ("INT32", &[-1, 16][..])
    );
}

#[tokio::test]
async fn admin_calls_refuse_what_they_do_not_know() {
    let (_server, connection) = connected().await;
    let index = sent(&RepositoryIndexRequest { repository_name: "x".into(), ready: false });
    let other = "'repository_name' specification is not supported";
    assert_eq!(status_of(&connection, &format!("{SERVICE}RepositoryIndex"), index).await, expect(12, other));
    let statistics = sent(&ModelStatisticsRequest { name: "none".into(), version: String::new() });
    let text = "requested model 'none' is not available";
    assert_eq!(
        status_of(&connection, &format!("{SERVICE}ModelStatistics"), statistics).await,
        expect(3, text)
    );

    let parameter = |choice| ModelRepositoryParameter { parameter_choice: Some(choice) };
    let load = |key: &str, choice| {
        sent(&RepositoryModelLoadRequest {
            model_name: "simple".into(),
            parameters: [(key.to_owned(), parameter(choice))].into(),
            ..RepositoryModelLoadRequest::default()
        })
    };
    let path = format!("{SERVICE}RepositoryModelLoad");
    let text = || LoadChoice::StringParam("x".into());
    let not_explicit = "explicit model load / unload is not allowed if polling is enabled. Model control mode 'explicit' allows it (--model-control-mode=explicit)";
    let expected = [
        (load("foo", text()), expect(3, "unrecognized load parameter 'foo'.")),
        (
            load("config", LoadChoice::BoolParam(true)),
            expect(3, "invalid value type for load parameter 'config', expected string_param."),
        ),
        (
            load("file:x", text()),
            expect(3, "invalid value type for load parameter 'file:x', expected bytes_param."),
        ),
        (load("config", text()), expect(14, not_explicit)),
    ];
    for (message, status) in expected {
        assert_eq!(status_of(&connection, &path, message).await, status);
    }
    let plain = sent(&RepositoryModelLoadRequest { model_name: "simple".into(), ..Default::default() });
    let none_mode = "explicit model load / unload is not allowed if polling is enabled. Model control mode 'explicit' allows it (--model-control-mode=explicit)";
    assert_eq!(status_of(&connection, &path, plain).await, expect(14, none_mode));
    let unload = sent(&RepositoryModelUnloadRequest {
        model_name: "simple".into(),
        parameters: [("unload_dependents".to_owned(), parameter(text()))].into(),
        ..RepositoryModelUnloadRequest::default()
    });
    let text = "invalid value type for 'unload_dependents' parameter, expected bool_param.";
    assert_eq!(
        status_of(&connection, &format!("{SERVICE}RepositoryModelUnload"), unload).await,
        expect(3, text)
    );
}

#[tokio::test]
async fn a_request_is_refused_for_its_first_fault() {
    let (_server, connection) = connected().await;
    let good = request("id_int32", "", &[1]);
    let refused = async |request: ModelInferRequest| {
        let status = infer(&connection, &[], &request).await.unwrap_err();
        (status.code, status.message)
    };
    let unknown = request("none", "", &[1]);
    assert_eq!(refused(unknown).await, expect(5, "Request for unknown model: 'none' is not found"));

    let mut both = good.clone();
    both.inputs[0].contents = Some(proto::InferTensorContents::default());
    let text =
        "contents field must not be specified when using raw_input_contents for 'IN' for model 'id_int32'";
    assert_eq!(refused(both).await, expect(3, text));

    let mut missing = good.clone();
    missing.raw_input_contents.clear();
    let text = "unable to find data for input tensor 'IN' for model 'id_int32' in request.";
    assert_eq!(refused(missing).await, expect(3, text));

    let mut datatype = good.clone();
    datatype.inputs[0].datatype = "INT".into();
    let meant = "'INT' is not a datatype, did you mean 'INT32'?";
    let text = "[request id: <id_unknown>] inference input 'IN' data-type is '<invalid>', but model 'id_int32' expects 'INT32'";
    assert_eq!(refused(datatype.clone()).await, expect(3, &format!("{text}: {meant}")));
    datatype.raw_input_contents.clear();
    datatype.inputs[0].contents =
        Some(proto::InferTensorContents { int_contents: vec![1], ..Default::default() });
    let text = "unexpected explicit tensor data for input tensor 'IN' for model 'id_int32' of type 'INT32', expected datatype '<invalid>'";
    assert_eq!(refused(datatype).await, expect(3, &format!("{text}: {meant}")));

    let mut region = good.clone();
    let choice = |choice| InferParameter { parameter_choice: Some(choice) };
    region.inputs[0].parameters = [
        ("shared_memory_region".to_owned(), choice(ParameterChoice::StringParam("r".into()))),
        ("shared_memory_byte_size".to_owned(), choice(ParameterChoice::Int64Param(4))),
    ]
    .into();
    assert_eq!(refused(region).await, expect(5, "Unable to find shared memory region: 'r'"));

    let decoupled = request("repeat", "", &[1]);
    let text = "ModelInfer RPC doesn't support models with decoupled transaction policy";
    assert_eq!(refused(decoupled).await, expect(12, text));

    let failing = request("errs", "", &[6]);
    assert_eq!(refused(failing).await, expect(6, "code 6"));
}

#[tokio::test]
async fn surplus_raw_contents_are_ignored() {
    let (_server, connection) = connected().await;
    let mut surplus = request("id_int32", "", &[1]);
    surplus.raw_input_contents.push(bytes_of(&[2]));
    let response = infer(&connection, &[], &surplus).await.unwrap();
    assert_eq!(response.raw_output_contents, [bytes_of(&[1])]);
}

#[tokio::test]
async fn the_best_classes_replace_an_output() {
    let (_server, connection) = connected().await;
    let wanted = |count| InferRequestedOutputTensor {
        name: "OUT".into(),
        parameters: [(
            "classification".to_owned(),
            InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(count)) },
        )]
        .into(),
    };
    let mut classified = request("id_int32", "", &[5]);
    classified.outputs.push(wanted(1));
    let response = infer(&connection, &[], &classified).await.unwrap();
    assert_eq!(response.outputs[0].datatype, "BYTES");
    assert_eq!(response.raw_output_contents, ["\x03\0\0\x005:0"]);
    classified.outputs[0] = wanted(0);
    let refused = infer(&connection, &[], &classified).await.unwrap_err();
    assert_eq!(refused.message, "invalid value for 'classification' parameter, expected >= 0");
}

#[tokio::test]
async fn a_sequence_id_of_any_integer_type_reaches_the_model() {
    let (_server, connection) = connected().await;
    let numbered = with(request("params", "", &[1]), "sequence_id", ParameterChoice::Uint64Param(9));
    let response = infer(&connection, &[], &numbered).await.unwrap();
    let seen = String::from_utf8_lossy(&response.raw_output_contents[0][4..]).into_owned();
    assert!(seen.contains("\"corr\": 9"), "{seen}");
    let late = with(request("params", "", &[1]), "timeout", ParameterChoice::Int64Param(-1));
    assert_eq!(infer(&connection, &[], &late).await.unwrap_err().code, 3);
}

#[tokio::test]
async fn messages_may_be_compressed_both_ways() {
    let options = GrpcOptions { compression: CompressionLevel::High, ..GrpcOptions::default() };
    let server = Server::start(options).await;
    server.gate.open();
    let connection = server.connect().await;
    let message = framed_gzip(&request("gated", "", &[0; 100_000]).encode_to_vec());
    let headers = metadata(&[("grpc-encoding", "gzip")]);
    let (messages, status) = connection.unary(INFER, &headers, message.clone()).await.unwrap();
    assert_eq!(status.code, 0);
    let response = ModelInferResponse::decode(messages[0].clone()).unwrap();
    assert_eq!(response.raw_output_contents[0], vec![0; 400_000]);

    // This client cannot decompress messages. It reports that it got a compressed message.
    let headers = metadata(&[("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity,gzip")]);
    let broken = connection.unary(INFER, &headers, message).await.unwrap_err();
    assert_eq!(broken, "a compressed message, which nobody asked for");
}

#[tokio::test]
async fn a_message_that_inflates_beyond_the_limit_is_refused_and_others_are_served() {
    let options = GrpcOptions {
        limits: ClientLimits { max_request_bytes: 1 << 20, ..ClientLimits::default() },
        ..GrpcOptions::default()
    };
    let server = Server::start(options).await;
    let connection = server.connect().await;
    let headers = metadata(&[("grpc-encoding", "gzip")]);
    let bomb = framed_gzip(&request("id_int32", "", &[0; 1 << 20]).encode_to_vec());
    let text = "Received message larger than max (1048577 vs. 1048576)";
    let (messages, status) = connection.unary(INFER, &headers, bomb.clone()).await.unwrap();
    assert_eq!((messages.len(), status.code, &*status.message), (0, 8, text));
    let call = connection.call(STREAM, &headers).await.unwrap();
    call.send(bomb);
    let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
    assert_eq!((messages.len(), status.code, &*status.message), (0, 8, text));
    // An uncompressed message has the same limit.
    let (_, status) =
        connection.unary(INFER, &[], sent(&request("id_int32", "", &[0; 1 << 20]))).await.unwrap();
    assert_eq!(status.code, 8);
    assert!(infer(&connection, &[], &request("id_int32", "", &[1])).await.is_ok());
}

#[tokio::test]
async fn an_unknown_compression_is_refused() {
    let (_server, connection) = connected().await;
    let refused = infer(&connection, &[("grpc-encoding", "br")], &request("id_int32", "", &[1])).await;
    let status = refused.unwrap_err();
    assert_eq!((status.code, &*status.message), (12, "Compression algorithm 'br' is not supported."));
}

#[tokio::test]
async fn a_deadline_ends_the_call_and_cancels_the_request() {
    let (server, connection) = connected().await;
    // No time is too little for any answer.
    let none =
        infer(&connection, &[("grpc-timeout", "0n")], &request("id_int32", "", &[1])).await.unwrap_err();
    assert_eq!((none.code, &*none.message), (4, "Deadline Exceeded"));
    let _running = call(&connection, &request("gated", "", &[1])).await;
    server.in_flight(1).await;
    // This request waits for the request that the gate holds.
    let late = infer(&connection, &[("grpc-timeout", "20m")], &request("gated", "", &[2])).await.unwrap_err();
    assert_eq!((late.code, &*late.message), (4, "Deadline Exceeded"));
    server.in_flight(1).await;
    server.gate.open();
}

#[tokio::test]
async fn a_cancelled_call_cancels_its_request() {
    let (server, connection) = connected().await;
    let _running = call(&connection, &request("gated", "", &[1])).await;
    let given_up = call(&connection, &request("gated", "", &[2])).await;
    server.in_flight(2).await;
    given_up.abort();
    server.in_flight(1).await;
    server.gate.open();
}

/// Starts a unary call, and returns the task that waits for the answer.
async fn call(connection: &Connection, request: &ModelInferRequest) -> JoinHandle<Result<(), Broken>> {
    let mut call = connection.call(INFER, &[]).await.unwrap();
    call.send(sent(request));
    call.finish();
    tokio::spawn(async move { call.rest().await.map(drop) })
}

#[tokio::test]
async fn a_restricted_part_needs_its_header() {
    let mut restrictions = Restrictions::default();
    restrictions.require(Category::Inference, "triton-grpc-protocol-adm", "gsecret");
    let server = Server::start(GrpcOptions { restrictions, ..GrpcOptions::default() }).await;
    let connection = server.connect().await;
    let good = request("id_int32", "", &[1]);
    let text = "This protocol is restricted, expecting header 'triton-grpc-protocol-adm'";
    for headers in [&[][..], &[("triton-grpc-protocol-adm", "wrong")]] {
        let refused = infer(&connection, headers, &good).await.unwrap_err();
        assert_eq!((refused.code, &*refused.message), (14, text));
    }
    assert_eq!(status_of(&connection, STREAM, sent(&good)).await, expect(14, text));
    assert!(infer(&connection, &[("triton-grpc-protocol-adm", "gsecret")], &good).await.is_ok());
    assert_eq!(status_of(&connection, &format!("{SERVICE}ServerLive"), framed(b"")).await.0, 0);
}

#[tokio::test]
async fn metadata_is_forwarded_by_pattern() {
    let forward = Some(HeaderForward::new("my-.*|priority").unwrap());
    let server = Server::start(GrpcOptions { forward, ..GrpcOptions::default() }).await;
    let connection = server.connect().await;
    let headers = [("my-key", "a"), ("other", "b"), ("my-key", "c")];
    let response = infer(&connection, &headers, &request("params", "", &[1])).await.unwrap();
    let seen = String::from_utf8_lossy(&response.raw_output_contents[0][4..]).into_owned();
    assert!(seen.contains("{\"my-key\": \"c\"}"), "{seen}");
    let refused = infer(&connection, &[("priority", "1")], &request("params", "", &[1])).await.unwrap_err();
    let text = "Header 'priority' is reserved for Triton usage and cannot be forwarded.";
    assert_eq!((refused.code, &*refused.message), (3, text));
}

/// The contents are malformed, which only their decoder can tell.
#[tokio::test]
async fn the_model_is_looked_up_before_tensors_are_decoded() {
    let (_server, connection) = connected().await;
    for count in [1, 2 * kserve::long_write::BRIEF] {
        let malformed = |model: &str| {
            let mut message = request(model, "", &[]);
            message.raw_input_contents.clear();
            let mut input = message.inputs.remove(0).encode_to_vec();
            // contents { int_contents: the beginning of a number }
            let length = u32::try_from(count).unwrap();
            let packed = [field(2, length), vec![0x80; count]].concat();
            input.extend([field(5, u32::try_from(packed.len()).unwrap()), packed].concat());
            let mut bytes = message.encode_to_vec();
            bytes.extend([field(5, u32::try_from(input.len()).unwrap()), input].concat());
            framed(&bytes)
        };
        let unknown = status_of(&connection, INFER, malformed("none")).await;
        assert_eq!(unknown, expect(5, "Request for unknown model: 'none' is not found"));
        let known = status_of(&connection, INFER, malformed("id_int32")).await;
        assert_eq!(known, expect(13, "Unable to parse request"));
    }
}

/// Tag and length of a delimited field.
fn field(number: u8, length: u32) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    prost::encoding::encode_varint(length.into(), &mut bytes);
    bytes
}

#[tokio::test]
async fn shapes_ids_and_names_have_limits() {
    let (_server, connection) = connected().await;
    let refused = async |request: ModelInferRequest| {
        let status = infer(&connection, &[], &request).await.unwrap_err();
        (status.code, status.message)
    };
    let mut long = request("id_int32", "", &[1]);
    long.inputs[0].shape = vec![1; 257];
    let text = "the shape of input 'IN' for model 'id_int32' has more than 256 dimensions";
    assert_eq!(refused(long.clone()).await, expect(3, text));
    long.inputs[0].shape.pop();
    let shown = refused(long).await.1;
    assert!(shown.contains(",1,... (256 dimensions)]") && shown.len() < 1000, "{shown}");

    let longest = "i".repeat(64 << 10);
    assert_eq!(infer(&connection, &[], &request("id_int32", &longest, &[1])).await.unwrap().id, longest);
    let text = "the id of the request has 65537 bytes, and at most 65536 are allowed";
    assert_eq!(refused(request("id_int32", &format!("{longest}i"), &[1])).await, expect(3, text));
    let text = "the name of the model has 65537 bytes, and at most 65536 are allowed";
    assert_eq!(refused(request(&format!("{longest}i"), "", &[1])).await, expect(3, text));
    let mut input = request("id_int32", "", &[1]);
    input.inputs[0].name = format!("{longest}i");
    let text = "the name of an input has 65537 bytes, and at most 65536 are allowed";
    assert_eq!(refused(input).await, expect(3, text));
}

#[tokio::test]
async fn a_decoded_tensor_is_reserved_besides_its_message() {
    let limits = host::MemoryLimits { inflight_bytes: 100_000, ..host::MemoryLimits::default() };
    let server = Server::start_within(GrpcOptions::default(), limits).await;
    let connection = server.connect().await;
    let of = |count| typed(request("id_int32", "", &vec![1; count]));
    assert!(infer(&connection, &[], &of(15_000)).await.is_ok());
    let refused = infer(&connection, &[], &of(22_000)).await.unwrap_err();
    let expected = "the server has no room for 88000 more bytes of requests";
    assert!(refused.code == 8 && refused.message.starts_with(expected), "{refused:?}");
    counted(&server, 0..=0).await;
}

#[tokio::test]
async fn an_answer_counts_until_its_client_has_read_it() {
    const LEN: usize = 4 << 20;
    let server = Server::start(GrpcOptions::default()).await;
    let connection = server.connect().await;
    for path in [INFER, STREAM] {
        let mut call = connection.call(path, &[]).await.unwrap();
        call.send(sent(&request("id_int32", "", &vec![1; LEN / 4])));
        call.finish();
        // The request itself counts no more.
        counted(&server, LEN..=LEN + 8192).await;
        let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
        assert!(messages[0].len() > LEN && status.code == 0, "{status:?}");
        counted(&server, 0..=0).await;
    }
}

#[tokio::test]
async fn many_classes_are_ranked_like_few() {
    let (_server, connection) = connected().await;
    let values: Vec<i32> = (0..40_000).collect();
    let mut message = request("id_int32", "", &values);
    let classes = InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(40_000)) };
    message.outputs.push(InferRequestedOutputTensor {
        name: "OUT".to_owned(),
        parameters: [("classification".to_owned(), classes)].into(),
    });
    let texts: Vec<u8> = (0..40_000)
        .rev()
        .map(|value| format!("{value}:{value}"))
        .flat_map(|text| [&u32::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat())
        .collect();
    let answer = infer(&connection, &[], &message).await.unwrap();
    assert_eq!(answer.outputs[0].shape, [40_000]);
    assert!(answer.raw_output_contents[0] == texts);
    let mut call = connection.call(STREAM, &[]).await.unwrap();
    call.send(sent(&message));
    call.send(sent(&request("id_int32", "after", &[1])));
    call.finish();
    let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
    assert_eq!((messages.len(), status.code), (2, 0));
    let answers = messages.iter().map(|message| {
        let message = proto::ModelStreamInferResponse::decode(message.clone()).unwrap();
        message.infer_response.unwrap()
    });
    let [first, second] = answers.collect::<Vec<_>>().try_into().unwrap();
    assert!(first.raw_output_contents[0] == texts);
    assert_eq!(second.id, "after");
}

#[tokio::test]
async fn rare_calls_have_short_messages_but_for_loads() {
    let (_server, connection) = connected().await;
    let live = "/inference.GRPCInferenceService/ServerLive";
    // Field 1, which the message does not have.
    let of = |length: usize| {
        let mut bytes = vec![0x0a];
        prost::encoding::encode_varint(length as u64, &mut bytes);
        bytes.resize(bytes.len() + length, b'x');
        framed(&bytes)
    };
    assert_eq!(status_of(&connection, live, of((4 << 20) - 5)).await, expect(0, ""));
    let text = "Received message larger than max (4194305 vs. 4194304)";
    assert_eq!(status_of(&connection, live, of((4 << 20) - 4)).await, expect(8, text));
    let content =
        ModelRepositoryParameter { parameter_choice: Some(LoadChoice::BytesParam(vec![1; 5 << 20].into())) };
    let load = RepositoryModelLoadRequest {
        model_name: "simple".into(),
        parameters: [("file:1/x".to_owned(), content)].into(),
        ..RepositoryModelLoadRequest::default()
    };
    let path = "/inference.GRPCInferenceService/RepositoryModelLoad";
    let text = "explicit model load / unload is not allowed if polling is enabled. Model control mode 'explicit' allows it (--model-control-mode=explicit)";
    assert_eq!(status_of(&connection, path, sent(&load)).await, expect(14, text));
}

/// A request to load a model with these parameters.
fn load_of(
    parameters: impl IntoIterator<Item = (String, LoadChoice)>,
) -> (&'static str, RepositoryModelLoadRequest) {
    let parameters = parameters.into_iter();
    let of = |choice| ModelRepositoryParameter { parameter_choice: Some(choice) };
    let load = RepositoryModelLoadRequest {
        model_name: "simple".into(),
        parameters: parameters.map(|(key, choice)| (key, of(choice))).collect(),
        ..RepositoryModelLoadRequest::default()
    };
    ("/inference.GRPCInferenceService/RepositoryModelLoad", load)
}

#[tokio::test]
async fn what_rare_messages_become_is_reserved_before() {
    let limits = host::MemoryLimits { inflight_bytes: 100_000, ..host::MemoryLimits::default() };
    let server = Server::start_within(GrpcOptions::default(), limits).await;
    let connection = server.connect().await;
    let settings = |length| TraceSettingRequest { model_name: "m".repeat(length), ..Default::default() };
    let path = "/inference.GRPCInferenceService/TraceSetting";
    let (code, text) = status_of(&connection, path, sent(&settings(2000))).await;
    assert!(code != 8, "{text}");
    let (code, text) = status_of(&connection, path, sent(&settings(3000))).await;
    assert!(code == 8 && text.contains("no room for 120120 more bytes"), "{text}");
    let config = LoadChoice::StringParam(format!("{{{}}}", " ".repeat(98)));
    let (path, load) = load_of([("config".to_owned(), config)]);
    let (code, text) = status_of(&connection, path, sent(&load)).await;
    assert!(code == 8 && text.contains("no room for 102400 more bytes"), "{text}");
    counted(&server, 0..=0).await;
}

#[tokio::test]
async fn a_load_has_a_limit_of_parameters() {
    let (_server, connection) = connected().await;
    let files = |count| {
        let file = |number| (format!("file:{number}"), LoadChoice::BytesParam(Bytes::new()));
        load_of((0..count).map(file))
    };
    let (path, load) = files((1 << 16) - 1);
    let (code, text) = status_of(&connection, path, sent(&load)).await;
    assert!(code == 14 && text.starts_with("explicit model load / unload is not allowed"), "{text}");
    let (path, load) = files(1 << 16);
    let text = "a request to load a model may have fewer than 65536 parameters";
    assert_eq!(status_of(&connection, path, sent(&load)).await, expect(3, text));
}
