"""Cases of the area `calls`: scripts of all calls but inference, over HTTP and gRPC.

A script has up to five steps, which see what the steps before have changed: settings, regions of shared memory, the model
`light`. What a script has changed is made good after it.
"""

import base64
import copy
import json
import pathlib
import re
from dataclasses import dataclass

import grpc
import serving
from differential import documents, models
from differential.answers import DIED, Answer, flat
from differential.exchange import PATIENCE, HttpConnection, HttpRequest
from differential.grpc_calls import ended, keys
from differential.servers import MODELS, NAMES, Pair
from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb

MOST_STEPS = 5
NAMES_OF_MODELS = ("two", "two", "batched", "kinds", "light", "steps", "none", "", "Two", "two ", "stats")
VERSIONS = ("", "", "", "1", "2", "0", "-1", "x", "01", "99999999999999999999")
LIGHT = models.echo("light", 0, ("A", "INT32", (-1,)))
LOADED = (LIGHT, *(model for model in models.MODELS if model.name in ("one", "two", "batched", "kinds", "steps")))
REGION = "differential_region"
REGION_BYTES = 8192
SERVICE = "inference.GRPCInferenceService/"


@dataclass(frozen=True)
class GrpcCall:
    method: str
    message: object

    def __str__(self):
        return f"{self.method} {json_format.MessageToDict(self.message, preserving_proto_field_name=True)}"


@dataclass(frozen=True)
class Script:
    steps: tuple
    mutations: tuple = ()

    def __str__(self):
        return "\n".join(map(str, self.steps))


def draw(choices):
    """A case."""
    return Script(tuple(choices.one_of(STEPS)(choices) for _ in choices.several(1, MOST_STEPS)))


def get(choices):
    """What only looks."""
    name, version = choices.one_of(NAMES_OF_MODELS), choices.one_of(VERSIONS)
    model = f"/v2/models/{name}" + (f"/versions/{version}" if version else "")
    paths = ("/v2", "/v2/health/live", "/v2/health/ready", model, f"{model}/ready", f"{model}/config", f"{model}/stats")
    paths += ("/v2/models/stats", "/v2/trace/setting", f"{model}/trace/setting", "/v2/logging")
    for kind in ("system", "cuda"):
        paths += (f"/v2/{kind}sharedmemory/status", f"/v2/{kind}sharedmemory/region/{choices.one_of(REGIONS)}/status")
    method = "GET" if not choices.one_in(8) else choices.one_of(("POST", "PUT", "DELETE"))
    return HttpRequest(method, choices.one_of(paths).replace(" ", "%20"))


def posted(path, document, choices):
    """A document, sometimes with a mutation of its tree or of its text."""
    document = json.loads(json.dumps(document))
    if choices.one_in(3):
        choices.one_of(documents.TREE)(document, choices)
    text = json.dumps(document)
    if choices.one_in(8):
        text = documents.damage(text, choices)
    elif choices.one_in(12):
        text = ""
    method = "POST" if not choices.one_in(12) else choices.one_of(("GET", "PUT"))
    return HttpRequest(method, path.replace(" ", "%20"), (), text.encode(errors="surrogatepass"))


def index(choices):
    path = choices.one_of(("/v2/repository/index", "/v2/repository/x/index"))
    return posted(path, choices.one_of(({}, {"ready": True}, {"ready": False})), choices)


REGIONS = ("a", "b", "c d", "none", "")
KEYS = (f"/{REGION}", REGION, f"//{REGION}", "/none", "/", "", "../x", "triton_python_backend_shm_region_x")
SIZES = (64, 0, 4096, REGION_BYTES, REGION_BYTES + 1, 2**64 - 1, 1)


