"""Tensors in shared memory that clients have registered."""

import base64
import contextlib
import os
import queue

import numpy as np
import plugins
import pytest
import repository as models
import tritonclient.grpc.aio
import tritonclient.http.aio
from held import held_inputs
from protocols import GRPC, HTTP, add_sub_inputs
from python_backends import BUILT_IN
from repository import tensor
from serving import PATIENCE, Server, eventually, size
from shared_regions import ALLOWED, PAGE, Region, output_shape, registered
from tritonclient.utils import InferenceServerException

X = np.arange(16, dtype=np.float32)


@pytest.fixture(scope="module")
def server(repository, tmp_path_factory, backend_option):
    with Server(tmp_path_factory.mktemp("server"), repository, backend_option, ALLOWED) as server:
        yield server.wait_until_ready()


@pytest.fixture
def region():
    with Region(2 * PAGE) as region:
        yield region


def refusal(protocol, code, question, *arguments, **named):
    """The text of the refusal of a question, which has this code."""
    with pytest.raises(InferenceServerException) as refused:
        question(*arguments, **named)
    assert refused.value.status() == protocol.status(code), refused.value.message()
    return refused.value.message()


# ---- Registration ----


def test_a_region_is_registered_shown_and_unregistered(protocol, client, region):
    region.register(client, PAGE, PAGE)
    assert registered(protocol, client)[region.name] == (region.key, PAGE, PAGE)
    one = protocol.json(client.get_system_shared_memory_status, region.name)
    assert len(one if protocol is HTTP else one["regions"]) == 1
    client.unregister_system_shared_memory(region.name)
    assert region.name not in registered(protocol, client)
    # An unknown name is not an error.
    client.unregister_system_shared_memory(region.name)


def test_both_protocols_share_their_regions(http, grpc, region):
    region.register(http)
    assert region.name in registered(GRPC, grpc)
    x = region.input(GRPC, "INPUT", X)
    np.testing.assert_array_equal(grpc.infer("identity_fp32", [x]).as_numpy("OUTPUT"), X)
    grpc.unregister_system_shared_memory(region.name)
    assert region.name not in registered(HTTP, http)


def test_all_regions_are_unregistered_at_once(protocol, start, repository, backend_option):
    with Region(64) as one, Region(64) as two:
        client = protocol.connect(start(repository, backend_option, ALLOWED))
        for region in (one, two):
            region.register(client)
        # Those of graphics processors are others.
        client.unregister_cuda_shared_memory()
        assert set(registered(protocol, client)) == {one.name, two.name}
        client.unregister_system_shared_memory()
        assert registered(protocol, client) == {}


def test_what_cannot_be_registered_is_refused(protocol, client, region):
    name, key = region.name, region.key

    def register(code, byte_size, offset=0, key=key, name=name):
        return refusal(protocol, code, client.register_system_shared_memory, name, key, byte_size, offset)

    assert register("INTERNAL", 64, key="/nereid_missing") == "Unable to open shared memory region: '/nereid_missing'"
    for outside in ("/../etc/passwd", "../../etc/passwd", "/a/b", "..", "."):
        assert register("INTERNAL", 64, key=outside) == f"Unable to open shared memory region: '{outside}'"
    for slashes in ("/", "///"):
        text = f"cannot register shared memory region '{name}' - invalid shm key '{slashes}'"
        assert register("INVALID_ARGUMENT", 64, key=slashes) == text
    for reserved in ("triton_python_backend_shm_region_1", "//triton_python_backend_shm_region_"):
        assert register("INVALID_ARGUMENT", 64, key=reserved).endswith("'triton_python_backend_shm_region_'")
    beyond = f"failed to register shared memory region '{name}': invalid args"
    for byte_size, offset in ((2 * PAGE + 1, 0), (1, 2 * PAGE), (PAGE + 1, PAGE), (2**63, 2**63), (2**64 - 1, 1)):
        assert register("INVALID_ARGUMENT", byte_size, offset) == beyond
    unmapped = f"failed to register shared memory region '{name}': unable to process address spaceInvalid argument"
    assert register("INVALID_ARGUMENT", 0) == unmapped
    assert register("INVALID_ARGUMENT", 64, 16) == unmapped
    region.register(client)
    taken = f"shared memory region '{name}' already in manager"
    code = "INVALID_ARGUMENT" if protocol is HTTP else None
    with pytest.raises(InferenceServerException) as refused:
        client.register_system_shared_memory(name, "/nereid_missing", 64)
    assert refused.value.message() == taken
    assert refused.value.status() == (protocol.status(code) if code else "StatusCode.ALREADY_EXISTS")


