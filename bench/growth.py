"""What holds many, doubled: the processor time that a server needs for n of something and for 2 n, and how they compare.

Usage: growth.py SERVER BACKENDS FOLDER ROUNDS FILTER. SERVER is the program, BACKENDS the folder with the identity backend
of reference_backend.c, FOLDER a folder for repositories and logs. Prints the rows of a table in Markdown: the name, n, the
times in ms for n and for 2 n, and their quotient. Each time is the least of the rounds. Work that grows with the number of
things gives 2; work that looks at all of them for each gives 4.
"""

import concurrent.futures
import contextlib
import json
import pathlib
import resource
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from hashlib import sha256

import grpc
import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.grpc import service_pb2

START_SECONDS, STOP_SECONDS = 120, 60
SERVICE = "/inference.GRPCInferenceService/"

TENSORS = """\
input {{ name: "INPUT{0}" data_type: TYPE_FP32 dims: [ 4 ] }}
output {{ name: "OUTPUT{0}" data_type: TYPE_FP32 dims: [ 4 ] }}
"""

STEP = """\
step {{
  model_name: "m" model_version: -1
  input_map {{ key: "INPUT0" value: "{}" }} output_map {{ key: "OUTPUT0" value: "{}" }}
}}
"""

# Settings of models.
PLAIN = "max_batch_size: 0\n"
SEQUENCES = """\
sequence_batching { oldest { max_candidate_sequences: 100000 } max_sequence_idle_microseconds: 600000000 }
"""
# One sequence runs at a time. The others wait for its end.
ONE_SEQUENCE = "max_batch_size: 1\nsequence_batching { direct {} max_sequence_idle_microseconds: 600000000 }\n"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Repository:
    """A folder with models of the identity backend."""

    def __init__(self, folder):
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def model(self, name, more=PLAIN, tensors=1, versions=1):
        text = 'backend: "identity"\n' + more + "".join(TENSORS.format(tensor) for tensor in range(tensors))
        if "instance_group" not in more:
            text += "instance_group { kind: KIND_CPU }\n"
        self.write(name, text, versions)

    def write(self, name, text, versions=1):
        for version in range(1, versions + 1):
            (self.folder / name / str(version)).mkdir(parents=True)
        (self.folder / name / "config.pbtxt").write_text(text)


