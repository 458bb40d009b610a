"""What users would pick instead: the same model behind other servers, with the same load.

Usage: peers.py --rounds N --seconds S [--filter TEXT] [--picture FILE]. Prints a row of a table in Markdown for each server and number of
callers: requests a second, the latencies in us that half of the requests and 99 of 100 do not exceed, and the processor time of
a request in us, of all processes of the server. Each figure is the median of the rounds, in which the servers take turns. Each
server has two workers (processes, replicas or instances), which compute with one thread. What a server needs is installed by
name into a virtual environment of its own, below the folder PEERS_FOLDER. `wrk` makes the load (PEERS_WRK), with one request as
JSON for all. NEREID_BINARY is our server; PEERS_REFERENCE is the site-packages folder of the real one, if it is there.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests" / "clients"))

import numpy as np
import repository as models
from serving import free_port

FOLDER = pathlib.Path(os.environ["PEERS_FOLDER"])
CALLERS = (1, 16)
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 180
WARM_UP = 3
FEATURES, HIDDEN, CLASSES = 64, 512, 10

# What all servers in Python compute.
COMPUTE = """\
import numpy as np
import onnxruntime

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])


def compute(values):
    return session.run(None, {"X": np.array(values, np.float32).reshape(1, -1)})[0]
"""

FASTAPI = """\
import fastapi
from compute import compute

app = fastapi.FastAPI()


@app.post("/predict")
def predict(body: dict):
    return {"output": compute(body["input"])[0].tolist()}
"""

LITSERVE = """\
import sys

import litserve


class Network(litserve.LitAPI):
    def setup(self, device):
        from compute import compute

        self.compute = compute

    def decode_request(self, request):
        return request["input"]

    def predict(self, values):
        return self.compute(values)

    def encode_response(self, output):
        return {"output": output[0].tolist()}


if __name__ == "__main__":
    server = litserve.LitServer(Network(), accelerator="cpu", workers_per_device=2)
    server.run(port=int(sys.argv[1]), num_api_servers=1, generate_client_file=False)
"""

BENTOML = """\
import bentoml


@bentoml.service(workers=2)
class Network:
    def __init__(self):
        from compute import compute

        self.compute = compute

    @bentoml.api(route="/predict")
    def predict(self, input: list[float]) -> dict:
        return {"output": self.compute(input)[0].tolist()}
"""

RAY = """\
import sys
import time

from ray import serve


@serve.deployment(num_replicas=2, max_ongoing_requests=64)
class Network:
    def __init__(self):
        from compute import compute

        self.compute = compute

    async def __call__(self, request):
        return {"output": self.compute((await request.json())["input"])[0].tolist()}


serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
serve.run(Network.bind(), route_prefix="/predict")
while True:
    time.sleep(60)
"""

MLSERVER = """\
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Network(MLModel):
    async def load(self):
        from compute import compute

        self.compute = compute
        return True

    async def predict(self, payload):
        values = NumpyCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output("Y", self.compute(values))
        return InferenceResponse(model_name=self.name, outputs=[output])
"""

TRITON = COMPUTE.replace('"model.onnx"', "__file__[:-8] + 'model.onnx'") + """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            output = compute(pb_utils.get_input_tensor_by_name(request, "X").as_numpy())
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", output)]))
        return answers