def test_names_may_contain_anything(protocol, client):
    with Region(64, name="a b?é\"") as region:
        region.register(client)
        assert region.name in registered(protocol, client)
        x = region.input(protocol, "INPUT", X[:4])
        np.testing.assert_array_equal(client.infer("identity_fp32", [x]).as_numpy("OUTPUT"), X[:4])
        client.unregister_system_shared_memory(region.name)
        assert region.name not in registered(protocol, client)


def test_memory_of_graphics_processors_is_refused(protocol, client):
    empty = protocol.json(client.get_cuda_shared_memory_status)
    assert empty == ([] if protocol is HTTP else {})
    handle = base64.b64encode(b"\0" * 64)
    text = refusal(protocol, "INVALID_ARGUMENT", client.register_cuda_shared_memory, "c", handle, 0, 64)
    assert text == "failed to register CUDA shared memory region: 'c', GPUs not supported"
    text = refusal(protocol, "INVALID_ARGUMENT", client.register_cuda_shared_memory, "c", handle[:40], 0, 64)
    assert text == "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
    client.unregister_cuda_shared_memory("c")
    text = refusal(protocol, "NOT_FOUND", client.get_cuda_shared_memory_status, "c")
    assert text == "Unable to find cuda shared memory region: 'c'"


def test_without_the_option_nothing_can_be_registered(protocol, start, repository, backend_option, region):
    client = protocol.connect(start(repository, backend_option))
    text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
    for question, arguments in (
        (client.register_system_shared_memory, (region.name, region.key, 64)),
        (client.unregister_system_shared_memory, ()),
        (client.register_cuda_shared_memory, ("c", b"AAAA", 0, 64)),
        (client.unregister_cuda_shared_memory, ()),
    ):
        assert refusal(protocol, "UNIMPLEMENTED", question, *arguments) == text
    assert registered(protocol, client) == {}
    x = region.input(protocol, "INPUT", X)
    text = f"Unable to find shared memory region: '{region.name}'"
    assert text in refusal(protocol, "NOT_FOUND", client.infer, "identity_fp32", [x])


def test_the_metadata_name_the_extensions(protocol, client):
    extensions = protocol.json(client.get_server_metadata)["extensions"]
    assert extensions[5:9] == ["model_configuration", "system_shared_memory", "cuda_shared_memory", "binary_tensor_data"]


# ---- Inference ----


def test_tensors_are_read_from_a_region_and_written_to_it(protocol, client, region):
    region.register(client)
    x, y = region.input(protocol, "INPUT", X, 64), region.output(protocol, "OUTPUT", 64, PAGE)
    result = client.infer("identity_fp32", [x], outputs=[y], request_id="7")
    assert output_shape(result, "OUTPUT") == [16]
    np.testing.assert_array_equal(region.read(np.float32, [16], PAGE), X)
    # A response needs not fill its memory, and what follows stays as it was.
    region.write(np.full(16, 7, np.float32), PAGE)
    client.infer("identity_fp32", [region.input(protocol, "INPUT", X[:3])], outputs=[region.output(protocol, "OUTPUT", 64, PAGE)])
    np.testing.assert_array_equal(region.read(np.float32, [5], PAGE), [0, 1, 2, 7, 7])


@pytest.mark.parametrize("datatype", models.DATATYPES)
def test_every_datatype(protocol, client, region, datatype):
    if datatype == "BF16":
        array = np.arange(8, dtype=np.uint16)
    elif datatype == "BYTES":
        array = np.array([b"", b"a", "ä".encode(), b"\0" * 100], np.object_)
    else:
        array = np.arange(8).astype(models.DATATYPES[datatype][1].replace("float", "float32") if datatype == "FP32" else
                                    {"FP16": np.float16, "FP64": np.float64}.get(datatype, models.DATATYPES[datatype][1]))
    region.register(client)
    x = region.input(protocol, "INPUT", array, datatype=datatype)
    y = region.output(protocol, "OUTPUT", 1000, PAGE)
    result = client.infer(f"identity_{datatype.lower()}", [x], outputs=[y])
    assert output_shape(result, "OUTPUT") == list(array.shape)
    np.testing.assert_array_equal(region.read(array.dtype, array.shape, PAGE), array)


