"""Clients whose shared memory changes while the server uses it. Whatever they do, the server answers others."""

import os
import threading

import numpy as np
import pytest
import repository as models
from held import held_inputs
from protocols import GRPC, HTTP
from serving import PATIENCE, Server, size
from shared_regions import ALLOWED, PAGE, Region, output_shape, registered
from tritonclient.utils import InferenceServerException

IN_PLACE = "--client-shm-in-place=true"
X = np.arange(16, dtype=np.float32)
SMALLER = "can not be used: the shared memory object is smaller than when it was registered"
LOST = "can not be used any more: a part of its memory was missing"


@pytest.fixture(scope="module", params=["copied", "in_place"])
def server(request, repository, tmp_path_factory, backend_option):
    """A server that works on copies, and one that uses the regions in place."""
    options = [ALLOWED] + [IN_PLACE] * (request.param == "in_place")
    with Server(tmp_path_factory.mktemp("server"), repository, backend_option, *options) as server:
        server.works_on_copies = request.param == "copied"
        yield server.wait_until_ready()


@pytest.fixture
def region():
    with Region(2 * PAGE) as region:
        yield region


class Meanwhile:
    """Does something again and again on a thread of its own."""

    def __init__(self, action):
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, args=(action,))

    def _repeat(self, action):
        while not self._ended.is_set():
            action()

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join(PATIENCE)


def assert_well(server, protocol):
    """Another client is served."""
    with protocol.connect(server) as client:
        assert client.is_server_ready()
        result = client.infer("identity_fp32", [protocol.input("INPUT", X)])
        np.testing.assert_array_equal(result.as_numpy("OUTPUT"), X)


def test_tensors_pass_unchanged(protocol, client, region):
    """Also if they are used in place, which begins with the second request of a shape."""
    region.register(client)
    for number in range(5):
        x, y = region.input(protocol, "INPUT", X + number), region.output(protocol, "OUTPUT", 64, PAGE)
        assert output_shape(client.infer("identity_fp32", [x], outputs=[y]), "OUTPUT") == [16]
        np.testing.assert_array_equal(region.read(np.float32, [16], PAGE), X + number)
    # Outputs over inputs.
    inputs = [region.input(protocol, f"INPUT{place}", np.full((1, 16), 7 + place, np.int32), 64 * place) for place in (0, 1)]
    for _ in range(2):
        region.input(protocol, "INPUT0", np.full((1, 16), 7, np.int32))
        region.input(protocol, "INPUT1", np.full((1, 16), 8, np.int32), 64)
        client.infer("add_sub", inputs, outputs=[region.output(protocol, f"OUTPUT{place}", 64, 64 * place) for place in (0, 1)])
        np.testing.assert_array_equal(region.read(np.int32, [2, 16]), [[15] * 16, [-1] * 16])


def test_plug_ins_get_and_give_tensors_of_regions(protocol, client, region):
    region.register(client)
    for number in range(3):
        inputs = held_inputs(protocol)
        inputs[0] = region.input(protocol, "INPUT0", np.array([[number]], np.float32))
        client.infer("held", inputs, outputs=[region.output(protocol, "OUTPUT0", 4, PAGE)])
        assert region.read(np.float32, [1], PAGE)[0] == number


def test_an_object_that_has_become_smaller_is_an_error(protocol, client, server, region):
    region.register(client)
    x, y = region.input(protocol, "INPUT", X), region.output(protocol, "OUTPUT", 64, PAGE)
    expected = f"shared memory region '{region.name}' with key '{region.key}' {SMALLER}"
    for byte_size in (0, 1, PAGE, 2 * PAGE - 1):
        region.truncate(byte_size)
        for inputs, outputs in (([x], []), ([protocol.input("INPUT", X)], [y])):
            with pytest.raises(InferenceServerException) as refused:
                client.infer("identity_fp32", inputs, outputs=outputs or None)
            assert expected in refused.value.message() or LOST in refused.value.message()
        assert_well(server, protocol)
    # A fault in place has lost the region. It can be registered again.
    region.truncate(2 * PAGE)
    client.unregister_system_shared_memory(region.name)
    region.register(client)
    client.infer("identity_fp32", [region.input(protocol, "INPUT", X)], outputs=[y])
    np.testing.assert_array_equal(region.read(np.float32, [16], PAGE), X)


