"""The parameters of a model's configuration that concern PyTorch."""

import json

from nereid_host import TritonModelException
from nereid_server import Logger

# All that have a value of true or false, and what they mean if they are not there. None: PyTorch's own choice.
_SWITCHES = {
    "DISABLE_CUDNN": False,
    "DISABLE_OPTIMIZED_EXECUTION": False,
    "ENABLE_CACHE_CLEANING": False,
    "ENABLE_JIT_EXECUTOR": None,
    "ENABLE_JIT_PROFILING": None,
    "ENABLE_NVFUSER": None,
    "ENABLE_TENSOR_FUSER": None,
    "ENABLE_WEIGHT_SHARING": False,
    "INFERENCE_MODE": True,
}

# Triton has other names for a `model.py` than for TorchScript. Both kinds of model take both.
_INTRA_OP, _INTER_OP = ("INTRA_OP_THREAD_COUNT", "NUM_THREADS"), ("INTER_OP_THREAD_COUNT", "NUM_INTEROP_THREADS")
_COMPILE = "TORCH_COMPILE_OPTIONAL_PARAMETERS"


class Parameters:
    """What a configuration says. Raises TritonModelException for a value that is not allowed."""

    def __init__(self, model, values, threads):
        self._model = model
        self._values = {name: value.get("string_value", "") for name, value in values.items()}
        self._switches = {name: self._truth(name, default) for name, default in _SWITCHES.items()}
        self.intra_op_threads = self._threads(_INTRA_OP, threads)
        self.inter_op_threads = self._threads(_INTER_OP, threads)
        self.compile_options = self._compile_options()

    def is_on(self, switch):
        """True, False, or None if the choice is PyTorch's."""
        return self._switches[switch]

    def apply(self, torch):
        """Makes the settings of the process, which has one model."""
        torch.set_num_threads(self.intra_op_threads)
        # PyTorch takes this number once.
        if torch.get_num_interop_threads() != self.inter_op_threads:
            torch.set_num_interop_threads(self.inter_op_threads)
        if self.is_on("DISABLE_CUDNN"):
            torch.backends.cudnn.enabled = False
        # The settings of TorchScript have no other names in Python.
        torch._C._set_graph_executor_optimize(not self.is_on("DISABLE_OPTIMIZED_EXECUTION"))
        for switch, setter in (
            ("ENABLE_JIT_EXECUTOR", "_jit_set_profiling_executor"),
            ("ENABLE_JIT_PROFILING", "_jit_set_profiling_mode"),
            ("ENABLE_TENSOR_FUSER", "_jit_set_texpr_fuser_enabled"),
        ):
            if self.is_on(switch) is not None:
                getattr(torch._C, setter)(self.is_on(switch))
        if self.is_on("ENABLE_WEIGHT_SHARING"):
            self._tell_useless("ENABLE_WEIGHT_SHARING", "each instance is a process with its own weights")
        if self.is_on("ENABLE_NVFUSER"):
            self._tell_useless("ENABLE_NVFUSER", "PyTorch has no such fuser any more")

    def _tell_useless(self, name, reason):
        Logger.log_warn(f"parameter '{name}' of model '{self._model}' has no effect: {reason}")

    def _truth(self, name, default):
        value = self._values.get(name)
        if value is None:
            return default
        if value.lower() in ("true", "on", "1"):
            return True
        if value.lower() in ("false", "off", "0"):
            return False
        raise self._refusal(name, f"failed to convert '{value}' to boolean")

    def _threads(self, names, threads):
        """As in Triton, a number below 1 leaves the choice open."""
        for name in names:
            if name not in self._values:
                continue
            try:
                number = int(self._values[name])
            except ValueError:
                raise self._refusal(name, f"failed to convert '{self._values[name]}' to integral number") from None
            if number > 0:
                return number
        return threads

    def _compile_options(self):
        try:
            options = json.loads(self._values.get(_COMPILE, "{}"))
        except ValueError as error:
            raise self._refusal(_COMPILE, f"it is no JSON: {error}") from None
        if not isinstance(options, dict):
            raise self._refusal(_COMPILE, "it is no object of JSON")
        if "model" in options:
            raise self._refusal(_COMPILE, "'model' is not an optional parameter for 'torch.compile'")
        return options

    def _refusal(self, name, reason):
        return TritonModelException(f"parameter '{name}' of model '{self._model}': {reason}")
