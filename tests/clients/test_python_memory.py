"""The memory of tensors of models in Python: it may be shared in every direction, and nobody sees what is not his."""

import numpy as np
import plugins
import pytest
import python_backends
from protocols import GRPC
from serving import Server
from tritonclient.utils import InferenceServerException

# Below and above what travels beside the message.
SIZES = [1, 1000, 5000, 1 << 20]


@pytest.fixture(scope="module")
def server(tmp_path_factory, python_backend):
    folder = tmp_path_factory.mktemp("models")
    plugins.python_model(folder, "keeper")
    options, variables = python_backend.options, python_backend.variables
    with Server(tmp_path_factory.mktemp("server"), folder, *options, variables=variables) as server:
        yield server.wait_until_ready()


def do(client, protocol, what, x=()):
    inputs = [protocol.input("X", np.asarray(x, np.float32)), protocol.input("WHAT", np.array([what], np.object_))]
    return client.infer("keeper", inputs).as_numpy("OUT")


@pytest.fixture
def client(protocol, server):
    with protocol.connect(server) as client:
        do(client, protocol, "forget it")
        yield client


DEEDS = {
    "give it back": lambda x: x,
    "give a part back": lambda x: x[len(x) // 2 :],
    "give it back in steps": lambda x: x[::2],
    "give it back reversed": lambda x: x[::-1],
    "double it in place": lambda x: 2 * x,
    "share it": lambda x: x,
    "share it with numpy": lambda x: x + 1,
}


@pytest.mark.parametrize("what", DEEDS)
@pytest.mark.parametrize("size", SIZES)
def test_arrays_are_shared_in_every_way(protocol, client, size, what):
    x = np.random.default_rng(size).random(size, np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(do(client, protocol, what, x), DEEDS[what](x))


@pytest.mark.parametrize("what", DEEDS)
def test_empty_arrays_are_shared_in_every_way(protocol, client, what):
    assert do(client, protocol, what).shape == (0,)


# The process of Triton's backend dies of an array of NumPy that comes through DLPack.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True, scope="module")
@pytest.mark.parametrize("size", [0, *SIZES])
def test_an_array_of_numpy_is_shared(protocol, client, size):
    x = np.random.default_rng(size).random(size, np.float32)
    np.testing.assert_array_equal(do(client, protocol, "share an array", x), x + 1)


@pytest.mark.parametrize("size", SIZES)
def test_an_array_that_a_model_keeps_stays_as_it_is(protocol, client, size):
    random = np.random.default_rng(size)
    sent = [random.random(size, np.float32) for _ in range(8)]
    for x in sent:
        do(client, protocol, "keep it", x)
    for _ in range(8):
        do(client, protocol, "give it back", random.random(size, np.float32))
    # It may be an output, more than once.
    for _ in range(2):
        np.testing.assert_array_equal(do(client, protocol, "give the first that is kept"), sent[0])
    np.testing.assert_allclose(do(client, protocol, "give what is kept"), [x.sum(dtype=np.float64) for x in sent], rtol=1e-6)


def test_models_do_not_mix_the_requests_of_many_clients_up(server, threads):
    def ask(seed):
        random = np.random.default_rng(seed)
        with GRPC.connect(server) as client:
            for _ in range(20):
                x = random.random(random.integers(1, 200_000), np.float32)
                what = list(DEEDS)[random.integers(len(DEEDS))]
                np.testing.assert_array_equal(do(client, GRPC, what, x), DEEDS[what](x))

    for answer in [threads.submit(ask, seed) for seed in range(8)]:
        answer.result()


LIMIT = 64 << 20


@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_shared_memory_has_a_limit_and_is_used_again(start_python, tmp_path, protocol):
    """A model keeps half of the memory, lets it go, and again. What does not fit is an error of its request."""
    folder = tmp_path / "models"
    folder.mkdir()
    plugins.python_model(folder, "keeper")
    server = start_python(folder, f"--backend-config=python,shared-memory-limit-bytes={LIMIT}").wait_until_ready()
    with protocol.connect(server) as client:
        x = np.ones(1 << 20, np.float32)
        for _ in range(4):
            for _ in range(8):
                do(client, protocol, "keep it", x)
            do(client, protocol, "forget it")
        with pytest.raises(InferenceServerException, match="shared-memory-limit-bytes"):
            do(client, protocol, "give it back", np.ones(LIMIT // 4 + 1, np.float32))
        assert do(client, protocol, "give it back", [7]).item() == 7
