"""Models that a setting leaves to Triton's library, or to the built-in backend of the same name.

The library is the test plug-in `holding` under the name of the backend: its answers tell that it has made them.
"""

import json
import shutil

import processes
import pytest
from adders import CONFIG, EXPLICIT, answer, refusal
from held import build_backend
from protocols import HTTP
from serving import BINARY, environment

ACCELERATOR = 'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }'
# What names the backend in a configuration, and the backend.
CHOICES = {
    "onnxruntime": ('backend: "onnxruntime"', "onnxruntime"),
    "accelerated": (f'backend: "onnxruntime" {ACCELERATOR}', "onnxruntime"),
    "openvino": ('backend: "openvino"', "openvino"),
    "pytorch": ('backend: "pytorch"', "pytorch"),
    "libtorch": ('platform: "pytorch_libtorch"', "pytorch"),
    "savedmodel": ('platform: "tensorflow_savedmodel"', "tensorflow"),
    "forest": ('backend: "fil"', "fil"),
    "image": ('backend: "image"', "image"),
}


@pytest.fixture(params=CHOICES)
def backend(request, empty):
    """The backend of the model `m`, which has no files."""
    config, name = CHOICES[request.param]
    (empty / "m/1").mkdir(parents=True)
    (empty / "m/config.pbtxt").write_text(f"{config}\n{CONFIG}")
    return name


def checked(repository, *options):
    """What a check says of the model."""
    ended = processes.run([BINARY, "check", "--format=json", *options, repository], env=environment())
    return [finding["message"] for finding in json.loads(ended.stdout)["findings"]]


def test_a_missing_library_is_told_alike_for_all_backends(start, empty, backend):
    chosen = f"--backend-config={backend},implementation=triton"
    text = f"unable to find backend library for backend '{backend}', try specifying runtime on the model configuration."
    assert any(text in message for message in checked(empty, chosen))
    shown = processes.run([BINARY, "config", "show", chosen, empty / "m"], env=environment())
    assert shown.returncode == 1 and text in shown.stdout + shown.stderr
    with HTTP.connect(start(empty, EXPLICIT, chosen)) as client:
        _, refused = refusal(client.load_model, "m")
        assert text in refused


def test_the_library_runs_the_model_and_the_built_in_backend_if_the_setting_says_so(start, empty, backend, tmp_path):
    built = build_backend(tmp_path / "built", "holding", "-DBUILD=3")
    library = tmp_path / "backends" / backend / f"libtriton_{backend}.so"
    library.parent.mkdir(parents=True)
    shutil.copy(built / "holding/libtriton_holding.so", library)
    options = (f"--backend-directory={library.parent.parent}", f"--backend-config={backend},implementation=")
    assert checked(empty, options[0], options[1] + "triton") == []
    with HTTP.connect(start(empty, EXPLICIT, options[0], options[1] + "triton")) as client:
        client.load_model("m")
        assert answer(HTTP, client, "m") == 3
    with HTTP.connect(start(empty, EXPLICIT, options[0], options[1] + "built-in")) as client:
        # The library would serve a model without files, which no built-in backend does.
        refusal(client.load_model, "m")
