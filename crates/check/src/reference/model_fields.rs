//! Notes about the fields of a model, its tensors, instances and samples.

use config::rule;

use super::notes::{FieldNote, field, shown, value};
use crate::rules::REPOSITORY_AGENT;

pub(super) const MODEL: &[FieldNote] = &[
    field("ModelConfig.name", "").default("the name of the directory").refused(&[value(
        "another name than the directory's",
        rule::MODEL_NAME,
        "name: 'other'",
    )]),
    field("ModelConfig.platform", "").default("from `backend`").refused(&[
        value("an unknown platform without `backend`", rule::PLATFORM, "platform: 'nothing'"),
        value(
            "a platform of another backend",
            rule::PLATFORM,
            "backend: 'onnxruntime' platform: 'tensorrt_plan'",
        ),
    ]),
    field("ModelConfig.backend", "What runs the model: `onnxruntime`, `python`, `image`, or a plug-in.")
        .default("from `platform`, the model file, or a directory named `<any>.<backend>`")
        .refused(&[value("a backend that is not there", rule::BACKEND, "backend: 'nothing'")]),
    field("ModelConfig.runtime", "").default("`libtriton_<backend>.so`"),
    field("ModelConfig.version_policy", "Which versions are served.")
        .default("`latest { num_versions: 1 }`")
        .refused(&[value(
            "a policy that leaves no version",
            rule::VERSION_POLICY,
            "version_policy { specific { versions: 7 } }",
        )]),
    field("ModelConfig.max_batch_size", "The most rows of a batch.")
        .default("0; for ONNX 4, if the graph can be batched")
        .refused(&[value("a negative number", rule::MAX_BATCH_SIZE, "max_batch_size: -1")]),
    field("ModelConfig.input", "The inputs.").default("for ONNX those of the graph").refused(&[value(
        "a name twice",
        rule::TENSOR,
        "input { name: 'IN' data_type: TYPE_FP32 dims: 1 }",
    )]),
    field("ModelConfig.output", "The outputs.").default("for ONNX those of the graph").refused(&[value(
        "a name twice",
        rule::TENSOR,
        "output { name: 'OUT' data_type: TYPE_FP32 dims: 1 }",
    )]),
    field("ModelConfig.batch_input", "Inputs that tell how a ragged batch is composed."),
    field("ModelConfig.batch_output", "Outputs that are divided among requests by the shape of an input."),
    field("ModelConfig.optimization", "Hints for the backend.").refused(&[value(
        "for an ensemble",
        rule::ENSEMBLE,
        "platform: 'ensemble' ensemble_scheduling { step { model_name: 'none' input_map { key: 'X' value: 'IN' } \
         output_map { key: 'Y' value: 'OUT' } } } optimization { }",
    )]),
    field("ModelConfig.dynamic_batching", "Collects requests of several clients into one execution.")
        .default("each request runs alone; for ONNX without a configuration: on"),
    field("ModelConfig.sequence_batching", "Requests of one sequence reach one instance, in order."),
    field("ModelConfig.ensemble_scheduling", "The steps of an ensemble, with `platform: \"ensemble\"`.").refused(&[
        value("for another platform", rule::ENSEMBLE, "backend: 'identity' ensemble_scheduling {}"),
        value("an ensemble without it", rule::ENSEMBLE, "platform: 'ensemble'"),
    ]),
    field("ModelConfig.instance_group", "The instances of each version.").default("one group").refused(&[value(
        "for an ensemble",
        rule::ENSEMBLE,
        "platform: 'ensemble' ensemble_scheduling { step { model_name: 'none' input_map { key: 'X' value: 'IN' } \
         output_map { key: 'Y' value: 'OUT' } } } instance_group { }",
    )]),
    field("ModelConfig.default_model_filename", "")
        .default("that of the backend: `model.onnx`, `model.py`")
        .refused(&[value("a path that leaves the model's directory", rule::FILE_PATH, "default_model_filename: '../../x'")]),
    shown("ModelConfig.cc_model_filenames"),
    field("ModelConfig.metric_tags", ""),
    field("ModelConfig.parameters", "See [parameters](#parameters).").refused(&[value(
        "a value that the reader of the parameter refuses",
        rule::VALUE,
        "parameters { key: 'MAX_UNREAD_RESPONSES' value { string_value: '0' } }",
    )]),
    field("ModelConfig.model_warmup", "Samples that each instance runs before the model is ready.").refused(&[value(
        "for an ensemble",
        rule::ENSEMBLE,
        "platform: 'ensemble' ensemble_scheduling { step { model_name: 'none' input_map { key: 'X' value: 'IN' } \
         output_map { key: 'Y' value: 'OUT' } } } model_warmup { }",
    )]),
    field("ModelConfig.model_operations", "For ONNX."),
    field("ModelConfig.model_transaction_policy", "How many responses a request has."),
    field("ModelConfig.model_repository_agents", "Plug-ins that see the files before they are loaded.").refused(&[value(
        "an agent that is not there",
        REPOSITORY_AGENT,
        "model_repository_agents { agents { name: 'nobody' } }",
    )]),
    field("ModelConfig.response_cache", "Whether repeated requests are answered from the cache.").refused(&[
        value(
            "with `decoupled` and without `CACHE_DECOUPLED`",
            rule::RESPONSE_CACHE,
            "response_cache { enable: true } model_transaction_policy { decoupled: true }",
        ),
        value(
            "with `sequence_batching`",
            rule::RESPONSE_CACHE,
            "response_cache { enable: true } sequence_batching { }",
        ),
    ]),
    field("ModelConfig.model_metrics", "Buckets of histograms."),
    field("ModelVersionPolicy.latest", "The versions with the largest numbers."),
    field("ModelVersionPolicy.all", "Every version."),
    field("ModelVersionPolicy.specific", "The listed versions that exist."),
    field("ModelVersionPolicy.Latest.num_versions", "How many.").refused(&[value(
        "0",
        rule::VERSION_POLICY,
        "version_policy { latest { num_versions: 0 } }",
    )]),
    field("ModelVersionPolicy.Specific.versions", "The versions."),
    field("ModelParameter.string_value", "The value."),
    field("ModelOperations.op_library_filename", "Libraries of custom operators: paths in the model's directory or another one that is allowed, see onnx.md."),
    field("ModelTransactionPolicy.decoupled", ""),
    field("ModelRepositoryAgents.agents", "The agents, in their order."),
    field("ModelRepositoryAgents.Agent.name", "The agent: `libtritonrepoagent_<name>.so`."),
    field("ModelRepositoryAgents.Agent.parameters", "Settings for the agent."),
    field("ModelResponseCache.enable", "Repeated requests are answered from the cache (`--cache-config`)."),
    field("ModelMetrics.metric_control", "One for each family."),
    field("ModelMetrics.MetricControl.metric_identifier", "The family.").refused(&[value(
        "none",
        rule::MODEL_METRICS,
        "model_metrics { metric_control { histogram_options { buckets: 1 } } }",
    )]),
    field("ModelMetrics.MetricControl.histogram_options", "Its buckets.").refused(&[value(
        "none",
        rule::MODEL_METRICS,
        "model_metrics { metric_control { metric_identifier { family: 'f' } } }",
    )]),
    field("ModelMetrics.MetricControl.MetricIdentifier.family", "The name of the family, such as \
     `nv_inference_first_response_histogram_ms`.")
    .refused(&[value(
        "an empty name",
        rule::MODEL_METRICS,
        "model_metrics { metric_control { metric_identifier { } histogram_options { buckets: 1 } } }",
    )]),
    field("ModelMetrics.MetricControl.HistogramOptions.buckets", "").refused(&[value(
        "buckets that do not ascend",
        rule::MODEL_METRICS,
        "model_metrics { metric_control { metric_identifier { family: 'f' } histogram_options { buckets: [ 2, 1 ] } } }",
    )]),
];

