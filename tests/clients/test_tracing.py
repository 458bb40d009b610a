"""Tracing: settings by clients, files, and spans for a collector."""

import json
import os
import socket
import threading
import time
from collections import defaultdict

import ensembles
import numpy as np
import plugins
import processes
import pytest
import repository as models
import requests
import tritonclient.grpc.aio
import tritonclient.http.aio
from collector import Collector, check_nesting
from held import build_backend
from protocols import GRPC, HTTP, add_sub_inputs, metric
from serving import Server, eventually
from tritonclient.utils import InferenceServerException

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FRONT = {
    "http": ["HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_START", "HTTP_SEND_END"],
    "grpc": ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "GRPC_SEND_START", "GRPC_SEND_END"],
}
CORE = ["REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]


@pytest.fixture(scope="module")
def traced_models(tmp_path_factory):
    """A folder with models that the traced servers serve."""
    folder = tmp_path_factory.mktemp("traced")
    models.add_sub(folder)
    for datatype in ("FP16", "FP32", "INT8", "BYTES", "BOOL"):
        models.identity(folder, datatype)
    for strategy in models.STRATEGIES:
        models.accumulate(folder, strategy)
    (folder / "tracing" / "1").mkdir(parents=True)
    config = 'name: "tracing"\nbackend: "tracing"\n' + models.tensor("input", "X", "FP32", 1)
    (folder / "tracing" / "config.pbtxt").write_text(config + models.tensor("output", "CONTEXT", "BYTES", 1))
    return folder


@pytest.fixture(scope="module")
def backend(tmp_path_factory):
    return f"--backend-directory={build_backend(tmp_path_factory.mktemp('backends'), 'tracing')}"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "traces.json"


@pytest.fixture
def serve(start, traced_models, backend):
    return lambda *options, **named: start(traced_models, backend, *options, **named).wait_until_ready()


def to_file(file, *settings, levels=("TIMESTAMPS", "TENSORS")):
    """The options of a server that writes all traces."""
    all_settings = [f"triton,file={file}", "rate=1", *(f"level={level}" for level in levels), *settings]
    return [f"--trace-config={setting}" for setting in all_settings]


def stop(server):
    server.terminate()
    assert server.process.wait(60) == 0, server.log_end()


def read(file):
    """The elements of each trace of a file, by the number of the trace, in the order of the file."""
    traces = defaultdict(list)
    for element in json.loads(file.read_text()):
        traces[element.pop("id")].append(element)
    return dict(traces)


def times(elements):
    """The times of a trace, in the order in which they happened."""
    found = [(time["ns"], time["name"]) for element in elements for time in element.get("timestamps", [])]
    return [name for _, name in sorted(found, key=lambda pair: pair[0])]


def tensors(elements):
    return [(element["activity"], element["tensor"]) for element in elements if "tensor" in element]


def ask(server, protocol, model="add_sub", **options):
    with protocol.connect(server) as client:
        return client.infer(model, add_sub_inputs(protocol)[0], **options)


# ---- Settings ----


def test_clients_read_and_change_settings(serve, protocol, file):
    server = serve(*to_file(file, levels=["OFF"]))
    with protocol.connect(server) as client:

        def get(model=None):
            settings = client.get_trace_settings(model) if protocol is HTTP else client.get_trace_settings(model, as_json=True)
            if protocol is HTTP:
                return settings
            values = {name: value["value"] for name, value in settings["settings"].items()}
            return {name: value if name == "trace_level" else value[0] for name, value in values.items() if value}

        default = {"trace_level": ["OFF"], "trace_rate": "1", "trace_count": "-1", "log_frequency": "0"}
        default |= {"trace_file": str(file), "trace_mode": "triton"}
        assert get() == default and get("add_sub") == default
        client.update_trace_settings("add_sub", {"trace_rate": "5", "trace_level": ["TIMESTAMPS", "TENSORS"]})
        of_model = default | {"trace_level": ["TIMESTAMPS", "TENSORS"], "trace_rate": "5"}
        assert get("add_sub") == of_model and get() == default and get("identity_fp32") == default
        client.update_trace_settings(settings={"log_frequency": "9"})
        assert get("add_sub") == of_model | {"log_frequency": "9"}
        client.update_trace_settings("add_sub", {"trace_rate": None, "trace_level": None})
        assert get("add_sub") == default | {"log_frequency": "9"}
        for settings, text in [
            ({"trace_rate": "x"}, "Unable to parse 'trace_rate', got: x"),
            ({"trace_file": "x"}, "trace file location can not be updated through network protocol"),
            ({"trace_level": ["OFF", "TENSORS"]}, "Expect only one trace level 'OFF' is specified"),
            (
                {"trace_level": ["TENSORS"], "trace_rate": "0"},
                "Attempting to set invalid trace setting :sample rate must be non-zero",
            ),
        ]:
            with pytest.raises(InferenceServerException) as refusal:
                client.update_trace_settings("add_sub", settings)
            assert refusal.value.message() == text
        with pytest.raises(InferenceServerException) as refusal:
            client.get_trace_settings("none")
        assert refusal.value.message() == "Request for unknown model : none"
        assert refusal.value.status() == protocol.status("INVALID_ARGUMENT")
        assert get("add_sub") == default | {"log_frequency": "9"}


async def test_asynchronous_clients_change_settings(serve, file):
    server = serve(*to_file(file, levels=["OFF"]))
    async with tritonclient.http.aio.InferenceServerClient(server.http) as client:
        assert (await client.update_trace_settings(settings={"trace_rate": "7"}))["trace_rate"] == "7"
    async with tritonclient.grpc.aio.InferenceServerClient(server.grpc) as client:
        settings = await client.get_trace_settings(as_json=True)
        assert settings["settings"]["trace_rate"]["value"] == ["7"]
        await client.update_trace_settings("add_sub", {"trace_count": "3"})
        settings = await client.get_trace_settings("add_sub", as_json=True)
        assert settings["settings"]["trace_count"]["value"] == ["3"]


def test_the_metadata_names_the_extension(serve):
    assert "trace" in requests.get(f"http://{serve().http}/v2", timeout=60).json()["extensions"]


def test_without_a_file_tracing_cannot_be_turned_on(serve, protocol):
    with protocol.connect(serve()) as client, pytest.raises(InferenceServerException) as refusal:
        client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]})
    assert refusal.value.message() == "Attempting to set invalid trace setting :trace file name is not given"


