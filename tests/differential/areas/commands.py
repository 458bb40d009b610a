"""Cases of the area `commands`: command lines of the server.

A case is up to five options with right or wrong values. Both programs are started with it, over a repository without models.
They end at once with an error, or serve: then their settings are compared, and how they end.
"""

import contextlib
import json
import pathlib
import re
import signal
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import plugins
import processes
import serving
from differential.answers import DIED, HANGS, Answer
from differential.exchange import HttpConnection, HttpRequest
from differential.servers import TRITON, variables

MOST_OPTIONS = 5
NUMBERS = ("1", "0", "-1", "x", "", "1.5", "2147483648", "99999999999999999999", " 1", "1x")
FLAGS = ("true", "false", "1", "0", "True", "on", "x", "")
WORDS = ("x", "", "a=b", "a:b", ",", "a,b=c")
# What each option may be given.
OPTIONS = {
    "id": ("mine", "", "a b"),
    "exit-timeout-secs": NUMBERS,
    "log-verbose": NUMBERS,
    "log-info": FLAGS,
    "log-warning": FLAGS,
    "log-error": FLAGS,
    "log-format": ("default", "ISO8601", "x", ""),
    "strict-model-config": FLAGS,
    "model-control-mode": ("none", "poll", "explicit", "x", ""),
    "repository-poll-secs": NUMBERS,
    "load-model": ("a", "", "*"),
    "model-load-thread-count": NUMBERS,
    "model-load-retry-count": NUMBERS,
    "model-namespacing": FLAGS,
    "exit-on-error": FLAGS,
    "disable-auto-complete-config": ("",),
    "strict-readiness": FLAGS,
    "allow-http": FLAGS,
    "http-thread-count": NUMBERS,
    "http-header-forward-pattern": (".*", "x", "(", ""),
    "reuse-http-port": FLAGS,
    "http-restricted-api": ("health:k=v", "inference,trace:k=v", "x:k=v", "health", "health:k", ":k=v", "health:k=v=w"),
    "allow-grpc": FLAGS,
    "reuse-grpc-port": FLAGS,
    "grpc-infer-allocation-pool-size": NUMBERS,
    "grpc-infer-response-compression-level": ("none", "low", "medium", "high", "x", ""),
    "grpc-keepalive-time": NUMBERS,
    "grpc-keepalive-timeout": NUMBERS,
    "grpc-keepalive-permit-without-calls": FLAGS,
    "grpc-http2-max-pings-without-data": NUMBERS,
    "grpc-http2-min-recv-ping-interval-without-data": NUMBERS,
    "grpc-http2-max-ping-strikes": NUMBERS,
    "grpc-max-connection-age": NUMBERS,
    "grpc-max-connection-age-grace": NUMBERS,
    "grpc-restricted-protocol": ("health:k=v", "inference,trace:k=v", "x:k=v", "health", "health:k", ":k=v"),
    "grpc-header-forward-pattern": (".*", "(", ""),
    "allow-metrics": FLAGS,
    "allow-cpu-metrics": FLAGS,
    "metrics-interval-ms": NUMBERS,
    "metrics-config": ("summary_latencies=true", "counter_latencies=x", "summary_quantiles=0.5:0.1", "x=y", "x", "a,b=c", ""),
    "trace-config": (
        "level=TIMESTAMPS", "rate=5", "count=3", "rate=x", "rate=0", "mode=triton", "mode=x", "triton,file=/tmp/none/x",
        "triton,log-frequency=5", "x", "", "a,b", "level=x", "opentelemetry,resource=a=b",
    ),
    "cache-config": ("local,size=1048576", "local,size=x", "local", "x,size=1", "local,size=", ""),
    "rate-limit": ("off", "execution_count", "x", ""),
    "rate-limit-resource": ("R:1", "R:1:0", "R", "R:x", ":1", "R:1:x", "R:0", "R:1:0:0", ""),
    "pinned-memory-pool-byte-size": NUMBERS,
    "cuda-memory-pool-byte-size": ("0:1", "0", "x:1", "0:x", ""),
    "min-supported-compute-capability": ("6.0", "x", ""),
    "buffer-manager-thread-count": NUMBERS,
    "backend-config": ("python,shm-default-byte-size=1048576", "default-max-batch-size=8", "default-max-batch-size=x", *WORDS),
    "host-policy": ("a,numa-node=0", "a,cpu-cores=0-1", "a,cpu-cores=x", "a,x=y", *WORDS),
    "allow-vertex-ai": ("false", "x"),
    "allow-sagemaker": ("false", "x"),
    "sagemaker-thread-count": NUMBERS,
    "vertex-ai-thread-count": NUMBERS,
    "nonsense": ("1", ""),
    "http": ("1",),
}  # fmt: skip
LOOKED_AT = ("/v2", "/v2/health/ready", "/v2/logging", "/v2/trace/setting", "/v2/repository/index")
SERVICES = ("http", "grpc", "metrics")