def test_regions_and_other_sources_may_be_mixed(protocol, client, region):
    region.register(client)
    inputs, first = add_sub_inputs(protocol)
    inputs[0] = region.input(protocol, "INPUT0", first)
    outputs = [region.output(protocol, "OUTPUT1", 64, PAGE), protocol.output("OUTPUT0")]
    result = client.infer("add_sub", inputs, outputs=outputs)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)
    np.testing.assert_array_equal(region.read(np.int32, [1, 16], PAGE), first - 1000)
    if protocol is HTTP:
        as_json = protocol.library.InferInput("INPUT1", [1, 16], "INT32")
        as_json.set_data_from_numpy(np.full((1, 16), 5, np.int32), binary_data=False)
        outputs[1] = protocol.output("OUTPUT0", binary_data=False)
        result = client.infer("add_sub", [inputs[0], as_json], outputs=outputs)
        assert result.get_output("OUTPUT0")["data"][:2] == [5, 6]
        np.testing.assert_array_equal(region.read(np.int32, [1, 16], PAGE), first - 5)


def test_tensors_without_elements(protocol, client, region):
    region.register(client)
    x = region.place(protocol, "INPUT", [0], "FP32", 0, 8)
    result = client.infer("identity_fp32", [x], outputs=[region.output(protocol, "OUTPUT", 0, 2 * PAGE - 1)])
    assert output_shape(result, "OUTPUT") == [0]
    at_end = region.place(protocol, "INPUT", [0], "FP32", 0, 2 * PAGE)
    text = refusal(protocol, "INVALID_ARGUMENT", client.infer, "identity_fp32", [at_end])
    assert text == f"Invalid offset for shared memory region: '{region.name}'"


def test_a_tensor_must_lie_within_its_region(protocol, client, region):
    region.register(client)

    def infer(code, byte_size, offset, name="INPUT"):
        x = region.place(protocol, name, [16], "FP32", byte_size, offset)
        return refusal(protocol, code, client.infer, "identity_fp32", [x])

    offset = f"Invalid offset for shared memory region: '{region.name}'"
    end = f"Invalid offset + byte size for shared memory region: '{region.name}'"
    assert infer("INVALID_ARGUMENT", 64, 2 * PAGE) == offset
    assert infer("INVALID_ARGUMENT", 64, 2**63 - 1) == offset
    assert infer("INVALID_ARGUMENT", 64, 2 * PAGE - 63) == end
    assert infer("INVALID_ARGUMENT", 2**63 - 1, 1) == end
    if protocol is HTTP:
        text = infer("INVALID_ARGUMENT", 2**64 - 1, 4)
        assert text == (
            "Integer overflow detected: byte_size (18446744073709551615) + offset (4) exceeds maximum value"
            f" (18446744073709551615) for region '{region.name}'"
        )
    mismatch = "[request id: <id_unknown>] input byte size mismatch for input 'INPUT' for model 'identity_fp32'. Expected 64, got {}"
    for wrong in (0, 63, 65):
        assert infer("INVALID_ARGUMENT", wrong, 0) == mismatch.format(wrong)
    # The same rules hold for outputs.
    x = region.input(protocol, "INPUT", X)
    for byte_size, at, expected in ((64, 2 * PAGE, offset), (64, 2 * PAGE - 63, end)):
        output = region.output(protocol, "OUTPUT", byte_size, at)
        assert refusal(protocol, "INVALID_ARGUMENT", client.infer, "identity_fp32", [x], outputs=[output]) == expected


def test_an_output_must_fit(protocol, client, region):
    region.register(client).write(np.full(16, 7, np.float32), PAGE)
    x, y = region.input(protocol, "INPUT", X), region.output(protocol, "OUTPUT", 63, PAGE)
    text = refusal(protocol, "INTERNAL", client.infer, "identity_fp32", [x], outputs=[y])
    assert text == (
        "shared memory size specified with the request for output 'OUTPUT' (63 bytes) should be at least 64 bytes to hold the"
        " results"
    )
    np.testing.assert_array_equal(region.read(np.float32, [16], PAGE), np.full(16, 7))