def test_a_restricted_category_needs_its_header(serve):
    server = serve("--http-restricted-api=trace:key=secret", "--grpc-restricted-protocol=trace:key=secret")
    address = f"http://{server.http}/v2/trace/setting"
    assert requests.get(address, timeout=60).status_code == 403
    assert requests.get(address, headers={"key": "secret"}, timeout=60).status_code == 200
    with GRPC.connect(server) as client:
        with pytest.raises(InferenceServerException):
            client.get_trace_settings()
        client.get_trace_settings(headers={"triton-grpc-protocol-key": "secret"})


# ---- Files ----


def test_a_trace_has_all_times_and_tensors_in_order(serve, protocol, file):
    server = serve(*to_file(file))
    ask(server, protocol, request_id="r1")
    assert not file.exists(), "the file is written at the end"
    stop(server)
    ((_, elements),) = read(file).items()
    names = times(elements)
    front = FRONT[protocol.name]
    assert sorted(names) == sorted([*front, *CORE, "REQUEST_END", "INFER_RESPONSE_COMPLETE"])
    order = [name for name in names if name not in ("INFER_RESPONSE_COMPLETE", "REQUEST_END", "COMPUTE_END")]
    assert order == [*front[:2], *CORE[:-1], *front[2:]]
    (about,) = [element for element in elements if "model_name" in element]
    assert about == {"model_name": "add_sub", "model_version": 1, "request_id": "r1"}
    found = [(activity, tensor["name"], tensor["shape"], tensor["dtype"]) for activity, tensor in tensors(elements)]
    assert found == [
        (activity, name, "1,16", "INT32")
        for activity, kind in (("TENSOR_QUEUE_INPUT", "INPUT"), ("TENSOR_BACKEND_OUTPUT", "OUTPUT"))
        for name in (f"{kind}0", f"{kind}1")
    ]
    assert tensors(elements)[0][1]["data"] == ",".join(map(str, range(16)))