def test_an_object_that_becomes_smaller_under_load_harms_only_its_requests(protocol, server, threads):
    count = 1 << 18
    values = np.arange(count, dtype=np.float32)

    def shrink_and_grow(region):
        region.truncate(0)
        region.truncate(8 * count)

    def ask(number):
        answers = {"answered": 0, "refused": 0}
        with protocol.connect(server) as client, Region(8 * count) as region, Meanwhile(lambda: shrink_and_grow(region)):
            for _ in range(size(40, 400)):
                try:
                    client.unregister_system_shared_memory(region.name)
                    client.register_system_shared_memory(region.name, region.key, 8 * count)
                    for _ in range(4):
                        x = region.place(protocol, "INPUT", [count], "FP32", 4 * count)
                        client.infer("identity_fp32", [x], outputs=[region.output(protocol, "OUTPUT", 4 * count, 4 * count)])
                        answers["answered"] += 1
                except InferenceServerException as error:
                    known = (SMALLER, LOST, "invalid args", "Invalid shared memory region", "Unable to find", "already in manager")
                    assert any(text in error.message() for text in known), error.message()
                    answers["refused"] += 1
            client.unregister_system_shared_memory(region.name)
        return answers

    def innocent(_):
        with protocol.connect(server) as client:
            for _ in range(size(20, 200)):
                result = client.infer("identity_fp32", [protocol.input("INPUT", values[:1000])])
                np.testing.assert_array_equal(result.as_numpy("OUTPUT"), values[:1000])

    running = [threads.submit(ask, number) for number in range(3)] + [threads.submit(innocent, None)]
    answers = [future.result(PATIENCE) for future in running][:3]
    assert all(answer["answered"] + answer["refused"] > 0 for answer in answers), answers
    assert_well(server, protocol)


def test_texts_that_change_while_they_are_read_are_checked_as_they_were_copied(protocol, client, server, region):
    """The length of the only text flips between one that fits and one that does not."""
    region.register(client)
    good = np.array([b"a" * 60], np.object_)
    x = region.input(protocol, "INPUT", good)
    lengths = np.ndarray([1], np.uint32, buffer=region.handle._mpsm_handle.buf)

    def flip():
        lengths[0] = 0xFFFFFFFF
        lengths[0] = 60

    with Meanwhile(flip):
        for _ in range(size(200, 5000)):
            try:
                client.infer("identity_bytes", [x], outputs=[region.output(protocol, "OUTPUT", 64, PAGE)])
                np.testing.assert_array_equal(region.read(np.object_, [1], PAGE), good)
            except InferenceServerException as error:
                assert "incomplete string data for inference input 'INPUT'" in error.message()
    # The test's own reference into the object.
    del lengths
    assert_well(server, protocol)


def test_an_input_that_changes_after_the_request_was_accepted(protocol, client, server, region, gate, threads):
    """A model that works on a copy sees the numbers of the moment in which the request came."""
    region.register(client)
    hold = gate.hold()
    inputs = held_inputs(protocol, hold)
    inputs[0] = region.input(protocol, "INPUT0", np.array([[5]], np.float32))

    def ask():
        with protocol.connect(server) as own:
            return own.infer("held", inputs).as_numpy("OUTPUT0").item()

    running = threads.submit(ask)
    hold.wait_until_running()
    region.write(np.array([6], np.float32))
    hold.release()
    assert running.result(PATIENCE) in ((5,) if server.works_on_copies else (5, 6))
    assert_well(server, protocol)


def test_an_object_that_was_replaced_is_another_object(protocol, client, region):
    region.register(client)
    x, y = region.input(protocol, "INPUT", X), region.output(protocol, "OUTPUT", 64, PAGE)
    os.unlink(region.path)
    with open(region.path, "wb") as other:
        other.write(bytes(2 * PAGE))
    client.infer("identity_fp32", [x], outputs=[y])
    np.testing.assert_array_equal(region.read(np.float32, [16], PAGE), X)
    with open(region.path, "rb") as other:
        assert other.read() == bytes(2 * PAGE)
    # Registered again, the name means the new object.
    client.unregister_system_shared_memory(region.name)
    client.register_system_shared_memory(region.name, region.key, 2 * PAGE)
    np.testing.assert_array_equal(client.infer("identity_fp32", [x]).as_numpy("OUTPUT"), np.zeros(16))