class Server:
    """A server of such a repository, and the processor time that it has used."""

    def __init__(self, bench, repository, more=()):
        self.http_port, self.grpc_port, self.metrics_port = free_port(), free_port(), free_port()
        command = [bench.program, f"--model-repository={repository.folder}", f"--backend-directory={bench.backends}"]
        command += [f"--http-port={self.http_port}", f"--grpc-port={self.grpc_port}"]
        command += [f"--metrics-port={self.metrics_port}", *more]
        with (bench.folder / "growth.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise SystemExit(f"the server is not ready: see {bench.folder / 'growth.log'}")
            time.sleep(0.01)

    def is_ready(self):
        with contextlib.suppress(OSError):
            return self.get("v2/health/ready").status == 200
        return False

    def get(self, path, port=None):
        with urllib.request.urlopen(f"http://127.0.0.1:{port or self.http_port}/{path}", timeout=60) as answer:
            answer.read()
            return answer

    def used(self):
        """The processor time of the process so far, in ms: the kernel's clock of another process."""
        return time.clock_gettime(~self.process.pid << 3 | 2) * 1000

    def http(self):
        return httpclient.InferenceServerClient(f"127.0.0.1:{self.http_port}", network_timeout=60)

    def grpc(self):
        return grpcclient.InferenceServerClient(f"127.0.0.1:{self.grpc_port}")

    def channel(self):
        return grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def tensor(client, name, values=(0, 1, 2, 3), **how):
    given = client.InferInput(name, [len(values)], "FP32")
    given.set_data_from_numpy(np.array(values, np.float32), **how)
    return given


class Bench:
    def __init__(self, program, backends, folder):
        self.program, self.backends, self.folder = program, backends, pathlib.Path(folder)

    @contextlib.contextmanager
    def serving(self, repository, *more):
        server = Server(self, repository, more)
        try:
            yield server
        finally:
            server.stop()

    def repository(self):
        return Repository(self.folder / "growth")

    def one_model(self, more=PLAIN, tensors=1):
        repository = self.repository()
        repository.model("m", more, tensors)
        return repository

    def many_models(self, count):
        repository = self.repository()
        for number in range(count):
            repository.model(f"m{number}")
        return repository

    # Each of these returns the processor time for n things, in ms.

    def models(self, count):
        return self.started(self.many_models(count))

    def started(self, repository):
        """The processor time of a start, without that of a start with one model."""
        with self.serving(repository) as server:
            used = server.used()
        with self.serving(self.one_model()) as server:
            return used - server.used()

    def index(self, count):
        with self.serving(self.many_models(count)) as server, contextlib.closing(server.http()) as client:
            return self.least(server, client.get_model_repository_index, 30)

    def readiness(self, count):
        with self.serving(self.many_models(count)) as server:
            return self.least(server, lambda: [server.is_ready() for _ in range(200)])

    def metrics(self, count):
        with self.serving(self.many_models(count)) as server:
            return self.least(server, lambda: server.get("metrics", server.metrics_port))

    def versions(self, count):
        repository = self.repository()
        repository.model("m", PLAIN + "version_policy { all {} }\n", versions=count)
        return self.started(repository)

    def instances(self, count):
        groups = PLAIN + f"instance_group {{ kind: KIND_CPU count: {count} }}\n"
        return self.started(self.one_model(groups))

    def ensemble_steps(self, count):
        repository = self.one_model()
        names = ["INPUT0", *(f"t{number}" for number in range(1, count)), "OUTPUT0"]
        steps = "".join(STEP.format(*pair) for pair in zip(names, names[1:]))
        text = f'platform: "ensemble"\nmax_batch_size: 0\n{TENSORS.format(0)}ensemble_scheduling {{\n{steps}}}\n'
        repository.write("e", text)
        with self.serving(repository) as server, contextlib.closing(server.http()) as client:
            return self.least(server, lambda: client.infer("e", [tensor(httpclient, "INPUT0")]))

    def inputs_json(self, count):
        return self.inputs(count, httpclient, binary_data=False)

    def inputs_binary(self, count):
        return self.inputs(count, httpclient)

    def inputs_grpc(self, count):
        return self.inputs(count, grpcclient)

    def inputs(self, count, client, **how):
        # Not in the order of the configuration.
        inputs = [tensor(client, f"INPUT{number}", **how) for number in reversed(range(count))]
        outputs = [client.InferRequestedOutput(f"OUTPUT{number}", **how) for number in range(count)]
        with self.serving(self.one_model(tensors=count)) as server:
            with contextlib.closing(server.http() if client is httpclient else server.grpc()) as connection:
                return self.least(server, lambda: connection.infer("m", inputs, outputs=outputs), 10)

    def connections(self, count):
        with self.serving(self.one_model(), f"--max-connections-per-address={2 * count}") as server:
            before = server.used()
            with contextlib.ExitStack() as stack:
                for _ in range(count):
                    connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.http_port)))
                    connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: n\r\n\r\n")
                    connection.recv(4096)
                server.get("v2/health/live")
            server.get("v2/health/live")
            return server.used() - before

    def streams(self, count):
        with self.serving(self.one_model()) as server, server.channel() as channel:
            stream = channel.stream_stream(SERVICE + "ModelStreamInfer")
            given = tensor(grpcclient, "INPUT0")
            request = service_pb2.ModelInferRequest(model_name="m", inputs=[given._get_tensor()])
            request.raw_input_contents.append(given._get_content())
            before = server.used()
            # Each stays open while the others come.
            calls = [stream(iter_and_wait(request.SerializeToString())) for _ in range(count)]
            for call in calls:
                next(call)
            used = server.used() - before
            for call in calls:
                call.cancel()
            return used

    def sequences(self, count):
        with self.serving(self.one_model(PLAIN + SEQUENCES)) as server, contextlib.closing(server.http()) as client:
            given = [tensor(httpclient, "INPUT0")]
            before = server.used()
            for number in range(1, count + 1):
                client.infer("m", given, sequence_id=number, sequence_start=True)
            return server.used() - before

    def regions(self, count):
        options = ["--allow-client-shm=true", f"--max-client-shm-regions={count}"]
        with self.serving(self.one_model(), *options) as server, contextlib.closing(server.http()) as client:
            memory = pathlib.Path("/dev/shm/nereid-growth")
            memory.write_bytes(bytes(4096))
            try:
                before = server.used()
                for number in range(count):
                    client.register_system_shared_memory(f"r{number}", memory.name, 64)
                for number in range(count):
                    client.unregister_system_shared_memory(f"r{number}")
                return server.used() - before
            finally:
                memory.unlink()

    def queued_requests(self, count):
        with self.serving(self.one_model(ONE_SEQUENCE)) as server, server.channel() as channel:
            given = grpcclient.InferInput("INPUT0", [1, 4], "FP32")
            given.set_data_from_numpy(np.zeros((1, 4), np.float32))

            def message(sequence):
                request = service_pb2.ModelInferRequest(model_name="m", inputs=[given._get_tensor()])
                request.raw_input_contents.append(given._get_content())
                request.parameters["sequence_id"].int64_param = sequence
                request.parameters["sequence_start"].bool_param = True
                return request.SerializeToString()

            channel.unary_unary(SERVICE + "ModelInfer")(message(1))
            messages = [message(number) for number in range(2, count + 2)]
            before = server.used()
            call = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter_and_wait(*messages))
            pending = f'nv_inference_pending_request_count{{model="m",version="1"}} {count}\n'
            while pending not in self.metrics_of(server):
                time.sleep(0.1)
            call.cancel()
            while pending.replace(str(count), "0") not in self.metrics_of(server):
                time.sleep(0.1)
            return server.used() - before

    def metrics_of(self, server):
        with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=60) as answer:
            return answer.read().decode()

    def cached_answers(self, count):
        more = PLAIN + "response_cache { enable: true }\n"
        with self.serving(self.one_model(more), "--cache-config=local,size=268435456") as server:
            with contextlib.closing(server.http()) as client:
                before = server.used()
                for _ in range(2):
                    for number in range(count):
                        client.infer("m", [tensor(httpclient, "INPUT0", (number, 0, 0, 0))])
                return server.used() - before

    def keys(self, count):
        secrets = [f"secret-{number:032}" for number in range(count)]
        all_of_it = {"apis": ["*"], "models": ["*"]}
        keys = [{"name": key, "sha256": sha256(key.encode()).hexdigest(), **all_of_it} for key in secrets]
        file = self.folder / "growth-keys.json"
        file.write_text(json.dumps({"keys": keys, "anonymous": {"apis": ["health"], "models": []}}))
        with self.serving(self.one_model(), f"--api-key-file={file}") as server, contextlib.closing(server.http()) as client:
            headers, given = {"authorization": f"Bearer {secrets[-1]}"}, [tensor(httpclient, "INPUT0")]
            return self.least(server, lambda: [client.infer("m", given, headers=headers) for _ in range(200)])

    def least(self, server, work, times=5):
        """The least processor time of the work, after it has been done once."""
        work()
        least = float("inf")
        for _ in range(times):
            before = server.used()
            work()
            least = min(least, server.used() - before)
        return least