@pytest.mark.parametrize(
    "datatype, values, text",
    [
        ("FP16", np.array([1.5, -0.25], np.float16), "1.5,-0.25"),
        ("FP32", np.array([0.1, 3, np.nan], np.float32), "0.1,3,nan"),
        ("INT8", np.array([65, -1], np.int8), "65,-1"),
        ("BOOL", np.array([True, False]), "1,0"),
        ("BYTES", np.array(['a"b', "c\\\n"], np.object_), '"a"b","c\\\n"'),
    ],
)
def test_tensors_of_every_kind_are_readable(serve, file, datatype, values, text):
    server = serve(*to_file(file, levels=["TENSORS"]))
    with HTTP.connect(server) as client:
        client.infer(f"identity_{datatype.lower()}", [HTTP.input("INPUT", values, datatype)])
    stop(server)
    ((_, elements),) = read(file).items()
    assert [tensor["data"] for _, tensor in tensors(elements)] == [text, text]
    assert times(elements) == []


def test_rate_count_and_log_frequency_decide_what_is_written(serve, file):
    server = serve(*to_file(file, "rate=2", "count=3", "triton,log-frequency=2", levels=["TIMESTAMPS"]))
    with HTTP.connect(server) as client:
        for number in range(20):
            client.infer("add_sub", add_sub_inputs(HTTP)[0], request_id=str(number))
        assert client.get_trace_settings()["trace_count"] == "0"
    first, second = file.with_name("traces.json.0"), file.with_name("traces.json.1")
    eventually(second.exists, "the last file")
    stop(server)

    def ids(path):
        return [element["request_id"] for trace in read(path).values() for element in trace if "model_name" in element]

    assert (ids(first), ids(second), file.exists()) == (["1", "3"], ["5"], False)


def test_a_count_that_is_used_up_writes_a_file_with_a_number(serve, file):
    server = serve(*to_file(file, "count=2"))
    for _ in range(3):
        ask(server, HTTP)
    numbered = file.with_name("traces.json.0")
    eventually(lambda: numbered.exists() and numbered.read_text().endswith("]"), "the file")
    assert len(read(numbered)) == 2
    with HTTP.connect(server) as client:
        refusal = "Attempting to set invalid trace setting :trace count must be non-zero"
        with pytest.raises(InferenceServerException, match=refusal):
            client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})
        client.update_trace_settings(settings={"trace_count": "1"})
    stop(server)
    assert not file.exists()


def test_a_refused_request_leaves_no_trace_and_does_not_count(serve, file):
    server = serve(*to_file(file, "count=1"))
    with HTTP.connect(server) as client:
        with pytest.raises(InferenceServerException):
            client.infer("add_sub", add_sub_inputs(HTTP)[0][:1])
        assert client.get_trace_settings()["trace_count"] == "1"
        client.infer("add_sub", add_sub_inputs(HTTP)[0], request_id="good")
        assert client.get_trace_settings()["trace_count"] == "0"
    stop(server)
    ((_, elements),) = read(file.with_name("traces.json.0")).items()
    assert any(element.get("request_id") == "good" for element in elements)


def test_tracing_is_turned_on_for_one_model(serve, file):
    server = serve(*to_file(file, levels=["OFF"]))
    with HTTP.connect(server) as client:
        ask(server, HTTP)
        client.update_trace_settings("add_sub", {"trace_level": ["TIMESTAMPS"]})
        client.infer("identity_fp32", [HTTP.input("INPUT", np.zeros(1, np.float32))])
        ask(server, GRPC, request_id="traced")
        client.update_trace_settings("add_sub", {"trace_level": None})
        ask(server, HTTP)
    eventually(file.exists, "the traces of the settings that were replaced")
    stop(server)
    ((_, elements),) = read(file).items()
    assert any(element.get("request_id") == "traced" for element in elements)


