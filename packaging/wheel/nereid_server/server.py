"""A server as an object: it starts, answers and ends with a block of Python. For notebooks and tests."""

from __future__ import annotations

import asyncio
import collections
import functools
import http.client
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import tempfile
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Hashable, Iterable, Mapping
from urllib.parse import quote

import numpy as np

from . import BINARY
from .process import NotifySocket, ServerError, has_ended
from .regions import Region, Regions
from .tensors import LARGE, arrays, decode, encode

# Connections that wait for the next request.
_MOST_IDLE = 32
# Threads of `infer_async`. They start when they are needed.
_MOST_THREADS = 64
# Kinds of requests whose large outputs are remembered.
_MOST_KINDS = 64


class Server:
    """A server that runs from here to `close`, or to the end of a `with` block.

    `model_repository` is a folder of models, an ONNX file, or an address such as `s3://...`. Each named option is an option
    of the program: `model_control_mode="explicit"` is `--model-control-mode=explicit`, and a list gives the option several
    times. The server listens on a unix socket, at `http_socket`. It has ports for gRPC and metrics if an option names them.

    Any thread may call the methods. A call ends with ServerError if the server refuses it, and after `timeout` seconds with
    TimeoutError.
    """

    def __init__(
        self,
        model_repository: str | os.PathLike[str],
        *,
        timeout: float = 60.0,
        program: str | os.PathLike[str] = BINARY,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ):
        self._timeout = timeout
        self._folder = tempfile.TemporaryDirectory(prefix="nereid-")
        folder = pathlib.Path(self._folder.name)
        self.http_socket = str(folder / "http")
        self._log = folder / "log"
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._output_sizes: collections.OrderedDict[Hashable, dict[str, int]] = collections.OrderedDict()
        self._threads = ThreadPoolExecutor(_MOST_THREADS, "nereid")
        self._regions = Regions(weakref.WeakMethod(self._ask))
        own = {"http_address": f"unix:{self.http_socket}", "allow_client_shm": True}
        for name in ("grpc", "metrics"):
            own[f"allow_{name}"] = any(option.startswith(f"{name}_") for option in options)
        line = [os.fspath(program), f"--model-repository={os.fspath(model_repository)}"]
        for name, value in {**own, **options}.items():
            values = value if isinstance(value, (list, tuple)) else [value]
            line += [f"--{name.replace('_', '-')}={_text(value)}" for value in values]
        try:
            self._process = self._start(line, {**os.environ, **(environment or {})})
        except BaseException:
            self._folder.cleanup()
            raise
        self._ended = weakref.finalize(self, _end, os.getpid(), self._process, self._folder)

    def _start(self, line: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        with NotifySocket(self._folder.name) as told, open(self._log, "wb") as log:
            variables = {**environment, **told.variables}
            process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables)
            if told.wait_until_ready(process):
                return process
        raise ServerError(has_ended(process.returncode, self.log()))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server. Requests that run are answered before, as long as its `exit_timeout_secs` permits."""
        self._ended()
        self._threads.shutdown()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def log(self) -> str:
        """What the server has logged."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def infer(
        self, model: str, inputs: Mapping[str, Any], *, version: int | None = None, **parameters: Any
    ) -> dict[str, np.ndarray]:
        """The outputs of a model. Inputs are arrays, or what NumPy makes arrays of: texts and bytes are BYTES.

        Parameters are those of the request, such as `id`, `sequence_id` and `sequence_start`. Outputs are read only, but for
        BYTES, which are objects. BF16 becomes float32. If a request that wants large outputs in shared memory is refused, it
        is repeated without them, unless it belongs to a sequence.
        """
        path, inputs = infer_path(model, version), arrays(inputs)
        kind = (path, *((name, array.dtype.str, array.shape) for name, array in inputs.items()))
        # A request of a sequence cannot be repeated.
        sizes = None if "sequence_id" in parameters else self._output_sizes.get(kind)
        try:
            outputs = self._infer(path, inputs, parameters, sizes)
        except ServerError as error:
            if sizes is None or error.status is None:
                raise
            # The outputs of the model may have changed.
            outputs = self._infer(path, inputs, parameters, None)
        self._note(kind, outputs)
        return outputs

    def _infer(
        self,
        path: str,
        inputs: Mapping[str, np.ndarray],
        parameters: Mapping[str, Any],
        sizes: Mapping[str, int] | None,
    ) -> dict[str, np.ndarray]:
        """`sizes` are the bytes of the outputs, as far as they are known."""
        taken: list[Region] = []

        def take(size: int) -> Region:
            taken.append(self._regions.take(size))
            return taken[-1]

        def lend(name: str, size: int) -> np.ndarray:
            taken.remove(places[name])
            return self._regions.lend(places[name], size)

        done = False
        try:
            places = {name: take(size) if size >= LARGE else None for name, size in (sizes or {}).items()}
            headers, body = encode(inputs, parameters, places or None, take)
            outputs = decode(*self._exchange("POST", path, headers, body), lend)
            done = True
        finally:
            self._release(taken, done)
        return outputs

    def _note(self, kind: Hashable, outputs: Mapping[str, np.ndarray]) -> None:
        """Remembers the outputs of a kind of request, if one of them is large: the next one gets it in shared memory."""
        sizes = {name: 0 if array.dtype == object else array.nbytes for name, array in outputs.items()}
        with self._lock:
            self._output_sizes.pop(kind, None)
            if max(sizes.values(), default=0) >= LARGE:
                self._output_sizes[kind] = sizes
            while len(self._output_sizes) > _MOST_KINDS:
                self._output_sizes.popitem(last=False)

    async def infer_async(
        self, model: str, inputs: Mapping[str, Any], *, version: int | None = None, **parameters: Any
    ) -> dict[str, np.ndarray]:
        """As `infer`. A thread of this object waits for the server, one for each of the first 64 calls at a time."""
        call = functools.partial(self.infer, model, inputs, version=version, **parameters)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def load(self, model: str, config: Mapping[str, Any] | None = None) -> None:
        """Loads a model, or loads it again. `config` is used instead of its configuration."""
        self._ask("POST", f"repository/models/{quote(model, '')}/load", _parameters(config=config and json.dumps(config)))

    def unload(self, model: str, *, dependents: bool = False) -> None:
        """Unloads a model, and with `dependents` what only its ensemble uses."""
        self._ask("POST", f"repository/models/{quote(model, '')}/unload", _parameters(unload_dependents=dependents or None))

    def models(self) -> list[dict[str, Any]]:
        """The models of the repository: `name`, and `version`, `state` and `reason` where there are any."""
        return self._ask("POST", "repository/index", {})

    def is_ready(self, model: str | None = None) -> bool:
        """Whether the server is ready, or a model."""
        path = "health/ready" if model is None else f"models/{quote(model, '')}/ready"
        try:
            self._exchange("GET", path, {}, b"")
        except ServerError as error:
            if error.status is None:
                raise
            return False
        return True

    def metadata(self, model: str | None = None) -> dict[str, Any]:
        """The metadata of the server, or of a model."""
        return self._ask("GET", "" if model is None else f"models/{quote(model, '')}")

    def config(self, model: str) -> dict[str, Any]:
        """The configuration of a model, with all that the server has completed."""
        return self._ask("GET", f"models/{quote(model, '')}/config")

    def statistics(self, model: str | None = None) -> list[dict[str, Any]]:
        """The statistics of all versions of all models, or of one."""
        path = "models/stats" if model is None else f"models/{quote(model, '')}/stats"
        return self._ask("GET", path)["model_stats"]

    def _release(self, held: Iterable[Region], done: bool) -> None:
        for region in held:
            try:
                (self._regions.give_back if done else self._regions.forget)(region)
            except (ServerError, OSError):
                # The server has gone, and its regions with it.
                pass

    def _ask(self, method: str, path: str, message: Any = None) -> Any:
        body = b"" if message is None else json.dumps(message).encode()
        return json.loads(self._exchange(method, path, {}, body)[1] or "null")

    def _exchange(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[str | None, bytes]:
        connection = self._kept() or _UnixConnection(self.http_socket, self._timeout)
        try:
            connection.request(method, f"/v2/{path}".rstrip("/"), body, dict(headers))
            response = connection.getresponse()
            content = response.read()
        except (http.client.HTTPException, ConnectionError, FileNotFoundError) as error:
            connection.close()
            raise self._gone(error) from error
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if len(self._idle) < _MOST_IDLE and not response.will_close:
                self._idle.append(connection)
                connection = None
        if connection is not None:
            connection.close()
        return answer(response.status, response.headers, content)

    def _kept(self) -> http.client.HTTPConnection | None:
        """A connection of an earlier request that the server has not closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            look = select.poll()
            look.register(connection.sock, select.POLLIN)
            if not look.poll(0):
                return connection
            connection.close()

    def _gone(self, error: Exception) -> ServerError:
        status = self._process.poll()
        return ServerError(f"no answer: {error}" if status is None else f"the server has ended with status {status}")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float):
        super().__init__("nereid", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def answer(status: int, headers: Mapping[str, str] | http.client.HTTPMessage, content: bytes) -> tuple[str | None, bytes]:
    """The length of the head and the body of an answer."""
    if status < 400:
        return headers.get("Inference-Header-Content-Length"), content
    try:
        message = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError):
        message = content.decode(errors="replace") or f"status {status}"
    raise ServerError(message, status)


def infer_path(model: str, version: int | None) -> str:
    versions = "" if version is None else f"/versions/{version}"
    return f"models/{quote(model, '')}{versions}/infer"


def _parameters(**parameters: Any) -> dict[str, Any]:
    return {"parameters": {name: value for name, value in parameters.items() if value is not None}}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _end(owner: int, process: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
    """Also called when nobody has the server any more, and when the interpreter ends. A fork of the process has no server."""
    if os.getpid() != owner:
        return
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    # The server ends by itself after its exit timeout.
    process.wait()
    folder.cleanup()
