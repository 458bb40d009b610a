//! Notes about the fields of batchers, ensembles and optimizations.

use config::rule;

use super::notes::{FieldNote, field, shown, value};

pub(super) const BATCHING: &[FieldNote] = &[
    field("ModelDynamicBatching.preferred_batch_size", "Sizes at which a queue is cut.")
        .default("`max_batch_size`")
        .refused(&[
            value(
                "0 and less",
                rule::DYNAMIC_BATCHING,
                "max_batch_size: 4 dynamic_batching { preferred_batch_size: 0 }",
            ),
            value(
                "more than `max_batch_size`",
                rule::DYNAMIC_BATCHING,
                "max_batch_size: 4 dynamic_batching { preferred_batch_size: 5 }",
            ),
        ]),
    field("ModelDynamicBatching.max_queue_delay_microseconds", "How long a request may wait for others."),
    field("ModelDynamicBatching.preserve_ordering", "").refused(&[
        value(
            "with several priority levels",
            rule::DYNAMIC_BATCHING,
            "dynamic_batching { priority_levels: 2 default_priority_level: 1 preserve_ordering: true }",
        ),
        value(
            "with a timeout and the action `DELAY`",
            rule::DYNAMIC_BATCHING,
            "dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY \
             default_timeout_microseconds: 1 } }",
        ),
    ]),
    field("ModelDynamicBatching.priority_levels", ""),
    field("ModelDynamicBatching.default_priority_level", "The level of requests without a valid one.").refused(&[value(
        "a level outside of 1 to `priority_levels`",
        rule::DYNAMIC_BATCHING,
        "dynamic_batching { priority_levels: 2 default_priority_level: 3 }",
    )]),
    field("ModelDynamicBatching.default_queue_policy", "The limits of the queue.").default("no limits"),
    field("ModelDynamicBatching.priority_queue_policy", "").default("`default_queue_policy`").refused(&[value(
        "a level outside of 1 to `priority_levels`",
        rule::DYNAMIC_BATCHING,
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { } } }",
    )]),
    field("ModelQueuePolicy.timeout_action", "").refused(&[value(
        "an unknown number",
        rule::VALUE,
        "dynamic_batching { default_queue_policy { timeout_action: 7 } }",
    )]),
    field("ModelQueuePolicy.default_timeout_microseconds", "The longest wait of a request."),
    field("ModelQueuePolicy.allow_timeout_override", ""),
    field("ModelQueuePolicy.max_queue_size", "The most requests that wait."),
    field("ModelSequenceBatching.direct", "").default("this strategy, if none is named"),
    field("ModelSequenceBatching.oldest", ""),
    field("ModelSequenceBatching.max_sequence_idle_microseconds", "").default("1000000"),
    field("ModelSequenceBatching.control_input", "Inputs that the server fills in."),
    field("ModelSequenceBatching.state", "Tensors that the server keeps for a sequence from one request to the next."),
    field("ModelSequenceBatching.iterative_sequence", ""),
    field("ModelSequenceBatching.StrategyDirect.max_queue_delay_microseconds", "How long a batch may wait for more slots."),
    field(
        "ModelSequenceBatching.StrategyDirect.minimum_slot_utilization",
        "The share of the slots that must have a request, so that no batch waits.",
    )
    .refused(&[value(
        "a share outside of 0 to 1",
        rule::SEQUENCE_BATCHING,
        "sequence_batching { direct { minimum_slot_utilization: 1.5 } }",
    )]),
    field("ModelSequenceBatching.StrategyOldest.max_candidate_sequences", "The most active sequences of an instance.")
        .default("`max_batch_size`"),
    field("ModelSequenceBatching.StrategyOldest.preferred_batch_size", "As in `dynamic_batching`.")
        .default("`max_batch_size`")
        .refused(&[value(
            "more than `max_batch_size`",
            rule::SEQUENCE_BATCHING,
            "max_batch_size: 4 sequence_batching { oldest { preferred_batch_size: 5 } }",
        )]),
    field("ModelSequenceBatching.StrategyOldest.max_queue_delay_microseconds", "As in `dynamic_batching`."),
    field("ModelSequenceBatching.StrategyOldest.preserve_ordering", "As in `dynamic_batching`."),
    field("ModelSequenceBatching.ControlInput.name", "The input.").refused(&[value(
        "an empty name",
        rule::SEQUENCE_BATCHING,
        "sequence_batching { control_input { control { kind: CONTROL_SEQUENCE_START bool_false_true: [ 0, 1 ] } } }",
    )]),
    field("ModelSequenceBatching.ControlInput.control", "What the input tells.").refused(&[value(
        "a kind twice",
        rule::SEQUENCE_BATCHING,
        "sequence_batching { control_input { name: 'A' control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } \
         control_input { name: 'B' control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } }",
    )]),
    field("ModelSequenceBatching.Control.kind", ""),
    field("ModelSequenceBatching.Control.int32_false_true", "").refused(&[value(
        "other than two values, and none or several pairs",
        rule::SEQUENCE_BATCHING,
        "sequence_batching { control_input { name: 'C' control { kind: CONTROL_SEQUENCE_START int32_false_true: 0 } } }",
    )]),
    field("ModelSequenceBatching.Control.fp32_false_true", ""),
    field("ModelSequenceBatching.Control.bool_false_true", ""),
    field("ModelSequenceBatching.Control.data_type", "").refused(&[value(
        "types that cannot have a correlation id",
        rule::SEQUENCE_BATCHING,
        "sequence_batching { control_input { name: 'C' control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } } }",
    )]),
    field("ModelSequenceBatching.State.input_name", "The input that gets the state."),
    field("ModelSequenceBatching.State.output_name", "The output that gives the next state."),
    field("ModelSequenceBatching.State.data_type", "The datatype of the state."),
    field("ModelSequenceBatching.State.dims", "The shape of the state without the batch dimension."),
    field("ModelSequenceBatching.State.initial_state", "The state of a sequence that begins.").default("zeros").refused(&[value(
        "another datatype",
        rule::STATE,
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 initial_state { \
         name: 'i' data_type: TYPE_INT32 dims: 1 zero_data: true } } }",
    )]),
    field("ModelSequenceBatching.State.use_same_buffer_for_input_output", "Accepted. It saves no memory here."),
    field(
        "ModelSequenceBatching.State.use_growable_memory",
        "For GPUs. With `true` the model is loaded, and its requests fail.",
    ),
    field("ModelSequenceBatching.InitialState.data_type", "That of the state."),
    field("ModelSequenceBatching.InitialState.dims", "Those of the state, without -1.").refused(&[value(
        "-1",
        rule::STATE,
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: -1 initial_state { \
         name: 'i' data_type: TYPE_FP32 dims: -1 zero_data: true } } }",
    )]),
    field("ModelSequenceBatching.InitialState.zero_data", "All elements are 0."),
    field("ModelSequenceBatching.InitialState.data_file", "").refused(&[value(
        "a file that does not exist",
        rule::FILE_PATH,
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 initial_state { \
         name: 'i' data_type: TYPE_FP32 dims: 1 data_file: 'missing' } } }",
    )]),
    field("ModelSequenceBatching.InitialState.name", "Shown in logs.").refused(&[value(
        "an empty name",
        rule::STATE,
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 initial_state { \
         data_type: TYPE_FP32 dims: 1 zero_data: true } } }",
    )]),
];