def test_classes_are_not_written_to_regions(protocol, client, region):
    region.register(client)
    features = region.input(protocol, "FEATURES", np.ones((1, 4), np.float32))
    both = protocol.output("PROBABILITIES", class_count=2)
    # The client library itself refuses both.
    with pytest.raises(InferenceServerException):
        both.set_shared_memory(region.name, 64)
        client.infer("classifier", [features], outputs=[both])
    classes = client.infer("classifier", [features], outputs=[protocol.output("PROBABILITIES", class_count=2)])
    assert classes.as_numpy("PROBABILITIES").shape == (1, 2)


def test_sequences_read_and_write_regions(protocol, client, region):
    region.register(client)
    total = 0
    for number in range(1, 5):
        x = region.input(protocol, "X", np.array([[number]], np.int32))
        total += number
        client.infer(
            "accumulate_direct",
            [x],
            outputs=[region.output(protocol, "SUM", 4, PAGE)],
            sequence_id=4711,
            sequence_start=number == 1,
            sequence_end=number == 4,
        )
        assert region.read(np.int32, [1], PAGE)[0] == total


def test_streams_of_requests_use_regions(grpc, region):
    region.register(grpc)
    answers = queue.Queue()
    grpc.start_stream(lambda result, error: answers.put((result, error)))
    for number in range(8):
        x = region.input(GRPC, "INPUT", X + number, 64 * number)
        grpc.async_stream_infer("identity_fp32", [x], outputs=[region.output(GRPC, "OUTPUT", 64, PAGE + 64 * number)])
    for _ in range(8):
        result, error = answers.get(timeout=PATIENCE)
        assert error is None and output_shape(result, "OUTPUT") == [16]
    grpc.stop_stream()
    for number in range(8):
        np.testing.assert_array_equal(region.read(np.float32, [16], PAGE + 64 * number), X + number)


def test_each_response_of_a_decoupled_model_is_written(grpc, region):
    region.register(grpc)
    answers = queue.Queue()
    grpc.start_stream(lambda result, error: answers.put((result, error)))
    inputs = [region.input(GRPC, "FROM", np.array([[3]], np.int64)), region.input(GRPC, "ROUNDS", np.array([[1]], np.int64), 8)]
    output = region.output(GRPC, "OUT", 8, PAGE)
    grpc.async_stream_infer("countdown", inputs, outputs=[output], enable_empty_final_response=True)
    while True:
        result, error = answers.get(timeout=PATIENCE)
        assert error is None, error
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
        assert output_shape(result, "OUT") == [1, 1]
    grpc.stop_stream()
    assert region.read(np.int64, [1], PAGE)[0] == 1


def test_a_request_in_an_error_of_the_model_leaves_the_region_alone(protocol, client, region):
    region.register(client).write(np.full(4, 7, np.float32), PAGE)
    x = region.input(protocol, "INDEX", np.array([0, 99], np.int64))
    refusal(protocol, "INTERNAL", client.infer, "picky", [x], outputs=[region.output(protocol, "VALUE", 64, PAGE)])
    np.testing.assert_array_equal(region.read(np.float32, [4], PAGE), np.full(4, 7))


async def test_asynchronous_clients(server, protocol):
    make = tritonclient.http.aio if protocol is HTTP else tritonclient.grpc.aio
    address = server.http if protocol is HTTP else server.grpc
    with Region(2 * PAGE) as region:
        async with make.InferenceServerClient(address) as client:
            await client.register_system_shared_memory(region.name, region.key, 2 * PAGE)
            assert region.name in str(await client.get_system_shared_memory_status())
            x, y = region.input(protocol, "INPUT", X), region.output(protocol, "OUTPUT", 64, PAGE)
            await client.infer("identity_fp32", [x], outputs=[y])
            np.testing.assert_array_equal(region.read(np.float32, [16], PAGE), X)
            await client.unregister_system_shared_memory(region.name)
            assert region.name not in str(await client.get_system_shared_memory_status())


