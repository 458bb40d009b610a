"""The examples of Triton's Python backend, unchanged: their models, their configurations, and their clients.

No package has them. So NEREID_TEST_PYTHON_EXAMPLES names the folder `examples` of a copy of the repository
`triton-inference-server/python_backend`. `test_python_examples.py` has models that do the same, and needs no copy.
Models and clients import NumPy, JAX, PyTorch and torchvision, which NEREID_TEST_EXAMPLES_PYTHON has.
"""

import contextlib
import os
import pathlib
import shutil
import sysconfig

import numpy as np
import processes
import programs
import pytest
import python_backends
import repository as models
from protocols import HTTP
from serving import Server
from test_pictures import plain

pytestmark = pytest.mark.examples

CLIENT = pathlib.Path(__file__).parent / "example_client.py"

# Model: its folder, and how the names of its files begin. The pages of the examples copy the files so.
SERVED = {
    "add_sub": ("add_sub", ""),
    "pytorch": ("pytorch", ""),
    "jax": ("jax", ""),
    "bls_sync": ("bls", "sync_"),
    "bls_async": ("bls", "async_"),
    "repeat_int32": ("decoupled", "repeat_"),
    "square_int32": ("decoupled", "square_"),
    "bls_decoupled_sync": ("bls_decoupled", "sync_"),
    "bls_decoupled_async": ("bls_decoupled", "async_"),
    "nobatch_auto_complete": ("auto_complete", "nobatch_"),
    "batch_auto_complete": ("auto_complete", "batch_"),
    "custom_metrics": ("custom_metrics", ""),
    "resnet50": ("instance_kind", ""),
    "preprocess": ("preprocessing", ""),
}
# The models of each client. It says at its end that it has passed.
CLIENTS = {
    "add_sub/client.py": ["add_sub"],
    "pytorch/client.py": ["pytorch"],
    "jax/client.py": ["jax"],
    "bls/sync_client.py": ["add_sub", "pytorch", "bls_sync"],
    "bls/async_client.py": ["add_sub", "pytorch", "bls_async"],
    "decoupled/repeat_client.py": ["repeat_int32"],
    "decoupled/square_client.py": ["square_int32"],
    "bls_decoupled/sync_client.py": ["square_int32", "bls_decoupled_sync"],
    "bls_decoupled/async_client.py": ["square_int32", "bls_decoupled_async"],
    "auto_complete/client.py": ["nobatch_auto_complete", "batch_auto_complete"],
    "custom_metrics/client.py": ["custom_metrics"],
}
# They ask about pictures.
PREPROCESSING, INSTANCE_KIND = "preprocessing/client.py", "instance_kind/client.py"

# Where PyTorch finds what it has downloaded before: the weights of ResNet50, which are random here, and a script of GitHub.
WEIGHTS = "hub/checkpoints/resnet50-11ad3fa6.pth"
SCRIPT = "hub/NVIDIA_DeepLearningExamples_torchhub/hubconf.py"
MAKE_WEIGHTS = """
import sys, torch, torchvision
torch.manual_seed(1)
network = torchvision.models.resnet50().eval()
torch.save(network.state_dict(), sys.argv[1])
with torch.no_grad():
    print(*network(torch.ones(2, 3, 224, 224))[0].tolist())
"""
# The script of GitHub also cuts and normalizes pictures.
PREPARE = """
from PIL import Image
from torchvision.transforms.functional import to_tensor

class nvidia_convnets_processing_utils:
    def prepare_input_from_uri(self, uri):
        return to_tensor(Image.open(uri)).unsqueeze(0)
"""