"""

TENSORS = models.tensor("input", "X", "FP32", FEATURES) + models.tensor("output", "Y", "FP32", CLASSES)
VALUES = [round(value, 4) for value in np.linspace(-1, 1, FEATURES).tolist()]
PLAIN = json.dumps({"input": VALUES})
KSERVE = json.dumps({"inputs": [{"name": "X", "shape": [1, FEATURES], "datatype": "FP32", "data": VALUES}]})
KSERVE_PATH = "/v2/models/net/infer"

Peer = collections.namedtuple("Peer", "name packages prepare path body")


def network():
    generator = np.random.default_rng(1)
    sizes = [(FEATURES, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES)]
    weights = {name: generator.normal(0, 0.1, size).astype(np.float32) for name, size in zip("ABC", sizes, strict=True)}
    text = f"""net (float[N, {FEATURES}] X) => (float[N, {CLASSES}] Y)
    {{ H = MatMul(X, A) I = Relu(H) J = MatMul(I, B) K = Relu(J) Y = MatMul(K, C) }}"""
    return models.graph(text, **weights)


def installed(peer):
    """The interpreter of a virtual environment with the packages of a server."""
    folder = FOLDER / re.sub(r"\W", "-", peer.name)
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        print(f"installing {' '.join(peer.packages)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        line = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages]
        subprocess.run(line, check=True, stdout=sys.stderr)
        complete.touch()
    return python


def ours(folder, port):
    models.write(folder / "models", "net", network(), "max_batch_size: 8 instance_group { count: 2 }\n" + TENSORS)
    line = [os.environ["NEREID_BINARY"], f"--model-repository={folder / 'models'}", f"--http-port={port}"]
    return [*line, "--http-address=127.0.0.1", "--allow-grpc=false", "--allow-metrics=false"], {}


def triton(folder, port):
    packages = pathlib.Path(os.environ["PEERS_REFERENCE"])
    version = folder / "models" / "net" / "1"
    models.write(folder / "models", "net", network(), "")
    (version / "model.py").write_text(TRITON)
    config = f'name: "net" backend: "python" max_batch_size: 8 instance_group {{ count: 2 kind: KIND_CPU }}\n{TENSORS}'
    (version.parent / "config.pbtxt").write_text(config)
    server = packages / "pytriton" / "tritonserver"
    line = [server / "bin" / "tritonserver", f"--model-repository={folder / 'models'}", f"--http-port={port}"]
    line += [f"--backend-directory={os.environ['PEERS_BACKENDS']}", "--http-address=127.0.0.1"]
    path = f"{packages.parents[2] / 'bin'}:{os.environ['PATH']}"
    return [*line, "--allow-grpc=false", "--allow-metrics=false"], {
        "LD_LIBRARY_PATH": str(packages / "nvidia_pytriton.libs"),
        "PATH": path,
    }


def program(text, line):
    """A server that is a program of its own beside `compute.py`."""

    def prepare(folder, port, python):
        (folder / "compute.py").write_text(COMPUTE)
        (folder / "server.py").write_text(text)
        models.onnx.save(network(), folder / "model.onnx")
        return [python, *(word.replace("PORT", str(port)) for word in line)], {}

    return prepare


def mlserver(folder, port, python):
    (folder / "compute.py").write_text(COMPUTE)
    (folder / "server.py").write_text(MLSERVER)
    models.onnx.save(network(), folder / "model.onnx")
    (folder / "model-settings.json").write_text('{"name": "net", "implementation": "server.Network"}')
    ports = {"host": "127.0.0.1", "http_port": port, "grpc_port": free_port(), "metrics_port": free_port()}
    settings = {**ports, "parallel_workers": 2, "debug": False}
    (folder / "settings.json").write_text(json.dumps(settings))
    return [python.parent / "mlserver", "start", "."], {"PYTHONPATH": "."}


def peers():
    runtime = ["onnxruntime", "numpy"]
    uvicorn = ["-m", "uvicorn", "server:app", "--port=PORT", "--workers=2", "--log-level=warning"]
    bento = ["-m", "bentoml", "serve", "server:Network", "--port=PORT", "--host=127.0.0.1"]
    yield Peer("Nereid", None, ours, KSERVE_PATH, KSERVE)
    if "PEERS_REFERENCE" in os.environ:
        yield Peer("Triton 2.51", None, triton, KSERVE_PATH, KSERVE)
    # Its workers do not start with the next version of uvloop.
    yield Peer("MLServer", ["mlserver", "uvloop<0.22", *runtime], mlserver, KSERVE_PATH, KSERVE)
    yield Peer("LitServe", ["litserve", *runtime], program(LITSERVE, ["server.py", "PORT"]), "/predict", PLAIN)
    yield Peer("BentoML", ["bentoml", *runtime], program(BENTOML, bento), "/predict", PLAIN)
    yield Peer("Ray Serve", ["ray[serve]", *runtime], program(RAY, ["server.py", "PORT"]), "/predict", PLAIN)
    yield Peer("FastAPI", ["fastapi", "uvicorn[standard]", *runtime], program(FASTAPI, uvicorn), "/predict", PLAIN)


class Running:
    """A server that runs, in a session of its own, so that all its processes are known and end with it."""

    def __init__(self, peer):
        self.peer, self.port = peer, free_port()
        # A short path: some servers have sockets below it.
        self._files = tempfile.TemporaryDirectory(dir="/tmp", prefix="peer")
        self.folder = pathlib.Path(self._files.name)
        more = [] if peer.packages is None else [installed(peer)]
        line, variables = peer.prepare(self.folder, self.port, *more)
        environment = {**os.environ, "RAY_TMPDIR": str(self.folder), "BENTOML_HOME": str(self.folder / "bento"), **variables}
        environment["PEERS_MARK"] = self.mark = f"peer-{os.getpid()}-{self.port}"
        environment["HOME"] = str(self.folder)
        self.log = self.folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                line, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def processes(self):
        """All processes that this one has started, also those that have left its session: they have its mark."""
        found, mark = [], f"PEERS_MARK={self.mark}".encode()
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    def wait(self):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{self.peer.path}", self.peer.body.encode())
        request.add_header("Content-Type", "application/json")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        begun = time.monotonic()
        while time.monotonic() < begun + PATIENCE:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError, urllib.error.URLError), opener.open(request, timeout=10) as answer:
                assert len(re.findall(rb"-?\d+\.\d+", answer.read())) >= CLASSES
                return
            time.sleep(0.1)
        sys.exit(f"{self.peer.name} does not answer:\n{self.log.read_text(errors='replace')[-3000:]}")

    def used(self):
        """The processor time of its processes so far, in seconds."""
        ticks = 0
        for process in self.processes():
            with contextlib.suppress(OSError):
                fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
        return ticks / TICKS

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        while left := self.processes():
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.05)
        self.process.wait()
        self._files.cleanup()

    def measure(self, callers, seconds):
        script = self.folder / "request.lua"
        script.write_text(
            f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nwrk.body = [[{self.peer.body}]]\n'
            "function done(summary, latency)\n"
            "  local e = summary.errors\n"
            '  io.write(string.format("FIGURES %d %d %f %f %f\\n", summary.requests, summary.duration,\n'
            "    latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))\n"
            "end\n"
        )
        line = [os.environ["PEERS_WRK"], "-t1", f"-c{callers}", f"-d{seconds}s", "--timeout", "30s", "-s", script]
        before = self.used()
        ended = subprocess.run(
            [*line, f"http://127.0.0.1:{self.port}{self.peer.path}"], capture_output=True, text=True, check=True
        )
        used = self.used() - before
        figures = re.search(r"FIGURES (\d+) (\d+) (\S+) (\S+) (\S+)", ended.stdout)
        requests, micros, half, most, errors = map(float, figures.groups())
        assert errors == 0, f"{self.peer.name}: {errors:.0f} requests failed\n{ended.stdout}"
        return requests / micros * 1e6, half, most, used / requests * 1e6


STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328; } .bar { fill: #8c959f; } .own { fill: #0969da; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .bar { fill: #6e7681; } .own { fill: #4493f8; } }"""


