"""What the tests share: one server with all models, the two protocols, and servers of one's own."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import plugins
import pytest
import repository as models
from protocols import GRPC, HTTP, slow_inputs
from serving import Server


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """A folder with every model."""
    return models.write_all(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def server(repository, tmp_path_factory):
    """One server with every model for all tests that leave it as it is."""
    with Server(tmp_path_factory.mktemp("server"), repository) as server:
        yield server.wait_until_ready()


@pytest.fixture
def start(tmp_path):
    """Starts servers of one's own; they must end in order after the test."""
    with contextlib.ExitStack() as servers:
        yield lambda *arguments, **named: servers.enter_context(Server(tmp_path, *arguments, **named))


@pytest.fixture(scope="session")
def python_server(tmp_path_factory):
    """One server with every model in Python for all tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("python")
    repository = folder / "models"
    repository.mkdir()
    backends = f"--backend-directory={plugins.BACKENDS}"
    with Server(folder, plugins.write_all(repository), backends, variables=plugins.VARIABLES) as server:
        yield server.wait_until_ready()


@pytest.fixture(params=[HTTP, GRPC], ids=lambda protocol: protocol.name)
def protocol(request):
    return request.param


@pytest.fixture
def client(protocol, server):
    with protocol.connect(server) as client:
        yield client


@pytest.fixture
def grpc(server):
    with GRPC.connect(server) as client:
        yield client


@pytest.fixture
def http(server):
    with HTTP.connect(server) as client:
        yield client


@pytest.fixture
def threads():
    """Enough threads for whoever wants to wait for many answers at once."""
    with ThreadPoolExecutor(32) as threads:
        yield threads


@pytest.fixture(scope="session")
def rounds(server):
    """How many ROUNDS keep this machine busy for so many seconds, about."""
    sample = 2000
    with GRPC.connect(server) as client:

        def seconds():
            before = time.monotonic()
            client.infer("slow", slow_inputs(GRPC, sample))
            return time.monotonic() - before

        per_round = min(seconds() for _ in range(3)) / sample
    return lambda seconds: max(1, int(seconds / per_round))
