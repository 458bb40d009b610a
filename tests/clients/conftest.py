"""What the tests share: one server with all models, the two protocols, and servers of one's own."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import ensembles
import plugins
import programs
import pytest
import python_backends
import repository as models
from held import Gate, build_backend
from protocols import GRPC, HTTP
from serving import FULL, Server

pytest_plugins = ["endings"]


# How long a test may take in the full form of tests of random operations, in seconds: some of them take 20 minutes.
FULL_TIMEOUT_SECONDS = 3600


def pytest_collection_modifyitems(items):
    if FULL:
        for item in items:
            item.add_marker(pytest.mark.timeout(FULL_TIMEOUT_SECONDS))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    programs.marks = {mark.name for mark in item.iter_markers()}
    if item.get_closest_marker("plugins"):
        plugins.check_that_they_are_here()


@pytest.fixture(scope="session")
def backend_option(tmp_path_factory):
    """The option of a server that has held models."""
    return f"--backend-directory={build_backend(tmp_path_factory.mktemp('backends'))}"


@pytest.fixture(scope="session")
def every_gate(tmp_path_factory):
    return Gate(tmp_path_factory.mktemp("gate"))


@pytest.fixture
def gate(every_gate):
    """The gate of all held models. Whatever a test leaves held is released."""
    yield every_gate
    every_gate.release_all()


@pytest.fixture(scope="session")
def repository(tmp_path_factory, every_gate):
    """A folder with every model."""
    return models.write_all(tmp_path_factory.mktemp("models"), every_gate)


@pytest.fixture(scope="session")
def server(repository, tmp_path_factory, backend_option):
    """One server with every model for all tests that leave it as it is."""
    with Server(tmp_path_factory.mktemp("server"), repository, backend_option) as server:
        yield server.wait_until_ready()


@pytest.fixture(scope="session")
def ensemble_server(tmp_path_factory, every_gate):
    """One server with every ensemble for all tests that leave it as it is."""
    repository = ensembles.write_all(tmp_path_factory.mktemp("ensembles"), every_gate)
    backends = f"--backend-directory={ensembles.build_backends(tmp_path_factory.mktemp('plugins'))}"
    with Server(tmp_path_factory.mktemp("server"), repository, backends) as server:
        yield server.wait_until_ready()


@pytest.fixture
def empty(tmp_path):
    """A repository of one's own without models."""
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def repository_folder(empty):
    """A repository of one's own with the model `add_sub`."""
    models.add_sub(empty)
    return empty


@pytest.fixture
def start(tmp_path):
    """Starts servers of one's own. They run when they are returned, and must end in order after the test."""
    with contextlib.ExitStack() as servers:
        yield lambda *arguments, **named: servers.enter_context(Server(tmp_path, *arguments, **named))


@pytest.fixture(scope="session", params=python_backends.BOTH)
def python_backend(request):
    """Each backend that runs models in Python."""
    return request.param


@pytest.fixture
def start_python(start, python_backend):
    """Starts servers of one's own that run models in Python."""

    def start_with_backend(repository, *options):
        return start(repository, *python_backend.options, *options, variables=python_backend.variables)

    return start_with_backend


@pytest.fixture(scope="session")
def python_server(tmp_path_factory, python_backend):
    """One server with every model in Python for all tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("python")
    repository = plugins.write_all(folder / "models")
    with Server(folder, repository, *python_backend.options, variables=python_backend.variables) as server:
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
