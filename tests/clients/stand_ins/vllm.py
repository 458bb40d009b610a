"""A stand-in for vLLM: what Triton's backend `vllm` imports of it, with an engine that gives back the words of the prompt.

Each word is a token, and an answer has one more of them at each step. The prompt `for ever` has no end. Arguments of the
engine that only the stand-in knows: `fails` is the text of the error with which it does not start, `running` names a file
that it makes when it runs a request, and `broken` one that makes it unhealthy while it exists.
"""

import asyncio
import enum
import pathlib
import sys
import types
import uuid
from dataclasses import dataclass, field
from typing import Generic, Optional, TypedDict, TypeVar

Value = TypeVar("Value")


class UsageContext(enum.Enum):
    OPENAI_API_SERVER = "openai"


@dataclass
class ModelConfig:
    max_model_len: int


@dataclass
class VllmConfig:
    model_config: ModelConfig
    arguments: "AsyncEngineArgs"


@dataclass
class AsyncEngineArgs:
    model: str
    max_model_len: int = 16
    disable_log_stats: bool = False
    enable_log_requests: bool = False
    aggregate_engine_logging: bool = False
    enable_lora: bool = False
    runner: str = "generate"
    fails: str = ""
    running: str = ""
    broken: str = ""

    def create_engine_config(self, usage_context):
        assert isinstance(usage_context, UsageContext)
        return VllmConfig(ModelConfig(self.max_model_len), self)


class StructuredOutputsParams:
    pass


@dataclass
class SamplingParams:
    n: int = 1
    max_tokens: Optional[int] = None
    temperature: float = 1.0
    logprobs: Optional[int] = None
    ignore_eos: bool = False

    def __init__(self, **values):
        unknown = values.keys() - SamplingParams.__annotations__ - {"lora_name"}
        if unknown:
            raise TypeError(f"Unexpected keyword argument '{min(unknown)}'")
        for name, value in values.items():
            setattr(self, name, value)


@dataclass
class PoolingParams:
    dimensions: Optional[int] = None
    task: Optional[str] = None


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str


class TokensPrompt(TypedDict):
    prompt_token_ids: list


@dataclass
class CompletionOutput:
    text: str
    token_ids: list
    cumulative_logprob: float
    finish_reason: Optional[str]
    logprobs: Optional[list] = None


@dataclass
class RequestOutput:
    prompt: str
    prompt_token_ids: list
    outputs: list
    finished: bool


@dataclass
class EmbeddingOutput:
    embedding: list


@dataclass
class PoolingRequestOutput(Generic[Value]):
    outputs: Value
    prompt_token_ids: list


class EmbeddingRequestOutput:
    @staticmethod
    def from_base(output):
        return output


@dataclass
class FinishedRequest:
    e2e_latency: float
    num_prompt_tokens: int
    num_generation_tokens: int


@dataclass
class IterationStats:
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    finished_requests: list = field(default_factory=list)
    time_to_first_tokens_iter: list = field(default_factory=list)
    inter_token_latencies_iter: list = field(default_factory=list)
    n_params_iter: list = field(default_factory=list)


class StatLoggerBase:
    def __init__(self, vllm_config, engine_index=0):
        self.vllm_config, self.engine_index = vllm_config, engine_index


def build_1_2_5_buckets(most):
    return [step * 10**power for power in range(len(str(most))) for step in (1, 2, 5) if step * 10**power <= most]


class AsyncLLM:
    """The engine. Its tasks run in the event loop of the backend."""

    @classmethod
    def from_vllm_config(cls, vllm_config, usage_context, stat_loggers, **_logging):
        return cls(vllm_config, stat_loggers or [])

    def __init__(self, vllm_config, stat_loggers):
        self.arguments = vllm_config.arguments
        if self.arguments.fails:
            raise RuntimeError(self.arguments.fails)
        self.stat_loggers = [make(vllm_config, 0) for make in stat_loggers]
        self.aborted = set()

    async def reset_mm_cache(self):
        pass

    def shutdown(self):
        pass

    async def get_supported_tasks(self):
        return ("generate",) if self.arguments.runner == "generate" else ("embed",)

    async def check_health(self):
        if self.arguments.broken and pathlib.Path(self.arguments.broken).exists():
            raise RuntimeError("the engine is dead")

    async def abort(self, request_id):
        self.aborted.add(request_id)

    async def generate(self, prompt, sampling_params, request_id, lora_request=None):
        if sampling_params is None:
            raise ValueError("there are no sampling parameters")
        words = prompt.split()
        endless = prompt == "for ever"
        most = sampling_params.max_tokens or len(words)
        said = []
        if self.arguments.running:
            pathlib.Path(self.arguments.running).touch()
        while request_id not in self.aborted:
            said.append(words[len(said) % len(words)])
            stopped = not endless and len(said) == len(words)
            finished = stopped or (len(said) == most and not endless)
            reason = ("stop" if stopped else "length") if finished else None
            outputs = [
                CompletionOutput(" ".join(said), list(range(len(said))), -0.5 * len(said), reason)
                for _ in range(sampling_params.n)
            ]
            yield RequestOutput(prompt, list(range(len(words))), outputs, finished)
            if finished:
                self.record(FinishedRequest(0.25, len(words), len(said)))
                return
            await asyncio.sleep(0.001)

    async def encode(self, prompt, pooling_params, request_id):
        tokens = prompt["prompt_token_ids"] if isinstance(prompt, dict) else prompt.split()
        dimensions = pooling_params.dimensions or 3
        yield PoolingRequestOutput(EmbeddingOutput([float(len(tokens))] * dimensions), list(range(len(tokens))))

    def record(self, request):
        stats = IterationStats(request.num_prompt_tokens, request.num_generation_tokens, [request], [0.01], [0.002], [1])
        for logger in self.stat_loggers:
            logger.record(scheduler_stats=None, iteration_stats=stats)


# The modules of vLLM in which Triton's backend looks for each name.
MODULES = {
    "config": [VllmConfig],
    "engine.arg_utils": [AsyncEngineArgs],
    "engine.protocol": {"EngineClient": AsyncLLM},
    "inputs.data": [TokensPrompt],
    "lora.request": [LoRARequest],
    "outputs": [EmbeddingOutput, EmbeddingRequestOutput, PoolingRequestOutput, RequestOutput],
    "pooling_params": [PoolingParams],
    "sampling_params": [SamplingParams, StructuredOutputsParams],
    "usage.usage_lib": [UsageContext],
    "utils": {"random_uuid": lambda: uuid.uuid4().hex},
    "v1.engine.async_llm": [AsyncLLM],
    "v1.metrics.loggers": {
        "StatLoggerBase": StatLoggerBase,
        "StatLoggerFactory": object,
        "build_1_2_5_buckets": build_1_2_5_buckets,
    },
    "v1.metrics.stats": {"IterationStats": IterationStats, "MultiModalCacheStats": object, "SchedulerStats": object},
}

for _path, _names in MODULES.items():
    _parts = _path.split(".")
    for _length in range(1, len(_parts) + 1):
        _name = ".".join([__name__, *_parts[:_length]])
        sys.modules.setdefault(_name, types.ModuleType(_name))
    _named = _names if isinstance(_names, dict) else {kind.__name__: kind for kind in _names}
    vars(sys.modules[f"{__name__}.{_path}"]).update(_named)