def region(choices):
    """A region of shared memory is registered or unregistered."""
    path = f"/v2/{choices.one_of(('system', 'system', 'system', 'cuda'))}sharedmemory"
    name = choices.one_of(REGIONS)
    path += f"/region/{name}" if name else ""
    if choices.one_in(3):
        return HttpRequest("POST", f"{path}/unregister".replace(" ", "%20"))
    document = {"key": choices.one_of(KEYS), "byte_size": choices.one_of(SIZES)}
    if choices.one_in(2):
        document["offset"] = choices.one_of((0, 4096, 1, REGION_BYTES, 2**64 - 1))
    if "cuda" in path:
        document = {"raw_handle": {"b64": choices.one_of(("", "AAAA", "A" * 88))}, "device_id": 0, "byte_size": 64}
    return posted(f"{path}/register", document, choices)


def in_region(choices):
    """A request of inference with tensors in a region."""
    place = {"shared_memory_region": choices.one_of(REGIONS), "shared_memory_byte_size": choices.one_of((8, 4, 16, 0, 2**32))}
    if choices.one_in(2):
        place["shared_memory_offset"] = choices.one_of((0, 8, 56, 64, 2**64 - 8))
    tensor = {"name": "IA", "datatype": "INT32", "shape": [2], "parameters": place}
    other = {"name": "IB", "datatype": "FP32", "shape": [2], "data": [1, 2]}
    document = {"inputs": [tensor, other], "outputs": [{"name": "OB"}]}
    if choices.one_in(2):
        document["outputs"].append({"name": "OA", "parameters": dict(place)})
    return posted("/v2/models/two/infer", document, choices)


TRACE = {
    "trace_level": (["TIMESTAMPS"], ["OFF"], ["TENSORS", "TIMESTAMPS"], [], ["x"], "OFF", None),
    "trace_rate": ("1", "1000", "0", "-1", "x", 5, "4294967296", None),
    "trace_count": ("-1", "0", "10", "-2", "x", 5, None),
    "log_frequency": ("0", "5", "-1", "x", None),
    "trace_file": ("", None),
    "trace_mode": ("triton",),
    "x": ("1",),
}
LOGGING = {
    "log_verbose_level": (0, 1, 5, -1, 2**31, 2**32, "1", 1.5),
    "log_info": (True, False, 1, "true"),
    "log_warning": (True, False, None),
    "log_error": (True, False, []),
    "log_format": ("default", "ISO8601", "x", 1),
    "log_file": ("", "/tmp/x", 1),
    "x": (1,),
}


def settings_of(table, choices):
    found = {}
    for name, options in table.items():
        if choices.one_in(4):
            found[name] = copy.deepcopy(choices.one_of(options))
    return found


def trace(choices):
    path = choices.one_of(("/v2/trace/setting", f"/v2/models/{choices.one_of(NAMES_OF_MODELS)}/trace/setting"))
    return posted(path, settings_of(TRACE, choices), choices)


def logging(choices):
    return posted("/v2/logging", settings_of(LOGGING, choices), choices)


def repository(choices):
    """The model `light`, or one that is not there, is loaded or unloaded."""
    name = choices.one_of(("light", "light", "light", "none", "none/x"))
    path = choices.one_of(("/v2/repository/models", "/v2/repository/models", "/v2/repository/x/models"))
    if choices.one_in(2):
        document = choices.one_of(({}, {"parameters": {"unload_dependents": choices.one_of((True, False, 1, "x"))}}))
        return posted(f"{path}/{name}/unload", document, choices)
    found = {}
    if choices.one_in(3):
        found["config"] = choices.one_of(("{}", '{"max_batch_size": 2}', "x", "", '{"backend": "none"}'))
    if choices.one_in(4):
        found["file:1/model.py"] = choices.one_of(("", "eA==", "eA", "?", "eA==\n", " eA=="))
    if choices.one_in(6):
        found["x"] = choices.one_of(("1", 1))
    return posted(f"{path}/{name}/load", {"parameters": found} if found else {}, choices)