def test_times_of_a_plug_in_are_those_that_it_reports(serve, file):
    server = serve(*to_file(file, levels=["TIMESTAMPS"]))
    with HTTP.connect(server) as client:
        client.infer("tracing", [HTTP.input("X", np.zeros(1, np.float32))])
    stop(server)
    ((_, elements),) = read(file).items()
    found = {time["name"]: time["ns"] for element in elements for time in element.get("timestamps", [])}
    plug_in = ["COMPUTE_START", "PREPARE_START", "checked", "PREPARE_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
    assert [found[name] for name in plug_in] == sorted(found[name] for name in plug_in)
    assert found["COMPUTE_END"] - found["COMPUTE_OUTPUT_START"] == 1, "as the plug-in says"
    assert found["REQUEST_END"] >= found["COMPUTE_END"]


def test_a_file_in_a_missing_folder_loses_traces_and_nothing_else(serve, tmp_path):
    server = serve(*to_file(tmp_path / "missing" / "t.json", "triton,log-frequency=1"))
    for _ in range(3):
        ask(server, HTTP)
    eventually(lambda: metric(server, "nereid_trace_export_failures") == 3, "three lost traces")
    assert server.log().count("lost traces for the file") == 1, "one line"


def test_a_full_disk_loses_traces_and_nothing_else(serve):
    server = serve(*to_file("/dev/full", "max-buffered-bytes=1048576"))
    with HTTP.connect(server) as client:
        for _ in range(1000):
            client.infer("add_sub", add_sub_inputs(HTTP)[0])
    eventually(lambda: metric(server, "nereid_trace_export_failures") > 0, "lost traces")
    stop(server)
    assert "No space left on device" in server.log()


def test_a_disk_that_hangs_delays_no_request_and_bounds_memory_and_exit(serve, tmp_path):
    """Opening a pipe without a reader blocks for ever."""
    pipe = tmp_path / "pipe.0"
    os.mkfifo(pipe)
    server = serve(*to_file(tmp_path / "pipe", "triton,log-frequency=1", "max-buffered-bytes=1048576"))
    with GRPC.connect(server) as client:
        inputs = add_sub_inputs(GRPC, batch=8)[0]
        client.infer("add_sub", inputs)
        before = server.resident_bytes()
        for _ in range(1000):
            client.infer("add_sub", inputs)
    assert server.resident_bytes() - before < 64 << 20
    assert metric(server, "nereid_trace_dropped") > 0
    assert server.log().count("traces are dropped") == 1
    stop(server)
    assert "not all traces could be written" in server.log()


# ---- OpenTelemetry ----


@pytest.fixture
def collector():
    with Collector() as collector:
        yield collector


def by_name(spans, name):
    return [span for span in spans if span.name == name]


def test_spans_belong_to_the_trace_of_the_client(serve, protocol, collector):
    server = serve(*collector.options("opentelemetry,resource=foo=bar"))
    before = time.time_ns()
    ask(server, protocol, request_id="r1", headers={"traceparent": PARENT, "tracestate": "a=b"})
    spans = collector.wait_for_roots(1)
    after = time.time_ns()
    check_nesting(spans)
    root, model, compute = (by_name(spans, name)[0] for name in ("InferRequest", "add_sub", "compute"))
    assert len(spans) == 3 and {span.trace for span in spans} == {PARENT.split("-")[1]}
    assert (root.parent, model.parent, compute.parent) == (PARENT.split("-")[2], root.id, model.id)
    assert all(span.state == "a=b" for span in spans)
    slack = 10**9
    assert before - slack <= root.start and root.end <= after + slack, "times of the clock on the wall"
    assert model.attributes.pop("triton.trace_id").isdigit()
    assert model.attributes == {
        "triton.model_name": "add_sub",
        "triton.model_version": "1",
        "triton.trace_parent_id": "0",
        "triton.request_id": "r1",
    }
    assert [name for name, _ in root.events] == [*FRONT[protocol.name][:2], "INFER_RESPONSE_COMPLETE", *FRONT[protocol.name][2:]]
    assert [name for name, _ in model.events] == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert [name for name, _ in compute.events] == CORE[2:]
    path, headers, body = collector.requests[0]
    assert (path, headers["content-type"]) == ("/v1/traces", "application/json")
    attributes = json.loads(body)["resourceSpans"][0]["resource"]["attributes"]
    resource = {pair["key"]: pair["value"]["stringValue"] for pair in attributes}
    assert (resource["service.name"], resource["foo"]) == ("triton-inference-server", "bar")


def test_requests_of_traced_clients_are_traced_whatever_the_rate_is(serve, collector):
    server = serve(*collector.options("rate=0", "count=0"))
    ask(server, HTTP, request_id="untraced")
    ask(server, HTTP, request_id="traced", headers={"traceparent": PARENT})
    ask(server, HTTP, request_id="invalid", headers={"traceparent": PARENT.replace("-01", "")})
    stop(server)
    assert [span.attributes["triton.request_id"] for span in by_name(collector.spans(), "add_sub")] == ["traced"]


def test_a_plug_in_sees_its_context_and_its_activities_are_spans(serve, collector, protocol):
    server = serve(*collector.options())
    with protocol.connect(server) as client:
        answer = client.infer("tracing", [protocol.input("X", np.zeros(1, np.float32))], headers={"traceparent": PARENT})
    context = json.loads(answer.as_numpy("CONTEXT")[0])
    spans = collector.wait_for_roots(1)
    check_nesting(spans)
    model, prepare = by_name(spans, "tracing")[0], by_name(spans, "PREPARE")[0]
    assert context == {"traceparent": f"00-{PARENT.split('-')[1]}-{model.id}-01"}
    assert prepare.parent == model.id
    assert [name for name, _ in prepare.events] == ["PREPARE_START", "checked", "PREPARE_END"]


def test_a_plug_in_sees_no_trace_of_an_untraced_request(serve, collector):
    server = serve(*collector.options("rate=1000"))
    with HTTP.connect(server) as client:
        answer = client.infer("tracing", [HTTP.input("X", np.zeros(1, np.float32))])
    assert answer.as_numpy("CONTEXT")[0] == b"none"


@pytest.fixture(scope="module")
def ensemble_options(tmp_path_factory, every_gate):
    """The repository and the option of a server with ensembles."""
    repository = ensembles.write_all(tmp_path_factory.mktemp("ensembles"), every_gate)
    return repository, f"--backend-directory={ensembles.build_backends(tmp_path_factory.mktemp('plugins'))}"


def test_steps_of_an_ensemble_are_spans_below_it(start, ensemble_options, collector, protocol):
    server = start(*ensemble_options, *collector.options()).wait_until_ready()
    with protocol.connect(server) as client:
        inputs = [protocol.input("INPUT", np.ones((1, 4), np.float32))]
        client.infer("nested", inputs, headers={"traceparent": PARENT})
    spans = collector.wait_for_roots(1)
    check_nesting(spans)
    by_id = {span.id: span for span in spans}
    pairs = [(span.name, by_id[span.parent].name) for span in spans if span.parent in by_id]
    members = ["scale", "scale", "shift"]
    assert sorted(pairs) == sorted(
        [("nested", "InferRequest"), ("chain", "nested"), ("diamond", "nested")]
        + [(member, "chain") for member in members]
        + [(member, "diamond") for member in ("combine", "scale", "shift")]
        + [("compute", member) for member in (*members, "combine", "scale", "shift")]
    )
    for span in spans:
        parent = by_id.get(span.parent)
        if span.attributes and parent.attributes:
            assert span.attributes["triton.trace_parent_id"] == parent.attributes["triton.trace_id"]


def test_steps_of_an_ensemble_stand_before_it_in_the_file(start, ensemble_options, file):
    server = start(*ensemble_options, *to_file(file)).wait_until_ready()
    with HTTP.connect(server) as client:
        client.infer("chain", [HTTP.input("INPUT", np.ones((1, 4), np.float32))], request_id="e")
    stop(server)
    traces = read(file)
    abouts = [element for elements in traces.values() for element in elements if "model_name" in element]
    assert sorted(about["model_name"] for about in abouts) == ["chain", "scale", "scale", "shift"]
    assert {about["request_id"] for about in abouts} == {"e"}
    *steps, whole = traces.values()
    assert abouts[-1]["model_name"] == "chain" and "parent_id" not in abouts[-1]
    assert {about["parent_id"] for about in abouts[:-1]} == {list(traces)[-1]}
    assert not any(name.startswith("COMPUTE") for name in times(whole))
    for elements in steps:
        assert sorted(times(elements)) == sorted([*CORE, "REQUEST_END"])


@pytest.mark.parametrize("model", [f"accumulate_{strategy}" for strategy in models.STRATEGIES])
def test_each_request_of_a_sequence_has_its_trace(serve, protocol, file, model):
    server = serve(*to_file(file))
    with protocol.connect(server) as client:
        for step in range(3):
            x = [protocol.input("X", np.array([[step]], np.int32))]
            options = {"sequence_id": 5, "sequence_start": step == 0, "sequence_end": step == 2}
            client.infer(model, x, request_id=str(step), **options)
    stop(server)
    traces = read(file)
    assert len(traces) == 3
    for step, elements in enumerate(traces.values()):
        assert {"REQUEST_START", "QUEUE_START", "COMPUTE_START", "REQUEST_END"} < set(times(elements))
        sums = [tensor["data"] for activity, tensor in tensors(elements) if tensor["name"] == "SUM"]
        assert sums == [str(sum(range(step + 1)))]


def test_requests_of_python_models_are_spans_below_theirs(tmp_path_factory, collector, python_backend):
    folder = tmp_path_factory.mktemp("python")
    repository = folder / "models"
    repository.mkdir()
    models.identity(repository, "FP32")
    plugins.python_model(repository, "relay", text=RELAY)
    plugins.python_model(repository, "streamer")
    options = [*python_backend.options, *collector.options()]
    with Server(folder, repository, *options, variables=python_backend.variables) as server:
        server.wait_until_ready()
        with GRPC.connect(server) as client:
            client.infer("relay", [GRPC.input("X", np.ones(3, np.float32))], headers={"traceparent": PARENT})
            spans = collector.wait_for_roots(1)
            check_nesting(spans)
            (relay,), (asked,) = by_name(spans, "relay"), by_name(spans, "identity_fp32")
            assert asked.parent == relay.id and len(spans) == 5
            assert asked.attributes["triton.trace_parent_id"] == relay.attributes["triton.trace_id"]
            answers = stream(client, "streamer", [GRPC.input("N", np.array([3], np.int32))])
        spans = [span for span in collector.wait_for_roots(2) if span.trace != relay.trace]
        check_nesting(spans)
        root = by_name(spans, "InferRequest")[0]
        names = [name for name, _ in root.events]
        assert names.count("GRPC_SEND_START") == names.count("GRPC_SEND_END") == answers


RELAY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
        return config

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        asked = pb_utils.InferenceRequest(
            model_name="identity_fp32",
            inputs=[pb_utils.Tensor("INPUT", x)],
            requested_output_names=["OUTPUT"],
            trace=request.trace(),
        )
        answer = asked.exec()
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", answer.output_tensors()[0].as_numpy())])
"""


def stream(client, model, inputs):
    """Streams one request. Returns the number of responses."""
    answers, final = [], threading.Event()

    def take(result, error):
        answers.append(error or result)
        response = result and result.get_response()
        if error or response.parameters["triton_final_response"].bool_param:
            final.set()

    client.start_stream(take)
    client.async_stream_infer(model, inputs, enable_empty_final_response=True)
    assert final.wait(60)
    client.stop_stream()
    return len(answers)


def test_spans_in_protobuf_have_their_own_content_type(serve, collector):
    server = serve(*collector.options("opentelemetry,protocol=http/protobuf"))
    ask(server, HTTP, request_id="in protobuf")
    eventually(lambda: collector.requests, "a request")
    _, headers, body = collector.requests[0]
    assert headers["content-type"] == "application/x-protobuf"
    for text in (b"InferRequest", b"add_sub", b"in protobuf", b"triton-server"):
        assert text in body


@pytest.fixture
def certificate(tmp_path):
    """The files of the certificate of a collector, and of its key."""
    certificate = (tmp_path / "collector.pem", tmp_path / "collector.key")
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=collector"]
    new += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    processes.run([*new, "-out", certificate[0], "-keyout", certificate[1]], check=True)
    return certificate


def test_a_collector_over_https_must_have_a_trusted_certificate(serve, certificate):
    with Collector(certificate=certificate) as collector:
        trusting = serve(*collector.options(), variables={"SSL_CERT_FILE": str(certificate[0])})
        ask(trusting, HTTP)
        assert len(collector.wait_for_roots(1)) == 3
        other = serve(*collector.options())
        ask(other, HTTP)
        eventually(lambda: metric(other, "nereid_trace_export_failures") == 1, "a refused certificate")
        assert len(collector.spans()) == 3


def test_the_environment_sets_what_the_command_line_does_not(serve, collector):
    variables = {"OTEL_BSP_MAX_QUEUE_SIZE": "77", "OTEL_BSP_SCHEDULE_DELAY": "99", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "5"}
    server = serve(*collector.options(), variables=variables)
    shown = requests.get(f"http://{server.http}/v2/trace/setting", timeout=60).json()
    assert shown["bsp_max_queue_size"] == "77" and shown["bsp_max_export_batch_size"] == "5"
    assert shown["bsp_schedule_delay"] == "50", "the command line counts"
    assert (shown["trace_mode"], shown["url"]) == ("opentelemetry", collector.url)


def test_the_environment_names_the_collector_and_the_service(serve, certificate):
    with Collector(certificate=certificate) as collector:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url.removesuffix("/v1/traces"),
            "OTEL_EXPORTER_OTLP_CERTIFICATE": str(certificate[0]),
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,zone=one%2Ctwo",
            "OTEL_SERVICE_NAME": "mine",
            "OTEL_TRACES_SAMPLER": "always_on",
            "OTEL_METRICS_EXPORTER": "none",
        }
        settings = ["mode=opentelemetry", "level=TIMESTAMPS", "opentelemetry,bsp_schedule_delay=50"]
        server = serve(*(f"--trace-config={setting}" for setting in settings), variables=variables)
        ask(server, HTTP)
        assert len(collector.wait_for_roots(1)) == 3
        assert collector.requests[0][0] == "/v1/traces"
        resource = collector.resources()[0]
        assert (resource["service.name"], resource["zone"]) == ("mine", "one,two")
        assert server.log().count("does not read the environment variable OTEL_METRICS_EXPORTER") == 1


def test_a_collector_that_is_away_costs_nothing_and_is_used_when_it_is_back(serve):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = ["mode=opentelemetry", "rate=1", "level=TIMESTAMPS", "opentelemetry,bsp_schedule_delay=20"]
    server = serve(*(f"--trace-config={one}" for one in (*settings, f"opentelemetry,url=127.0.0.1:{port}/v1/traces")))
    for _ in range(5):
        ask(server, HTTP)
    eventually(lambda: metric(server, "nereid_trace_export_failures") == 5, "lost traces")
    # They are counted before the line is written.
    server.wait_for_log("cannot be reached")
    assert server.log().count("cannot be reached") == 1
    with socket.create_server(("127.0.0.1", port)) as listener:

        def answer_once():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 20)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        answering = threading.Thread(target=answer_once)
        answering.start()
        ask(server, HTTP)
        answering.join(60)
        eventually(lambda: metric(server, "nereid_trace_exported") == 1, "a trace that was sent")
    eventually(lambda: "takes traces again" in server.log(), "the line that it is back")


def test_a_collector_that_hangs_delays_no_request_and_bounds_memory_and_exit(serve):
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"
        settings = ["mode=opentelemetry", "rate=1", "level=TIMESTAMPS", f"opentelemetry,url={url}"]
        settings += ["opentelemetry,bsp_max_queue_size=100", "opentelemetry,bsp_schedule_delay=10"]
        server = serve(*(f"--trace-config={one}" for one in settings))
        with GRPC.connect(server) as client:
            inputs = add_sub_inputs(GRPC)[0]
            client.infer("add_sub", inputs)
            before = server.resident_bytes()
            for _ in range(1000):
                client.infer("add_sub", inputs)
        assert server.resident_bytes() - before < 64 << 20
        assert metric(server, "nereid_trace_dropped") >= 800
        stop(server)
