"""Models of PyTorch. The server's own backend `pytorch`: a user writes no code for it."""

import json
import os
import time
import traceback

from nereid_host import TritonModelException
from nereid_pytorch_files import FileKind, find
from nereid_pytorch_names import Declaration, index_in
from nereid_pytorch_parameters import Parameters
from nereid_response import ErrorCode, InferenceResponse, TritonError
from nereid_server import Logger, get_model_dir

# Both read the interpreter's PyTorch, whose absence is an error of the load.
import nereid_pytorch_networks as networks
import nereid_pytorch_tensors as tensors
from nereid_torch import torch

# Between two traces in the log lie so many seconds.
_TRACE_INTERVAL = 10.0

# The words of a compiler are long.
_MOST_CHARACTERS = 600


class TritonPythonModel:
    """One instance of a model."""

    def initialize(self, arguments):
        config = json.loads(arguments["model_config"])
        self._name = arguments["model_name"]
        self._next_trace = 0.0
        declaration = Declaration(self._name, config)
        self._joins = declaration.joins
        self._check(config, declaration)
        threads = int(arguments["model_instance_threads"])
        parameters = Parameters(self._name, config.get("parameters", {}), threads)
        device = _device(self._name, arguments["model_instance_kind"], arguments["model_instance_device_id"])
        self._keep_processes_few(threads)
        parameters.apply(torch)
        # For all that this thread does: executions run on it, too. The mode ends when nobody has it.
        self._mode = torch.inference_mode() if parameters.is_on("INFERENCE_MODE") else torch.no_grad()
        self._mode.__enter__()
        path, kind = find(get_model_dir(), config.get("default_model_filename", ""))
        self._network = self._load(path, kind, declaration, device, parameters)
        used = device or self._network.device()
        is_on_gpu = used is not None and used.type == "cuda"
        # As Triton: instances of KIND_MODEL get their inputs on the processor.
        self._device = device if is_on_gpu else None
        self._cleans_cache = is_on_gpu and parameters.is_on("ENABLE_CACHE_CLEANING")
        self._input_names = [tensor.name for tensor in self._network.inputs]
        if self._joins and not self._network.joins_requests:
            raise TritonModelException(f"model '{self._name}' takes numbers, for which max_batch_size must be 0")

    def _check(self, config, declaration):
        refused = [field for field in ("batch_input", "batch_output") if config.get(field)]
        refused += ["allow_ragged_batch" for tensor in config["input"] if tensor.get("allow_ragged_batch")]
        for field in refused:
            raise TritonModelException(
                f"model '{self._name}' has {field}, which the built-in backend 'pytorch' does not support"
            )
        dims = {
            tensor["name"]: tensor.get("reshape", {}).get("shape", tensor.get("dims", ()))
            for tensor in (*config["input"], *config["output"])
        }
        for kind, declared in (("input", declaration.all_inputs), ("output", declaration.all_outputs)):
            for tensor in declared:
                tensors.check_datatype(self._name, kind, tensor, dims.get(tensor.name, ()), self._joins)

    def _keep_processes_few(self, threads):
        """PyTorch compiles in a process for each processor, if nobody says otherwise."""
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))

    def _load(self, path, kind, declaration, device, parameters):
        try:
            return networks.load(path, kind, declaration, device, parameters)
        except TritonModelException:
            raise
        except Exception as error:
            if kind == FileKind.SOURCE:
                # The trace has the lines of the user's file.
                raise
            raise TritonModelException(f"failed to load {kind.value} '{path}': {_one_line(error)}") from error

    def execute(self, requests):
        if len(requests) > 1 and self._joins:
            return self._run_together(requests)
        return [self._run_alone(request) for request in requests]

    def finalize(self):
        # Some kinds of network have files to remove.
        self._network = None

    def _run_alone(self, request):
        try:
            arguments = self._arguments(request)
            declared, values = self._outputs(self._network.run(arguments), self._rows(arguments))
            return InferenceResponse(list(map(tensors.output_from, declared, values)))
        except Exception as error:
            return self._refusal(error)

    def _run_together(self, requests):
        """The responses of requests. Those with equal shapes run together."""
        responses = [None] * len(requests)
        groups = {}
        for place, request in enumerate(requests):
            try:
                arguments = self._arguments(request)
                groups.setdefault(tuple(map(tensors.shape_of_row, arguments)), []).append((place, arguments))
            except Exception as error:
                responses[place] = self._refusal(error)
        for group in groups.values():
            try:
                answers = self._joined([arguments for _, arguments in group])
            except Exception as error:
                answers = [self._refusal(error)] * len(group)
            for (place, _), answer in zip(group, answers):
                responses[place] = answer
        return responses

    def _joined(self, requests):
        """The responses of requests that have these arguments."""
        rows = list(map(self._rows, requests))
        arguments = list(map(tensors.joined, zip(*requests)))
        declared, values = self._outputs(self._network.run(arguments), sum(rows))
        parts = zip(*(tensors.split(value, rows) for value in values))
        return [InferenceResponse(list(map(tensors.output_from, declared, part))) for part in parts]

    def _arguments(self, request):
        given = {tensor._name: tensor for tensor in request.inputs()}
        device = self._device
        return [tensors.argument_from(given[name], device) if name in given else None for name in self._input_names]

    def _rows(self, arguments):
        """How many rows a request has; None if the model has no batches."""
        if not self._joins:
            return None
        for argument in arguments:
            # An optional input may be missing.
            if argument is not None:
                return tensors.row_count(argument)
        return 0

    def _outputs(self, values, rows):
        """The declared outputs, and the value of each."""
        if self._cleans_cache:
            torch.cuda.empty_cache()
        declared, found = [], []
        for tensor, place in self._network.outputs:
            value = tensors.checked_output(tensor, _value(values, tensor, place))
            if rows is not None and tensors.row_count(value) != rows:
                raise tensors.BadTensor(
                    f"output '{tensor.name}' has {tensors.row_count(value)} rows for a batch of {rows} rows"
                )
            declared.append(tensor)
            found.append(value)
        return declared, found

    def _refusal(self, error):
        if isinstance(error, tensors.BadTensor):
            return InferenceResponse(error=TritonError(f"model '{self._name}': {error}", ErrorCode.INVALID_ARG))
        now = time.monotonic()
        if now >= self._next_trace:
            self._next_trace = now + _TRACE_INTERVAL
            Logger.log_error(f"execution of model '{self._name}' failed: {''.join(traceback.format_exception(error))}")
        text = f"PyTorch execute failure: model '{self._name}': {_one_line(error)}"
        return InferenceResponse(error=TritonError(text, ErrorCode.INTERNAL))


def _device(model, kind, number):
    """Where the network is; None if it chooses its own device. The processor's instances do not ask for CUDA."""
    if kind == "MODEL":
        return None
    if kind == "CPU":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise TritonModelException(
            f"model '{model}' has an instance on GPU {number}, but PyTorch {torch.__version__} finds no GPU"
        )
    return torch.device("cuda", int(number))


def _value(values, tensor, place):
    if isinstance(values, dict):
        if tensor.name in values:
            return values[tensor.name]
        if index_in(tensor.name) is None:
            raise tensors.BadTensor(f"the network returns no output '{tensor.name}', it returns {', '.join(map(str, values))}")
        values = list(values.values())
    if place >= len(values):
        raise tensors.BadTensor(
            f"The output {tensor.name} in the model configuration refers to an output index which doesn't exist. "
            f"This model has {len(values)} outputs"
        )
    return values[place]


def _one_line(error):
    """The words of an exception. Those of TorchScript have a trace before them."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    text = lines[-1] if lines[0].startswith("The following operation failed in the TorchScript") else " ".join(lines)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
