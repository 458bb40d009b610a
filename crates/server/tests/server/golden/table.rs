//! The lists: exchanges of features that are not built, and exchanges with deliberately different responses.
//!
//! Ids that begin with D are differences between the recorded release and the release that defines compatibility. Ids
//! with P-W and S-W are weaknesses of both releases that this server does not have. Ids with P-N follow from how this
//! server reads its connections, from its name, and from the remedies that it tells. `docs/records/differences.md` gives
//! the reasons.
use crate::golden::expect::Patch::{
    self, Body, Code, Header, Inflated, KeptOpen, NoHeader, Raw, Remedy, Status, Swap,
};

/// An exchange with a deliberately different response.
#[derive(Debug)]
pub(crate) struct Otherwise {
    pub(crate) name: &'static str,
    /// The id of the difference.
    pub(crate) id: &'static str,
    /// The differences of the response. Empty if a scenario checks them.
    pub(crate) patches: &'static [Patch],
}

/// Features that are not built, and the exchanges that need them. This list only gets shorter: if an exchange gives the
/// expected response, it must be removed from the list.
pub(crate) const NOT_BUILT: &[(&str, &[&str])] = &[];

/// Exchanges by the prefix of their names, and the tests that cover them.
pub(crate) const SHOWN_ELSEWHERE: &[(&str, &str)] = &[("signal_", "crates/server/tests/server/shutdown.rs")];

const JSON: Patch = Header("Content-Type", "application/json");

const VERSION: Patch = Swap("2.51.0", "2.73.0");

const NOT_GZIP: &str = r#"{"error":"failed to decompress request"}"#;

const SERVER_METADATA: &str = r#"{"name":"triton","version":"2.73.0","extensions":["classification","sequence","model_repository","model_repository(unload_dependents)","schedule_policy","model_configuration","system_shared_memory","cuda_shared_memory","binary_tensor_data","parameters","statistics","trace","logging"]}"#;

const UNALIGNED: &str = r#"{"error":"failed to register shared memory region 'rb': unable to process address spaceInvalid argument"}"#;

const EMPTY: &str = r#"{"error":"failed to register shared memory region 'rz': unable to process address spaceInvalid argument"}"#;

const RESERVED: &str = r#"{"error":"cannot register shared memory region 'rb' with key '/triton_python_backend_shm_region_1' as the key contains the reserved prefix 'triton_python_backend_shm_region_'"}"#;

const SIMPLE: &str = r#"{"model_name":"simple","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"INT32","shape":[1,16],"data":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]},{"name":"OUTPUT1","datatype":"INT32","shape":[1,16],"data":[-1,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14]}]}"#;

const EXPLICIT_ONLY: &str = ". Model control mode 'explicit' allows it (--model-control-mode=explicit)";

const NO_DATA: &str = ". The request has no data";

const FOO: &str = ": 'FOO' is not a datatype, datatypes are BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, FP32, FP64, BYTES, BF16";

const BAD_REQUEST: &str = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

const LIVE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n";

const fn on(name: &'static str, id: &'static str, patches: &'static [Patch]) -> Otherwise {
    Otherwise { name, id, patches }
}