pub(super) const TENSORS: &[FieldNote] = &[
    field("ModelInput.name", "As the model has it.").refused(&[value(
        "an empty name",
        rule::TENSOR,
        "input { data_type: TYPE_INT32 dims: 1 optional: true }",
    )]),
    field("ModelInput.data_type", "The datatype of the elements.")
        .default("for ONNX that of the graph")
        .refused(&[value("none", rule::TENSOR, "input { name: 'A' dims: 1 optional: true }")]),
    field("ModelInput.format", "").refused(&[value(
        "`FORMAT_NHWC` and `FORMAT_NCHW` without three dims",
        rule::TENSOR,
        "input { name: 'X' data_type: TYPE_FP32 format: FORMAT_NHWC dims: [ 1, 2 ] }",
    )]),
    field("ModelInput.dims", "").default("for ONNX those of the graph").refused(&[value(
        "0, and numbers below -1",
        rule::TENSOR,
        "input { name: 'X' data_type: TYPE_FP32 dims: 0 }",
    )]),
    field("ModelInput.reshape", "The shape that the model sees instead.").refused(&[value(
        "another number of elements",
        rule::TENSOR,
        "input { name: 'X' data_type: TYPE_FP32 dims: 4 reshape { shape: 5 } }",
    )]),
    field("ModelInput.is_shape_tensor", "").refused(&[value(
        "`true`",
        rule::TENSOR,
        "input { name: 'X' data_type: TYPE_FP32 dims: 1 is_shape_tensor: true }",
    )]),
    field("ModelInput.allow_ragged_batch", ""),
    field("ModelInput.optional", ""),
    field("ModelInput.is_non_linear_format_io", "").refused(&[value(
        "`true`",
        rule::TENSOR,
        "input { name: 'X' data_type: TYPE_FP32 dims: 1 is_non_linear_format_io: true }",
    )]),
    field("ModelOutput.name", "As the model has it.").refused(&[value(
        "an empty name",
        rule::TENSOR,
        "output { data_type: TYPE_INT32 dims: 1 }",
    )]),
    field("ModelOutput.data_type", "The datatype of the elements.")
        .default("for ONNX that of the graph")
        .refused(&[value("none", rule::TENSOR, "output { name: 'A' dims: 1 }")]),
    field("ModelOutput.dims", "").default("for ONNX those of the graph").refused(&[value(
        "0, and numbers below -1",
        rule::TENSOR,
        "output { name: 'X' data_type: TYPE_FP32 dims: -2 }",
    )]),
    field("ModelOutput.reshape", "The shape that the model gives instead.").refused(&[value(
        "another number of elements",
        rule::TENSOR,
        "output { name: 'X' data_type: TYPE_FP32 dims: 4 reshape { shape: 5 } }",
    )]),
    field("ModelOutput.label_filename", "").refused(&[
        value(
            "a path that leaves the model's directory",
            rule::FILE_PATH,
            "output { name: 'L' data_type: TYPE_FP32 dims: 1 label_filename: '../x' }",
        ),
        value(
            "a file that does not exist",
            rule::FILE_PATH,
            "output { name: 'L' data_type: TYPE_FP32 dims: 1 label_filename: 'missing.txt' }",
        ),
    ]),
    field("ModelOutput.is_shape_tensor", "").refused(&[value(
        "`true`",
        rule::TENSOR,
        "output { name: 'X' data_type: TYPE_FP32 dims: 1 is_shape_tensor: true }",
    )]),
    field("ModelOutput.is_non_linear_format_io", "").refused(&[value(
        "`true`",
        rule::TENSOR,
        "output { name: 'X' data_type: TYPE_FP32 dims: 1 is_non_linear_format_io: true }",
    )]),
    field("ModelTensorReshape.shape", "The shape without the batch dimension."),
    field("BatchInput.kind", "What the input holds."),
    field("BatchInput.target_name", ""),
    field("BatchInput.data_type", "").refused(&[value(
        "other types than `TYPE_INT32` and `TYPE_FP32`",
        rule::BATCH_TENSOR,
        "batch_input { target_name: 'B' data_type: TYPE_INT8 source_input: 'IN' }",
    )]),
    field("BatchInput.source_input", "").refused(&[
        value(
            "other than one",
            rule::BATCH_TENSOR,
            "batch_input { target_name: 'B' data_type: TYPE_INT32 source_input: [ 'IN', 'IN' ] }",
        ),
        value(
            "an unknown input",
            rule::BATCH_TENSOR,
            "batch_input { target_name: 'B' data_type: TYPE_INT32 source_input: 'INN' }",
        ),
    ]),
    field("BatchOutput.target_name", "The outputs.").refused(&[
        value(
            "an unknown output",
            rule::BATCH_TENSOR,
            "batch_output { target_name: 'OUTT' source_input: 'IN' }",
        ),
        value(
            "an output twice",
            rule::BATCH_TENSOR,
            "batch_output { target_name: [ 'OUT', 'OUT' ] source_input: 'IN' }",
        ),
    ]),
    field("BatchOutput.kind", ""),
    field("BatchOutput.source_input", "The input whose shape divides the output.").refused(&[value(
        "an unknown input",
        rule::BATCH_TENSOR,
        "batch_output { target_name: 'OUT' source_input: 'X' }",
    )]),
];