def iter_and_wait(*messages):
    """Messages, and then none until the call ends."""
    yield from messages
    concurrent.futures.Future().result()


# What is doubled, and its number.
ROWS = {
    "models, loaded": (Bench.models, 1000),
    "models, in an index": (Bench.index, 4000),
    "models, when a client asks 200 times whether the server is ready": (Bench.readiness, 4000),
    "models, in the metrics": (Bench.metrics, 1000),
    "versions of a model": (Bench.versions, 200),
    "instances of a model": (Bench.instances, 200),
    "steps of an ensemble": (Bench.ensemble_steps, 200),
    "inputs and outputs over JSON": (Bench.inputs_json, 1000),
    "inputs and outputs over HTTP, binary": (Bench.inputs_binary, 1000),
    "inputs and outputs over gRPC": (Bench.inputs_grpc, 1000),
    "connections": (Bench.connections, 2000),
    "streams of gRPC": (Bench.streams, 50),
    "sequences": (Bench.sequences, 2000),
    "regions of shared memory": (Bench.regions, 2000),
    "requests that wait": (Bench.queued_requests, 2000),
    "cached answers": (Bench.cached_answers, 2000),
    "API keys": (Bench.keys, 2000),
}


def main():
    program, backends, folder, rounds, wanted = sys.argv[1:]
    # Each connection is a descriptor, here and in the server.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    bench = Bench(program, backends, folder)
    for name, (measure, count) in ROWS.items():
        if wanted not in name:
            continue
        once, twice = [min(measure(bench, many) for _ in range(int(rounds))) for many in (count, 2 * count)]
        print(f"| {name} | {count} | {once:.1f} | {twice:.1f} | {twice / once:.2f} |", flush=True)


main()