/// The responses that this server gives instead.
pub(crate) const OTHERWISE: &[Otherwise] = &[
    on("not_found", "P-W10", &[JSON]),
    on("v2_health_root", "P-W10", &[JSON]),
    on("model_ready_unknown", "P-W10", &[JSON]),
    on("model_ready_bad", "P-W10", &[JSON]),
    on("delete_live", "P-W10", &[JSON]),
    on("options_live", "P-W10", &[JSON]),
    on("double_slash", "P-W10", &[JSON]),
    on("infer_get", "P-W10", &[JSON]),
    on("infer_unknown_model", "P-W10", &[JSON]),
    on("bin_fp16_json_out", "P-W10", &[JSON]),
    on("cmp_req_GZIP_case", "P-W10", &[JSON]),
    on("cmp_req_empty", "P-W10", &[JSON]),
    on("err_code_0", "P-W10", &[JSON]),
    on("err_code_1", "P-W10", &[JSON]),
    on("err_code_3", "P-W10", &[JSON]),
    on("err_code_5", "P-W10", &[JSON]),
    on("err_code_6", "P-W10", &[JSON]),
    on("err_code_7", "P-W10", &[JSON]),
    on("rst_index_denied", "P-W10", &[JSON]),
    on("rst_index_get_denied", "P-W10", &[JSON]),
    on("rst_stats_denied", "P-W10", &[JSON]),
    on("bytes_last_elem_truncated", "P-W10", &[JSON]),
    on(
        "cli_host_policy_p_zz_1",
        "P-N5",
        &[Swap("Failed to build Triton option:", "Failed to build the server's options:")],
    ),
    on("repo_load_none_mode", "P-N9", &[Remedy(EXPLICIT_ONLY)]),
    on("g_load_none_mode", "P-N9", &[Remedy(EXPLICIT_ONLY)]),
    on("g_unload_none_mode", "P-N9", &[Remedy(EXPLICIT_ONLY)]),
    on("infer_empty_body", "P-N9", &[Remedy(NO_DATA)]),
    on("infer_no_body", "P-N9", &[Remedy(NO_DATA)]),
    on("infer_unknown_output", "P-N9", &[Remedy(". Available output(s): ['OUTPUT0','OUTPUT1']")]),
    on("infer_bad_dtype", "P-N9", &[Remedy(FOO)]),
    on("g_infer_baddtype", "P-N9", &[Remedy(FOO)]),
    on(
        "infer_data_string_in_int",
        "P-N9",
        &[Remedy(": input 'INPUT0' has a string at [0,0], where INT32 is needed")],
    ),
    on(
        "infer_data_float_in_int",
        "P-N9",
        &[Remedy(": input 'INPUT0' has a number of another kind at [0,0], where INT32 is needed")],
    ),
    on(
        "dt_BOOL_ints",
        "P-N9",
        &[Remedy(": input 'IN' has a number of another kind at [0], where BOOL is needed")],
    ),
    on("dt_FP32_nan_string", "P-N9", &[Remedy(": input 'IN' has a string at [0], where FP32 is needed")]),
    on(
        "dt_BYTES_int",
        "P-N9",
        &[Remedy(": input 'IN' has a number of another kind at [0], where BYTES is needed")],
    ),
    on("json_empty_input_name", "P-N9", &[Remedy(". Available input(s): ['IN']")]),
    on("server_metadata", "P-N6", &[VERSION]),
    on("cmp_meta_ae", "P-N6", &[VERSION]),
    on("g_meta", "P-N6", &[VERSION]),
    on("server_metadata_slash", "P-W39", &[Status(200), JSON, Body(SERVER_METADATA)]),
    on(
        "infer_unknown_input",
        "P-W17",
        &[
            Swap("['X','INPUT1','INPUT0']", "['INPUT0','INPUT1','X']"),
            Swap(", but missing required input(s) ]. Please provide all required input(s).", "."),
            Remedy(" The model has no input 'X'."),
        ],
    ),
    on(
        "infer_dup_output",
        "D6",
        &[
            Status(400),
            Body(r#"{"error":"[request id: <id_unknown>] output 'OUTPUT1' already exists in request"}"#),
        ],
    ),
    on(
        "bin_hdr_text",
        "D3",
        &[Body(r#"{"error":"Unable to parse Inference-Header-Content-Length, got: abc"}"#)],
    ),
    on(
        "bin_hdr_huge",
        "D3",
        &[
            JSON,
            Body(
                r#"{"error":"Unable to parse Inference-Header-Content-Length, value is out of range [ -2147483648, 2147483647 ], got: 99999999999"}"#,
            ),
        ],
    ),
    on("cmp_req_garbage", "P-W9", &[Body(NOT_GZIP)]),
    on("cmp_req_raw_deflate", "P-W9", &[Body(NOT_GZIP)]),
    on(
        "chunked_bytes_split_len",
        "P-W1",
        &[
            Status(200),
            Body(
                r#"{"model_name":"id_string","model_version":"1","outputs":[{"name":"OUT","datatype":"BYTES","shape":[3],"data":["abc","defgh","i"]}]}"#,
            ),
        ],
    ),
    on("pipelined_3_gets", "P-W14", &[]),
    on("gen_on_decoupled_0", "P-W7", &[Status(400)]),
    on("gen_on_decoupled_2", "P-W7", &[Status(400)]),
    on("gen_err_code_1", "P-W6", &[Status(500)]),
    on("gen_err_code_2", "P-W6", &[Status(404)]),
    on("gen_err_code_5", "P-W6", &[Status(501)]),
    on("gens_first_err", "P-W6", &[Status(500)]),
    on(
        "gens_missing",
        "S-W1",
        &[
            JSON,
            Body(
                r#"{"error":"[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 1 inputs for model 'gens'. Got input(s) ['n'], but missing required input(s) ['text_input']. Please provide all required input(s)."}"#,
            ),
        ],
    ),
    on("gens_err_code_1", "P-W6", &[Status(500)]),
    on("gens_err_code_4", "P-W6", &[Status(503)]),
    on("gens_err_code_5", "P-W6", &[Status(501)]),
    on(
        "orca_json",
        "D16",
        &[Header(
            "endpoint-load-metrics",
            r#"JSON {"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":6400}}"#,
        )],
    ),
    on(
        "orca_text",
        "D16",
        &[Header(
            "endpoint-load-metrics",
            "TEXT named_metrics.kv_cache_utilization=0.250000, named_metrics.max_token_capacity=6400",
        )],
    ),
    on(
        "mc_load_unknown",
        "M-W9",
        &[Swap(
            "failed to poll from model repository",
            "failed to poll from model repository: no repository has a model 'zzz'",
        )],
    ),
    on(
        "mc_load_file_noconfig",
        "M-W9",
        &[Swap(
            "failed to poll from model repository",
            "failed to poll from model repository: Load parameter 'config' must be specified for model file override",
        )],
    ),
    on("metrics_full_text", "P-W40", &[]),
    on("log_bad_format", "P-W63", &[Status(400)]),
    on(
        "fwd_reserved",
        "D10",
        &[
            Status(400),
            Body(r#"{"error":"Header 'sequence_id' is reserved for Triton usage and cannot be forwarded."}"#),
        ],
    ),
    on(
        "fwd_reserved_priority",
        "D10",
        &[
            Status(400),
            Body(r#"{"error":"Header 'priority' is reserved for Triton usage and cannot be forwarded."}"#),
        ],
    ),
    on(
        "fwd_triton",
        "D10",
        &[
            Status(400),
            Body(r#"{"error":"Header 'triton_foo' is reserved for Triton usage and cannot be forwarded."}"#),
        ],
    ),
    on(
        "json_depth_150",
        "D7",
        &[
            Status(400),
            Body(
                r#"{"error":"Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (100)"}"#,
            ),
        ],
    ),
    on(
        "generate_nested",
        "P-W52",
        &[Status(200), Body(r#"{"OUT":[1.0,2.0,3.0,4.0],"model_name":"id2d","model_version":"1"}"#)],
    ),
    on(
        "g_mready_1abc",
        "P-W16",
        &[Code(
            "INVALID_ARGUMENT",
            "failed to get model version from specified version string '1abc' (details: stol), version should be an integral value > 0",
        )],
    ),
    on("crash_json_shape_overflow", "D4", &[]),
    on("crash_stream_cancel_decoupled", "P-W42", &[]),
    on("cli_grpc_ssl_with_missing_cert_files", "P-W22", &[]),
    on("cmp_ae_gzip", "P-W23", &[NoHeader("Content-Encoding"), Body(SIMPLE)]),
    on("cmp_ae_deflate", "P-W23", &[NoHeader("Content-Encoding"), Body(SIMPLE)]),
    on("cmp_ae_ gzip", "P-W23", &[NoHeader("Content-Encoding"), Body(SIMPLE)]),
    on("cmp_bin_gzip", "P-W23", &[NoHeader("Content-Encoding"), Inflated]),
    on("raw_garbage", "P-N1", &[Raw(BAD_REQUEST)]),
    on("raw_badcl", "P-N1", &[Raw(BAD_REQUEST)]),
    on("raw_lfonly", "P-N2", &[Raw(LIVE), KeptOpen(true)]),
    on(
        "g_unimpl_/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "P-N4",
        &[Code("INVALID_ARGUMENT", "invalid MessageRequest")],
    ),
    on(
        "g_unimpl_/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "P-N4",
        &[Code("INVALID_ARGUMENT", "invalid MessageRequest")],
    ),
    on(
        "shm_reg_offset_oob",
        "D12",
        &[Status(400), Body(r#"{"error":"failed to register shared memory region 'rb': invalid args"}"#)],
    ),
    on("shm_reg_offset_unaligned", "D12", &[Status(400), Body(UNALIGNED)]),
    on("shm_reg_zero", "D12", &[Status(400), Body(EMPTY)]),
    on("shm_reg_reserved", "D12", &[Status(400), Body(RESERVED)]),
    on(
        "shm_reg_slashes",
        "D12",
        &[
            Status(400),
            Body(r#"{"error":"cannot register shared memory region 'rb' - invalid shm key '///'"}"#),
        ],
    ),
    on(
        "g_cshm_reg_short",
        "P-N8",
        &[Code("INVALID_ARGUMENT", "failed to register CUDA shared memory region: 'a', GPUs not supported")],
    ),
    on(
        "cshm_reg_full",
        "P-N8",
        &[Body(r#"{"error":"failed to register CUDA shared memory region: 'c', GPUs not supported"}"#)],
    ),
    on("sm_ping_post", "P-W10", &[JSON]),
    on("sm_inv_get", "P-W10", &[JSON]),
    on("sm_inv_toolong", "P-W10", &[JSON]),
    on("vx_pred_get", "P-W10", &[JSON]),
    on("vx_redir_meta", "P-N6", &[VERSION]),
    on(
        "trace_set_rate_neg",
        "P-W4",
        &[
            Status(400),
            Body(
                r#"{"error":"Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1"}"#,
            ),
        ],
    ),
    on("trace_set_count", "P-W4", &[Swap("4294967295", "1000")]),
];

/// The missing feature that the exchange needs.
pub(crate) fn feature_of(name: &str) -> Option<&'static str> {
    NOT_BUILT.iter().find(|(_, names)| names.contains(&name)).map(|(feature, _)| *feature)
}

/// The deliberate difference of the exchange.
pub(crate) fn difference_of(name: &str) -> Option<&'static Otherwise> {
    OTHERWISE.iter().find(|otherwise| otherwise.name == name)
}