pub(super) const INSTANCES: &[FieldNote] = &[
    field("ModelInstanceGroup.name", "Shown in logs.").default("`<model>_<position>`"),
    field("ModelInstanceGroup.kind", "").refused(&[value(
        "`KIND_GPU`, unless `--gpu-instances-on-cpu=true`",
        rule::INSTANCE_GROUP,
        "instance_group { kind: KIND_GPU }",
    )]),
    field("ModelInstanceGroup.count", "").default("1; for ONNX 2"),
    field("ModelInstanceGroup.rate_limiter", "Only with `--rate-limit=execution_count`."),
    field("ModelInstanceGroup.gpus", "").refused(&[value(
        "any number with `KIND_CPU` and `KIND_MODEL`",
        rule::INSTANCE_GROUP,
        "instance_group { kind: KIND_CPU gpus: 0 }",
    )]),
    shown("ModelInstanceGroup.secondary_devices"),
    field("ModelInstanceGroup.profile", "").refused(&[value(
        "any",
        rule::INSTANCE_GROUP,
        "instance_group { profile: '1' }",
    )]),
    field("ModelInstanceGroup.passive", ""),
    field("ModelInstanceGroup.host_policy", ""),
    shown("ModelInstanceGroup.SecondaryDevice.kind"),
    shown("ModelInstanceGroup.SecondaryDevice.device_id"),
    field("ModelRateLimiter.resources", "What each execution needs."),
    field("ModelRateLimiter.priority", ""),
    field("ModelRateLimiter.Resource.name", "The resource, as in `--rate-limit-resource`."),
    field("ModelRateLimiter.Resource.global", ""),
    field("ModelRateLimiter.Resource.count", "How much of it."),
    field("ModelWarmup.name", "Shown in logs."),
    field("ModelWarmup.batch_size", "The rows of the sample. With 0 the sample is skipped.").refused(&[value(
        "more than `max_batch_size`",
        rule::WARMUP,
        "max_batch_size: 4 model_warmup { name: 'w' batch_size: 5 inputs { key: 'IN' value { data_type: TYPE_INT32 \
         dims: 1 zero_data: true } } }",
    )]),
    field("ModelWarmup.inputs", "The data of each input.").refused(&[value(
        "not all inputs of the model",
        rule::WARMUP,
        "model_warmup { name: 'w' batch_size: 1 }",
    )]),
    field("ModelWarmup.count", ""),
    field("ModelWarmup.Input.data_type", "The datatype of the input."),
    field("ModelWarmup.Input.dims", "The shape without the batch dimension.").refused(&[value(
        "-1",
        rule::WARMUP,
        "model_warmup { name: 'w' batch_size: 1 inputs { key: 'IN' value { data_type: TYPE_INT32 dims: -1 \
         zero_data: true } } }",
    )]),
    field("ModelWarmup.Input.zero_data", "All elements are 0."),
    field("ModelWarmup.Input.random_data", "The elements are random."),
    field("ModelWarmup.Input.input_data_file", "").refused(&[value(
        "a path that leaves the model's directory",
        rule::FILE_PATH,
        "model_warmup { name: 'w' batch_size: 1 inputs { key: 'IN' value { data_type: TYPE_INT32 dims: 1 \
         input_data_file: '../../../x' } } }",
    )]),
];