@dataclass(frozen=True)
class CommandLine:
    words: tuple

    def __str__(self):
        return json.dumps(self.words)


def draw(choices):
    """A case."""
    words = []
    for _ in choices.several(1, MOST_OPTIONS):
        name = choices.one_of(OPTIONS)
        value = choices.one_of(OPTIONS[name])
        if name == "disable-auto-complete-config" or choices.one_in(40):
            words.append(f"--{name}")
        elif choices.one_in(6) and value:
            words += [f"--{name}", value]
        else:
            words.append(f"--{name}={value}")
    if choices.one_in(40):
        words.append(choices.one_of(("x", "--", "-x")))
    return CommandLine(tuple(words))


class CommandsArea:
    """Both programs, started for each case."""

    name = "commands"
    most_tries = 25
    must_come_again = 0
    draw = staticmethod(draw)

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        self._folder = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="differential-")))
        (self._folder / "models").mkdir()
        self._threads = self._stack.enter_context(ThreadPoolExecutor(2))
        usage = processes.run([TRITON, "--help"], env=processes.variables_with(**variables()))
        self._usage = set(usage.stderr.splitlines() + usage.stdout.splitlines())
        return self

    def __exit__(self, *failure):
        self._stack.close()

    def ask(self, case):
        """How both programs begin, serve and end."""
        caches = f"--cache-directory={plugins.CACHES}"
        triton = self._threads.submit(self._run, case, TRITON, variables(), (caches,))
        own = (caches, "--allow-client-shm=true")
        nereid = self._threads.submit(self._run, case, serving.BINARY, serving.environment(), own)
        return [[triton.result()], [nereid.result()]]

    def _run(self, case, program, environment, own):
        line = [program, f"--model-repository={self._folder}/models", *own]
        line += [f"--{service}-address=127.0.0.1" for service in SERVICES]
        ports = dict(zip(SERVICES, serving.free_ports(len(SERVICES)), strict=True))
        line += [f"--{service}-port={port}" for service, port in ports.items()]
        with tempfile.NamedTemporaryFile(dir=self._folder, mode="r", errors="replace") as log:
            with open(log.name, "wb") as output:
                streams = {"stdout": output, "stderr": processes.STDOUT}
                environment = processes.variables_with(**environment)
                with processes.running([*line, *case.words], env=environment, **streams) as process:
                    served = services(process, ports)
                    fields = looked_at(ports["http"]) if served else {}
                    # It may have ended meanwhile: a service could not start.
                    served = served if process.poll() is None else set()
                    process.send_signal(signal.SIGTERM)
                    try:
                        code = process.wait(serving.PATIENCE)
                    except processes.TimeoutExpired:
                        return Answer(HANGS)
            log.seek(0)
            if served:
                return Answer("serves", fields=fields | {"services": " ".join(sorted(served)), "exit code": code})
            # A signal ended it.
            return Answer(DIED if code < 0 else f"ends with {code}", self._error(log.read()))

    def _error(self, text):
        """What a refused start says, without the usage, lines of the log, and what Triton says of a machine without GPU."""
        lines = [line for line in text.split("\nUsage: nereid")[0].splitlines() if line not in self._usage]
        lines = [line for line in lines if line.strip() and not re.match(r"[IWE]\d{4} |[+|]|Error: Failed to initialize NVML", line)]
        return "\n".join(line.replace(str(TRITON), "nereid") for line in lines)


def services(process, ports):
    """The services that have started; none if the program has ended. The log does not tell: options switch its lines off."""

    def begun():
        return process.poll() is not None or [service for service, port in ports.items() if accepts(port)]

    serving.eventually(begun, "the program to serve or to end")
    # A service that is off never begins.
    with contextlib.suppress(AssertionError):
        serving.eventually(lambda: begun() in (True, list(ports)), "all services", patience=1.0)
    found = begun()
    return set() if found is True else set(found)


def accepts(port):
    """Whether somebody listens at a port."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def looked_at(port):
    """What a server says of itself."""
    connection = HttpConnection(f"127.0.0.1:{port}")
    fields = {}
    for path in LOOKED_AT:
        answer = connection.ask(HttpRequest("GET" if "index" not in path else "POST", path))
        fields |= {f"{path} code": answer.outcome} | {f"{path} {name}": value for name, value in answer.fields.items()}
    connection.close()
    return fields