def test_batches_of_regions_keep_their_rows(protocol, client, server, region, threads):
    region.register(client)
    rows = np.arange(8 * 16, dtype=np.int32).reshape(8, 16)

    def ask(row):
        inputs = [region.input(protocol, "INPUT0", rows[row : row + 1], 128 * row)]
        inputs.append(region.input(protocol, "INPUT1", rows[row : row + 1], 128 * row + 64))
        output = region.output(protocol, "OUTPUT0", 64, PAGE + 64 * row)
        with protocol.connect(server) as own:
            own.infer("add_sub", inputs, outputs=[output])
        return region.read(np.int32, [16], PAGE + 64 * row)

    for row, answer in enumerate(threads.map(ask, range(8))):
        np.testing.assert_array_equal(answer, 2 * rows[row])


# ---- Ensembles, caches ----


def ensemble_config(name, member, steps, dims):
    config = f'name: "{name}"\nplatform: "ensemble"\nmax_batch_size: 0\n'
    config += tensor("input", "INPUT", "FP32", dims) + tensor("output", "OUTPUT", "FP32", dims)
    names = ["INPUT", *(f"between_{step}" for step in range(steps - 1)), "OUTPUT"]
    config += "ensemble_scheduling {\n"
    for source, target in zip(names, names[1:], strict=False):
        config += f'step {{ model_name: "{member}" model_version: -1\n'
        config += f'input_map {{ key: "INPUT" value: "{source}" }} output_map {{ key: "OUTPUT" value: "{target}" }} }}\n'
    return config + "}\n"


def client_of_pair(protocol, start, tmp_path):
    """A client of a server with an identity, and an ensemble of two of them."""
    folder = tmp_path / "models"
    models.identity(folder, "FP32")
    (folder / "pair" / "1").mkdir(parents=True)
    (folder / "pair" / "config.pbtxt").write_text(ensemble_config("pair", "identity_fp32", 2, -1))
    return protocol.connect(start(folder, ALLOWED).wait_until_ready())


def test_ensembles_read_and_write_regions(protocol, start, tmp_path, region):
    client = client_of_pair(protocol, start, tmp_path)
    region.register(client)
    x, y = region.input(protocol, "INPUT", X), region.output(protocol, "OUTPUT", 64, PAGE)
    assert output_shape(client.infer("pair", [x], outputs=[y]), "OUTPUT") == [16]
    np.testing.assert_array_equal(region.read(np.float32, [16], PAGE), X)


def test_cached_answers_are_written_to_the_region_of_each_request(protocol, start, tmp_path, region):
    folder = tmp_path / "models"
    graph = models.graph("same (float[n] X) => (float[n] Y) { Y = Identity(X) }")
    config = "max_batch_size: 0\nresponse_cache { enable: true }\n" + tensor("input", "X", "FP32", -1) + tensor("output", "Y", "FP32", -1)
    models.write(folder, "same", graph, config)
    client = protocol.connect(start(folder, ALLOWED, "--cache-config=local,size=1048576").wait_until_ready())
    region.register(client)

    def ask(x, at):
        region.write(np.zeros(16, np.float32), at)
        client.infer("same", [x], outputs=[region.output(protocol, "Y", 64, at)])
        return region.read(np.float32, [16], at)

    def executions():
        return protocol.statistics(client, "same").get("execution_count", 0)

    np.testing.assert_array_equal(ask(region.input(protocol, "X", X), PAGE), X)
    # A hit, in another place of the region: the key does not depend on where the tensors are.
    np.testing.assert_array_equal(ask(region.input(protocol, "X", X, 512), PAGE + 128), X)
    np.testing.assert_array_equal(ask(protocol.input("X", X), PAGE + 256), X)
    result = client.infer("same", [region.input(protocol, "X", X)], outputs=[protocol.output("Y")])
    np.testing.assert_array_equal(result.as_numpy("Y"), X)
    assert executions() == 1
    # What the client writes into its region afterwards changes no cached answer.
    region.write(np.full(16, -1, np.float32), PAGE)
    np.testing.assert_array_equal(ask(region.input(protocol, "X", X), PAGE), X)
    assert executions() == 1
    # The bytes of the region count, not its name.
    np.testing.assert_array_equal(ask(region.input(protocol, "X", X + 1), PAGE), X + 1)
    assert executions() == 2


# ---- The end of a region ----


def held_in(region, protocol, hold, x):
    inputs = held_inputs(protocol, hold)
    inputs[0] = region.input(protocol, "INPUT0", np.array([[x]], np.float32))
    return inputs


