"""What a model imports: all names of the Python interface of Triton's models, from the modules that define them."""

from nereid_host import TritonModelException
from nereid_metrics import Metric, MetricFamily, MetricKind
from nereid_model_config import (
    ModelConfig,
    get_input_config_by_name,
    get_output_config_by_name,
    using_decoupled_model_transaction_policy,
)
from nereid_request import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
    InferenceTrace,
    MemoryType,
    PreferredMemory,
    get_input_tensor_by_name,
    get_output_tensor_by_name,
)
from nereid_response import (
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceResponse,
    InferenceResponseSender,
    ResponseIterator,
    TritonError,
)
from nereid_server import Logger, LogLevel, get_model_dir, is_model_ready, load_model, unload_model
from nereid_tensor import (
    TRITON_STRING_TO_NUMPY,
    Tensor,
    TritonDataType,
    deserialize_bytes_tensor,
    numpy_to_triton_type,
    serialize_byte_tensor,
    triton_string_to_numpy,
    triton_to_numpy_type,
)

__all__ = [name for name in dir() if not name.startswith("_")]

# Models are told these names of their types, wherever the types are defined.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
del _name