def test_an_object_without_memory_is_read_as_zeros_and_takes_none(protocol, client):
    """A huge object whose pages do not exist."""
    with Region(PAGE) as region:
        os.truncate(region.path, 1 << 40)
        with pytest.raises(InferenceServerException, match="more bytes are not allowed") as refused:
            client.register_system_shared_memory(region.name, region.key, 1 << 40)
        assert refused.value.status() in ("503", "StatusCode.RESOURCE_EXHAUSTED")
        client.register_system_shared_memory(region.name, region.key, PAGE, (1 << 40) - PAGE)
        x = region.place(protocol, "INPUT", [4], "FP32", 16)
        np.testing.assert_array_equal(client.infer("identity_fp32", [x]).as_numpy("OUTPUT"), np.zeros(4))
        client.unregister_system_shared_memory(region.name)


def test_ten_thousand_regions_meet_a_limit(protocol, client, server, region):
    before = len(registered(protocol, client))
    accepted = 0
    try:
        for number in range(10_000):
            client.register_system_shared_memory(f"many_{number}", region.key, PAGE)
            accepted += 1
    except InferenceServerException as refused:
        assert refused.message() == (
            f"failed to register shared memory region 'many_{accepted}': there are 1024 regions, and more are not allowed"
            " (--max-client-shm-regions)"
        )
    assert accepted == 1024 - before
    assert len(registered(protocol, client)) == 1024
    assert_well(server, protocol)
    client.unregister_system_shared_memory()
    assert registered(protocol, client) == {}


def test_the_limits_can_be_set(protocol, start, repository, backend_option, region):
    limits = ("--max-client-shm-regions=2", f"--max-client-shm-byte-size={3 * PAGE}")
    client = protocol.connect(start(repository, backend_option, ALLOWED, *limits))
    client.register_system_shared_memory("a", region.key, 2 * PAGE)
    with pytest.raises(InferenceServerException, match="max-client-shm-byte-size"):
        client.register_system_shared_memory("b", region.key, 2 * PAGE)
    client.register_system_shared_memory("b", region.key, PAGE)
    with pytest.raises(InferenceServerException, match="max-client-shm-regions"):
        client.register_system_shared_memory("c", region.key, PAGE)


@pytest.mark.parametrize("options", [[], [IN_PLACE]], ids=["copied", "in_place"])
def test_a_cached_answer_belongs_to_the_server(protocol, start, tmp_path, region, options):
    """No client changes the cached answer of others by writing into the region that it got the answer in."""
    folder = tmp_path / "models"
    graph = models.graph("same (float[n] X) => (float[n] Y) { Y = Identity(X) }")
    config = "max_batch_size: 0\nresponse_cache { enable: true }\n"
    config += models.tensor("input", "X", "FP32", -1) + models.tensor("output", "Y", "FP32", -1)
    models.write(folder, "same", graph, config)
    server = start(folder, ALLOWED, "--cache-config=local,size=1048576", *options).wait_until_ready()
    client = protocol.connect(server)
    region.register(client)
    for number in range(3):
        outputs = [region.output(protocol, "Y", 64, PAGE)]
        client.infer("same", [region.input(protocol, "X", X + number)], outputs=outputs)
        np.testing.assert_array_equal(region.read(np.float32, [16], PAGE), X + number)
        region.write(np.full(16, -1, np.float32), PAGE)
        region.write(np.full(16, -1, np.float32))
        again = client.infer("same", [protocol.input("X", X + number)], outputs=[protocol.output("Y")])
        np.testing.assert_array_equal(again.as_numpy("Y"), X + number)
    assert protocol.statistics(client, "same")["inference_stats"]["cache_hit"]["count"] == 3


def test_regions_of_many_clients_at_once(server, threads):
    def use(number):
        protocol = (HTTP, GRPC)[number % 2]
        with protocol.connect(server) as client, Region(2 * PAGE) as region:
            for turn in range(size(10, 100)):
                client.register_system_shared_memory(region.name, region.key, 2 * PAGE)
                x, y = region.input(protocol, "INPUT", X + turn), region.output(protocol, "OUTPUT", 64, PAGE)
                client.infer("identity_fp32", [x], outputs=[y])
                np.testing.assert_array_equal(region.read(np.float32, [16], PAGE), X + turn)
                client.unregister_system_shared_memory(region.name)

    for done in [threads.submit(use, number) for number in range(16)]:
        done.result(PATIENCE)