def infer(choices):
    """A request of inference, which is in the statistics afterwards."""
    document = {"inputs": [{"name": "IA", "datatype": "INT32", "shape": [choices.between(1, 3)], "data": [1, 2]}]}
    return HttpRequest("POST", f"/v2/models/{choices.one_of(('light', 'one'))}/infer", (), json.dumps(document).encode())


def called(choices):
    """A call of gRPC."""
    name, version = choices.one_of(NAMES_OF_MODELS), choices.one_of(VERSIONS)
    options = (
        ("ServerLive", pb.ServerLiveRequest()),
        ("ServerReady", pb.ServerReadyRequest()),
        ("ModelReady", pb.ModelReadyRequest(name=name, version=version)),
        ("ServerMetadata", pb.ServerMetadataRequest()),
        ("ModelMetadata", pb.ModelMetadataRequest(name=name, version=version)),
        ("ModelConfig", pb.ModelConfigRequest(name=name, version=version)),
        ("ModelStatistics", pb.ModelStatisticsRequest(name=name, version=version)),
        ("RepositoryIndex", pb.RepositoryIndexRequest(repository_name=choices.one_of(("", "x")), ready=choices.one_in(2))),
        ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(name=choices.one_of(REGIONS))),
        (
            "SystemSharedMemoryRegister",
            pb.SystemSharedMemoryRegisterRequest(
                name=choices.one_of(REGIONS),
                key=choices.one_of(KEYS),
                offset=choices.one_of((0, 4096, 1, 2**64 - 1)),
                byte_size=choices.one_of(SIZES),
            ),
        ),
        ("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name=choices.one_of(REGIONS))),
        ("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest(name=choices.one_of(REGIONS))),
        ("CudaSharedMemoryUnregister", pb.CudaSharedMemoryUnregisterRequest(name=choices.one_of(REGIONS))),
        ("TraceSetting", trace_message(choices)),
        ("LogSettings", log_message(choices)),
    )
    return GrpcCall(*choices.one_of(options))


def trace_message(choices):
    message = pb.TraceSettingRequest(model_name=choices.one_of(("", *NAMES_OF_MODELS)))
    for name, value in settings_of(TRACE, choices).items():
        values = value if isinstance(value, list) else [] if value is None else [str(value)]
        message.settings[name].value.extend(values)
    return message


def log_message(choices):
    message = pb.LogSettingsRequest()
    for name, value in settings_of(LOGGING, choices).items():
        if isinstance(value, bool):
            message.settings[name].bool_param = value
        elif isinstance(value, int) and 0 <= value < 2**32:
            message.settings[name].uint32_param = value
        else:
            message.settings[name].string_param = str(value)
    return message


STEPS = (get, get, get, index, region, region, in_region, trace, trace, logging, infer, called, called, called, repository)


LOGS = {"log_verbose_level": 0, "log_info": True, "log_warning": True, "log_error": True, "log_format": "default"}
# What makes good what a script may have changed.
MAKING_GOOD = (
    HttpRequest("POST", "/v2/systemsharedmemory/unregister"),
    HttpRequest("POST", "/v2/logging", (), json.dumps(LOGS).encode()),
)
NO_TRACES = {name: None for name in ("trace_level", "trace_rate", "trace_count", "log_frequency")}
# A model that was loaded anew has no statistics.
RELOAD = tuple(
    HttpRequest("POST", f"/v2/repository/models/{what}", (), b"{}") for what in ("none/unload", "light/unload", "light/load")
)
# Triton is not ready while it remembers that `none` could not be loaded. With files of the request, only a good load ends that.
GOOD_FILES = {
    "config": json.dumps({"backend": "python"}),
    "file:1/model.py": base64.b64encode((MODELS / "idle.py").read_bytes()).decode(),
}
FORGET = (HttpRequest("POST", "/v2/repository/models/none/load", (), json.dumps({"parameters": GOOD_FILES}).encode()), RELOAD[0])
INDEX = HttpRequest("POST", "/v2/repository/index")
READY = tuple(HttpRequest("GET", path) for path in ("/v2/models/light/ready", "/v2/health/ready"))
RELOAD_PATIENCE, MOST_RELOADS = 60.0, 10


class CallsArea:
    """Both servers with models, and connections to each."""

    name = "calls"
    most_tries = 150
    # Triton counts a request after it has answered.
    must_come_again = 2
    draw = staticmethod(draw)

    def __enter__(self):
        self._region = pathlib.Path("/dev/shm") / REGION
        self._region.write_bytes(bytes(REGION_BYTES))
        self._pair = Pair(LOADED).__enter__()
        self._connect()
        return self

    def __exit__(self, *failure):
        self._disconnect()
        self._pair.__exit__(*failure)
        self._region.unlink(missing_ok=True)

    def _connect(self):
        servers = (self._pair.triton, self._pair.nereid)
        self._connections = [(HttpConnection(server.http), grpc.insecure_channel(server.grpc)) for server in servers]

    def _disconnect(self):
        for http, channel in self._connections:
            http.close()
            channel.close()

    def ask(self, case):
        """The answers of both, step by step."""
        answers = [[settled(step, *connection) for step in case.steps] for connection in self._connections]
        dead = self._pair.revive(answers)
        if dead:
            self._disconnect()
            self._connect()
        for connection in self._connections:
            make_good(case, connection[0])
        return [[Answer(DIED)] if server in dead else given for server, given in zip(NAMES, answers, strict=True)]


def make_good(case, http):
    traced = {"/v2/trace/setting"} | {f"/v2/models/{model.name}/trace/setting" for model in LOADED}
    for request in MAKING_GOOD:
        http.ask(request)
    # A model that is not loaded keeps its trace settings.
    if any(re.search("/repository/(x/)?models", str(step)) for step in case.steps):
        reload(http)
    if any("race" in str(step) for step in case.steps):
        for path in sorted(traced):
            http.ask(HttpRequest("POST", path, (), json.dumps(NO_TRACES).encode()))


def reload(http):
    """Loads `light` anew, until it is ready: Triton unloads a model after it has answered, and may fail to load it meanwhile."""
    for _ in range(MOST_RELOADS):
        for request in RELOAD:
            # On a busy machine a process of Python starts slowly.
            http.ask(request, RELOAD_PATIENCE)
        if all(http.ask(request).code == "200" for request in READY):
            return
        for request in FORGET:
            http.ask(request, RELOAD_PATIENCE)


def settled(step, http, channel):
    """The answer to a step. An unload may be answered before it has ended: the next step waits for its end."""
    answer = ask(step, http, channel)
    if isinstance(step, HttpRequest) and step.path.endswith("/unload"):
        serving.eventually(lambda: "UNLOADING" not in http.ask(INDEX).fields.values(), "the model to be unloaded")
    return answer


def ask(step, http, channel):
    if isinstance(step, HttpRequest):
        answer = http.ask(step)
        answer.fields = {name: without_times(name, value) for name, value in answer.fields.items()}
        return answer
    requests = getattr(pb, f"{step.method}Response")
    method = channel.unary_unary(f"/{SERVICE}{step.method}", type(step.message).SerializeToString, requests.FromString)
    try:
        response, call = method.with_call(step.message, PATIENCE)
    except grpc.RpcError as error:
        return ended(error)
    fields = flat(json_format.MessageToDict(response, preserving_proto_field_name=True)) | keys(call)
    # In gRPC a time of zero is not there.
    timed = {name: value for name, value in fields.items() if not MAY_BE_ZERO.search(name)}
    return Answer("OK", fields={name: without_times(name, value) for name, value in timed.items()})


# Copying nothing may take no time.
MAY_BE_ZERO = re.compile(r"compute_(in|out)put\.ns$")


def without_times(name, value):
    """A value, or what it is if it says when or how long something was."""
    is_time = name.endswith((".ns", "last_inference")) and value not in (0, "0")
    return "(a time)" if MAY_BE_ZERO.search(name) or is_time else value