def test_a_region_in_use_ends_with_the_last_request(protocol, client, server, region, gate, threads):
    region.register(client)
    hold = gate.hold()

    def ask():
        with protocol.connect(server) as own:
            outputs = [region.output(protocol, "OUTPUT0", 4, PAGE)]
            return output_shape(own.infer("held", held_in(region, protocol, hold, 5), outputs=outputs), "OUTPUT0")

    running = threads.submit(ask)
    hold.wait_until_running()
    client.unregister_system_shared_memory(region.name)
    # It still is there, but for nobody else.
    assert region.name in registered(protocol, client)
    text = refusal(protocol, "NOT_FOUND", client.infer, "held", held_in(region, protocol, None, 6))
    assert text == f"Unable to find shared memory region: '{region.name}'"
    with pytest.raises(InferenceServerException, match="already in manager"):
        client.register_system_shared_memory(region.name, region.key, PAGE)
    hold.release()
    assert running.result(PATIENCE) == [1, 1]
    assert region.read(np.float32, [1], PAGE)[0] == 5
    eventually(lambda: region.name not in registered(protocol, client), "the end of the region")
    region.register(client)


MIRROR = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", request.inputs()[0].as_numpy())]) for request in requests]
"""


def write_mirrors(folder):
    """The identity by each kind of runner: ONNX Runtime, an ensemble, Python, and a response cache."""
    models.identity(folder, "FP32")
    (folder / "pair" / "1").mkdir(parents=True)
    (folder / "pair" / "config.pbtxt").write_text(ensemble_config("pair", "identity_fp32", 2, -1))
    tensors = tensor("input", "INPUT", "FP32", -1) + tensor("output", "OUTPUT", "FP32", -1)
    plugins.python_model(folder, "mirror", text=MIRROR, config=tensors)
    graph = models.graph("cached (float[n] INPUT) => (float[n] OUTPUT) { OUTPUT = Identity(INPUT) }")
    models.write(folder, "cached", graph, "max_batch_size: 0\nresponse_cache { enable: true }\n" + tensors)


@pytest.mark.timeout(size(120, 2400))
@pytest.mark.parametrize("model", ["identity_fp32", "pair", "mirror", "cached"])
def test_a_region_is_free_when_its_request_is_answered(model, protocol, start, tmp_path, region):
    """An answer ends the use of its regions: they can be unregistered and registered anew at once."""
    folder = tmp_path / "models"
    write_mirrors(folder)
    options = [ALLOWED, "--cache-config=local,size=1048576"]
    client = protocol.connect(start(folder, *options, variables=BUILT_IN.variables).wait_until_ready())
    x, y = region.input(protocol, "INPUT", X), region.output(protocol, "OUTPUT", 64, PAGE)
    too_small = region.output(protocol, "OUTPUT", 8, PAGE)
    for _ in range(size(40, 10_000)):
        for output in (y, too_small):
            client.register_system_shared_memory(region.name, region.key, region.byte_size)
            with contextlib.nullcontext() if output is y else pytest.raises(InferenceServerException):
                client.infer(model, [x], outputs=[output])
            client.unregister_system_shared_memory(region.name)
            assert region.name not in registered(protocol, client)


@pytest.mark.timeout(size(120, 2400))
def test_a_region_is_free_when_the_request_of_a_stream_is_answered(grpc, region):
    answers = queue.Queue()
    grpc.start_stream(lambda result, error: answers.put((result, error)))
    for _ in range(size(200, 20_000)):
        grpc.register_system_shared_memory(region.name, region.key, region.byte_size)
        x, y = region.input(GRPC, "INPUT", X), region.output(GRPC, "OUTPUT", 64, PAGE)
        grpc.async_stream_infer("identity_fp32", [x], outputs=[y])
        _, error = answers.get(timeout=PATIENCE)
        assert error is None, error
        grpc.unregister_system_shared_memory(region.name)
        assert region.name not in registered(GRPC, grpc)
    grpc.stop_stream()


def test_an_unlinked_object_stays_usable(protocol, client, region):
    region.register(client)
    x, y = region.input(protocol, "INPUT", X), region.output(protocol, "OUTPUT", 64, PAGE)
    os.unlink(region.path)
    client.infer("identity_fp32", [x], outputs=[y])
    np.testing.assert_array_equal(region.read(np.float32, [16], PAGE), X)
