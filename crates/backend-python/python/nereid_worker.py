"""A worker: the process that runs one instance of a model."""

import gc
import importlib
import importlib.util
import json
import marshal
import operator
import os
import sys

import nereid_channel as channel_module
from nereid_channel import Channel
from nereid_errors import show_relative_paths, text_of
from nereid_host import text


# Triton runs a model in this program, if the model's directory has it. A user makes it for another version of Python.
_STUB = "triton_python_backend_stub"


class _Stop(Exception):
    """The server wants the worker to end."""


def run(socket, descriptors, facts):
    """Serves the commands of the server until it wants the worker to end."""
    _bind_to_server(facts)
    _limit_memory(facts[9])
    if facts[11]:
        show_relative_paths(os.path.dirname(facts[4]))
    try:
        from nereid_memory import InputMemory, OutputMemory
    except ImportError as error:
        refusal = marshal.dumps([(channel_module.RESULT, text_of(error), "")], 2)
        socket.sendall(len(refusal).to_bytes(4, "little") + refusal)
        # The server ends the process.
        socket.recv(1)
        os._exit(1)

    inputs, outputs = InputMemory(descriptors[0]), OutputMemory(descriptors[1], facts[10])
    channel = Channel(socket, inputs, outputs)
    for stream in (sys.stdout, sys.stderr):
        # Lines of a model stand in the server's output when they are whole.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
    worker = Worker(channel, inputs, outputs, facts, descriptors[2])
    channel.send((channel_module.RESULT, None, ""))
    worker.serve()
    # Threads that a model has left must not keep the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _bind_to_server(facts):
    """Lets the system end this process when the server ends."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        # PR_SET_PDEATHSIG with SIGKILL, PR_SET_NAME.
        prctl(1, 9, 0, 0, 0)
        prctl(15, f"py:{facts[2]}".encode()[:15], 0, 0, 0)
    except (ImportError, AttributeError, OSError):
        # The worker ends when the server's socket closes, unless a model never waits.
        pass
    if os.getppid() != facts[7]:
        os._exit(1)


def _limit_memory(limit):
    if limit is not None:
        import resource

        # A sandbox may have a lower limit, which cannot be raised.
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        if most != resource.RLIM_INFINITY:
            limit = min(limit, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


class Worker:
    """The model, and the commands that concern it."""

    def __init__(self, channel, inputs, outputs, facts, readiness):
        import nereid_host
        from nereid_services import Codec, Services

        self._channel = channel
        self._facts = facts
        self._readiness = readiness
        self._services = Services(channel, Codec(channel, inputs, outputs), facts)
        nereid_host.connect(self._services)
        self._class = None
        self._model = None
        self._executions = None

    def serve(self):
        try:
            while True:
                command = self._next_command()
                if command[0] == channel_module.EXECUTE:
                    self._executions = self._executions.run(command[1], command[2])
                else:
                    self._obey(command)
        except _Stop:
            pass

    def _next_command(self):
        return self._channel.next_command() if self._executions is None else self._executions.next_command()

    def _obey(self, command):
        kind, *arguments = command
        try:
            if kind == channel_module.COMPLETE:
                result = self._complete(*arguments)
            elif kind == channel_module.INITIALIZE:
                result = self._initialize(*arguments)
            else:
                result = self._finalize()
            self._channel.send((channel_module.RESULT, None, result))
        except BaseException as error:
            self._channel.send((channel_module.RESULT, text_of(error), ""))
        if kind == channel_module.FINALIZE:
            raise _Stop

    def _complete(self, config):
        complete = getattr(self._load(), "auto_complete_config", None)
        if complete is None:
            return ""
        from nereid_host import TritonModelException
        from nereid_model_config import ModelConfig

        completed = complete(ModelConfig(config))
        if not isinstance(completed, ModelConfig):
            raise TritonModelException(
                f"auto_complete_config function in model '{self._facts[0]}' must return a valid pb.ModelConfig object."
            )
        return json.dumps(completed._model_config, default=_json_value)

    def _initialize(self, arguments):
        import nereid_readiness
        from nereid_execution import ConcurrentExecutions, SerialExecutions

        arguments = json.loads(arguments)
        self._facts = facts = (*self._facts[:2], arguments["model_instance_name"], *self._facts[3:])
        config = json.loads(arguments["model_config"])
        self._services.instance = facts[2]
        groups = config.get("instance_group")
        # One of the instances tells it.
        if groups and facts[2] == f"{groups[0].get('name')}_0":
            self._tell_unused_stub()
        states = config.get("sequence_batching", {}).get("state", ())
        self._services.codec.state_outputs = frozenset(state["output_name"] for state in states)
        self._services.tell_unknown_outputs(config.get("output", ()), self._facts[6])
        self._services.is_decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled", False))
        # Modules stay, and need not be looked at by each collection of garbage.
        gc.freeze()
        self._model = self._load()()
        if hasattr(self._model, "initialize"):
            self._model.initialize(arguments)
        execute = getattr(self._model, "execute", None)
        # CO_COROUTINE: `inspect` would have to be imported for the same question.
        code = getattr(execute, "__code__", None)
        is_concurrent = code is not None and bool(code.co_flags & 0x80)
        executions = ConcurrentExecutions if is_concurrent else SerialExecutions
        self._executions = executions(self._model, self._services, facts)
        nereid_readiness.serve(self._readiness, self._model, facts[2])
        self._services.may_infer = True
        # So does what the model has built.
        gc.collect()
        gc.freeze()
        return "async" if is_concurrent else "serial"

    def _tell_unused_stub(self):
        stub = os.path.join(self._facts[4], _STUB)
        if os.path.exists(stub):
            text = (
                f"the program '{stub}' is not used: model '{self._facts[0]}' runs in {sys.executable}; its parameter "
                "'PYTHON_EXECUTABLE' or 'EXECUTION_ENV_PATH' names another interpreter"
            )
            self._services.log("WARNING", text, stub, 0)

    def _finalize(self):
        self._services.may_infer = False
        if hasattr(self._model, "finalize"):
            self._model.finalize()
        return ""

    def _load(self):
        """The model's class."""
        if self._class is None:
            version_directory, model_directory, backend_directory, file = self._facts[3:7]
            places = [version_directory, model_directory, backend_directory]
            sys.path.extend(place for place in places if place and place not in sys.path)
            self._class = _module(file, version_directory, model_directory).TritonPythonModel
        return self._class


def _json_value(value):
    """What JSON has for a value that it does not know: bytes, and numbers and truth values of NumPy."""
    import numpy as np

    if isinstance(value, (bytes, bytearray)):
        return text("a text of the configuration", value)
    if isinstance(value, np.bool_):
        return bool(value)
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable") from None


def _module(file, version_directory, model_directory):
    """Imports the file of a model. A version is a package, so that versions are different modules."""
    stem = os.path.splitext(os.path.basename(file))[0]
    if os.path.dirname(file) != version_directory:
        # A backend that is written in Python.
        return importlib.import_module(stem)
    version = os.path.basename(version_directory)
    name = f"{version}.{stem}"
    if os.path.dirname(version_directory) == model_directory and _is_importable(name, file):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _is_importable(name, file):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and os.path.samefile(spec.origin, file)