pub(super) const ENSEMBLES: &[FieldNote] = &[
    field("ModelEnsembling.step", "The steps, in any order.").refused(&[value(
        "none",
        rule::ENSEMBLE,
        "platform: 'ensemble' ensemble_scheduling { }",
    )]),
    field("ModelEnsembling.max_inflight_requests", "The most responses of one request between two steps."),
    field("ModelEnsembling.Step.model_name", "The member.").refused(&[value(
        "an empty name",
        rule::ENSEMBLE,
        "platform: 'ensemble' ensemble_scheduling { step { input_map { key: 'X' value: 'IN' } \
         output_map { key: 'Y' value: 'OUT' } } }",
    )]),
    field("ModelEnsembling.Step.model_version", "A field that is left out means version 0."),
    field("ModelEnsembling.Step.input_map", "").refused(&[value(
        "none",
        rule::ENSEMBLE,
        "platform: 'ensemble' ensemble_scheduling { step { model_name: 'a' output_map { key: 'Y' value: 'OUT' } } }",
    )]),
    field("ModelEnsembling.Step.output_map", "").refused(&[value(
        "none",
        rule::ENSEMBLE,
        "platform: 'ensemble' ensemble_scheduling { step { model_name: 'a' input_map { key: 'X' value: 'IN' } } }",
    )]),
    field("ModelEnsembling.Step.model_namespace", ""),
];

pub(super) const OPTIMIZATION: &[FieldNote] = &[
    field("ModelOptimizationPolicy.graph", "Optimization of the graph.").default("all optimizations"),
    field("ModelOptimizationPolicy.Graph.level", "ONNX: -1 basic, 1 extended, 2 none, others all."),
    field("ModelOptimizationPolicy.priority", "With `PRIORITY_MIN` the model's threads run at nice 19."),
    shown("ModelOptimizationPolicy.cuda"),
    field("ModelOptimizationPolicy.execution_accelerators", "Accelerators inside of a backend."),
    shown("ModelOptimizationPolicy.input_pinned_memory"),
    shown("ModelOptimizationPolicy.output_pinned_memory"),
    shown("ModelOptimizationPolicy.gather_kernel_buffer_threshold"),
    shown("ModelOptimizationPolicy.eager_batching"),
    shown("ModelOptimizationPolicy.Cuda.graphs"),
    shown("ModelOptimizationPolicy.Cuda.busy_wait_events"),
    shown("ModelOptimizationPolicy.Cuda.graph_spec"),
    shown("ModelOptimizationPolicy.Cuda.output_copy_stream"),
    shown("ModelOptimizationPolicy.Cuda.GraphSpec.batch_size"),
    shown("ModelOptimizationPolicy.Cuda.GraphSpec.input"),
    shown("ModelOptimizationPolicy.Cuda.GraphSpec.graph_lower_bound"),
    shown("ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim"),
    shown("ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound.batch_size"),
    shown("ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound.input"),
    field(
        "ModelOptimizationPolicy.ExecutionAccelerators.gpu_execution_accelerator",
        "No effect, with a warning: there are no instances on GPUs.",
    ),
    field(
        "ModelOptimizationPolicy.ExecutionAccelerators.cpu_execution_accelerator",
        "`openvino` runs a model of ONNX Runtime by OpenVINO; others are refused when it is loaded. Given to plug-ins.",
    ),
    field("ModelOptimizationPolicy.ExecutionAccelerators.Accelerator.name", "The accelerator."),
    field(
        "ModelOptimizationPolicy.ExecutionAccelerators.Accelerator.parameters",
        "Settings for the accelerator.",
    ),
    shown("ModelOptimizationPolicy.PinnedMemoryBuffer.enable"),
];