@pytest.fixture(scope="module")
def examples():
    return programs.of_no_package("NEREID_TEST_PYTHON_EXAMPLES")


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    """The environment in which Python has the packages of the examples, and what they have downloaded."""
    folder = programs.of_no_package("NEREID_TEST_EXAMPLES_PYTHON")
    libraries = [sysconfig.get_config_var("LIBDIR"), folder / "torch/usr/lib"]
    for places in ("lib/*-linux-gnu", "usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/blas", "usr/lib/*-linux-gnu/lapack"):
        libraries += (folder / "torch").glob(places)
    downloaded = tmp_path_factory.mktemp("downloaded")
    (downloaded / WEIGHTS).parent.mkdir(parents=True)
    (downloaded / SCRIPT).parent.mkdir()
    (downloaded / SCRIPT).write_text(PREPARE)
    yield {
        "PATH": os.pathsep.join([str(folder / "venv/bin"), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        "TORCH_HOME": str(downloaded),
    }
    shutil.rmtree(downloaded)


def python(variables, *arguments):
    """Runs a program in the Python of the examples, and returns what it says."""
    line = [shutil.which("python3", path=variables["PATH"]), *arguments]
    return processes.run(line, env=os.environ | variables, check=True).stdout


@pytest.fixture(scope="module")
def answer(variables):
    """What a network with new weights answers to a white picture."""
    weights = pathlib.Path(variables["TORCH_HOME"], WEIGHTS)
    return np.array(python(variables, "-c", MAKE_WEIGHTS, weights).split(), np.float32)


@pytest.fixture(scope="module", params=python_backends.BOTH)
def server(request, tmp_path_factory, examples, variables):
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(examples / "preprocessing/model_repository", folder, dirs_exist_ok=True)
    for name, (example, beginning) in SERVED.items():
        (folder / name / "1").mkdir(parents=True)
        shutil.copy(examples / example / f"{beginning}model.py", folder / name / "1/model.py")
        config = examples / example / f"{beginning}config.pbtxt"
        # Models that complete their configuration have none.
        if config.exists():
            shutil.copy(config, folder / name / "config.pbtxt")
    (folder / "ensemble_python_resnet50/1").mkdir()
    # A plan of TensorRT needs a GPU. This graph has the same ends, and tells the strongest colour.
    network = """resnet50 (float[batch, 3, height, width] input) => (float[batch, 1000] output) {
        means = ReduceMean<axes=[2, 3], keepdims=0>(input)
        output = MatMul(means, classes) }"""
    ends = models.tensor("input", "input", "FP32", 3, -1, -1)
    ends += models.tensor("output", "output", "FP32", 1000, more='label_filename: "labels.txt"')
    graph = models.graph(network, classes=np.eye(3, 1000, dtype=np.float32))
    models.write(folder, "resnet50_trt", graph, f"max_batch_size: 256\n{ends}")
    backend = request.param
    options = ["--model-control-mode=explicit", *backend.options]
    with Server(tmp_path_factory.mktemp("server"), folder, *options, variables=backend.variables | variables) as server:
        yield server.wait_until_ready()


@contextlib.contextmanager
def loaded(server, *names):
    """Models that are loaded meanwhile: each takes the memory of its packages."""
    with HTTP.connect(server) as client, contextlib.ExitStack() as unloading:
        for name in names:
            client.load_model(name)
            unloading.callback(client.unload_model, name)
        yield client


@pytest.fixture
def run(server, examples, variables):
    """Runs a client of the examples, and returns what it says."""
    addresses = [f"localhost:{server.http_port}", f"localhost:{server.grpc_port}", server.metrics]
    return lambda client, *arguments: python(variables, CLIENT, *addresses, examples / client, *arguments)


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_pass(server, run, client):
    with loaded(server, *CLIENTS[client]):
        assert "\nPASS: " in run(client)


@pytest.mark.parametrize(
    "label, colour", {"TENCH": (250, 20, 10), "GOLDFISH": (20, 250, 10), "WHITE SHARK": (20, 10, 250)}.items()
)
def test_pictures_are_prepared_for_a_network(server, run, examples, tmp_path, label, colour):
    (tmp_path / "picture.png").write_bytes(plain(*colour))
    labels = examples / "preprocessing/model_repository/resnet50_trt/labels.txt"
    arguments = ["--image", tmp_path / "picture.png", "--url", "localhost:8001", "--label_file", labels]
    with loaded(server, "preprocess", "resnet50_trt", "ensemble_python_resnet50"):
        assert f"Result is class: {label}\n" in run(PREPROCESSING, *arguments)


def test_a_network_runs_where_its_instance_is(server, run, examples, tmp_path, answer):
    (tmp_path / "white.png").write_bytes(plain(255, 255, 255, height=224, width=224))
    labels = examples / "instance_kind/resnet50_labels.txt"
    arguments = ["--image_url", tmp_path / "white.png", "--label_file", labels]
    with loaded(server, "resnet50") as client:
        said = run(INSTANCE_KIND, *arguments)
        ones = np.ones((2, 3, 224, 224), np.float32)
        answers = client.infer("resnet50", [HTTP.input("INPUT", ones)]).as_numpy("OUTPUT")
    assert f"Results is class: {labels.read_text().splitlines()[answer.argmax()].strip()}\nPASS: " in said
    np.testing.assert_allclose(answers, [answer] * 2, rtol=1e-3, atol=1e-4)


def test_no_example_is_left_out(examples):
    clients = {str(file.relative_to(examples)) for file in examples.rglob("*client.py")}
    assert clients == {*CLIENTS, PREPROCESSING, INSTANCE_KIND}
    models_of = {str(file.relative_to(examples)) for file in examples.rglob("*model.py")}
    assert models_of == {f"{example}/{beginning}model.py" for example, beginning in SERVED.values()}