def picture(figures):
    """Bars of requests a second with the most callers, and the processor time of a request."""
    most = max(rate for _, rate, _ in figures)
    lines = []
    for row, (name, rate, used) in enumerate(figures):
        y, width = 40 + 26 * row, max(1, 330 * rate / most)
        lines += [
            f'<text x="108" y="{y + 13}" text-anchor="end">{name}</text>',
            f'<rect class="{"bar" if row else "own"}" x="116" y="{y}" width="{width:.0f}" height="18" rx="2"/>',
            f'<text x="{122 + width:.0f}" y="{y + 13}">{rate:,.0f}</text>',
            f'<text x="700" y="{y + 13}" text-anchor="end">{used:,.0f} µs</text>',
        ]
    told = "; ".join(f"{name}: {rate:,.0f} requests a second, {used:,.0f} µs" for name, rate, used in figures)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {48 + 26 * len(figures)}" role="img">'
    titles = f"<title>Requests a second, and processor time of a request</title><desc>{told}</desc>"
    texts = '<text x="116" y="22">Requests a second</text><text x="700" y="22" text-anchor="end">Processor time of one</text>'
    return "\n".join([head, titles, f"<style>{STYLE}</style>", texts, *lines, "</svg>\n"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--filter", default="")
    parser.add_argument("--picture", type=pathlib.Path)
    options = parser.parse_args()
    wanted = [peer for peer in peers() if options.filter.lower() in peer.name.lower()]
    found = collections.defaultdict(list)
    for peer in wanted:
        if peer.packages is not None:
            installed(peer)
    for number in range(options.rounds):
        # One after the other: most of them use processors while nobody asks.
        for peer in wanted:
            running = Running(peer)
            try:
                running.wait()
                running.measure(max(CALLERS), WARM_UP)
                for callers in CALLERS:
                    figures = running.measure(callers, options.seconds)
                    print(f"round {number + 1}, {peer.name}, {callers} callers: {figures[0]:.0f}/s", file=sys.stderr)
                    found[peer.name, callers].append(figures)
            finally:
                running.end()
    for callers in CALLERS:
        medians = {
            peer.name: [statistics.median(column) for column in zip(*found[peer.name, callers], strict=True)]
            for peer in wanted
        }
        for name, figures in medians.items():
            print(f"| {name} | {callers} | " + " | ".join(f"{figure:,.0f}" for figure in figures) + " |")
    if options.picture:
        options.picture.write_text(picture([(name, rate, used) for name, (rate, _, _, used) in medians.items()]))


if __name__ == "__main__":
    main()
