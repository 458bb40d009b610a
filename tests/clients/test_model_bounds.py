"""Values of a configuration that ask for more than a machine has: they cost their own model, and never the server."""


import processes
import pytest
from protocols import HTTP
from repository import graph, write
from serving import BINARY, Server, environment

TENSORS = """max_batch_size: 2147483647
input { name: "X" data_type: TYPE_FP32 dims: -1 }
output { name: "Y" data_type: TYPE_FP32 dims: -1 }
"""
# Below what the server may have itself, and above what the machine has free for it.
ADDRESSES = 16_000_000_000


def warm_up(dims, rows=1, data="zero_data"):
    tensor = f'inputs {{ key: "X" value {{ data_type: TYPE_FP32 dims: {dims} {data}: true }} }}'
    return f'model_warmup {{ name: "w" batch_size: {rows} {tensor} }}'


CASES = {
    "warmup_huge": (warm_up(99_999_999_999), "warmup sample 'w' of model 'warmup_huge' takes"),
    "warmup_random": (warm_up(99_999_999_999, data="random_data"), "warmup sample 'w' of model 'warmup_random' takes"),
    "warmup_above_limit": (warm_up(5_000_000_000), "warmup sample 'w' of model 'warmup_above_limit' takes"),
    "warmup_rows": (warm_up(1, rows=2_147_483_647), "warmup sample 'w' of model 'warmup_rows' takes"),
    "state": (
        'sequence_batching { state { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: 99999999999 } }',
        "the implicit state of a sequence of model 'state' takes",
    ),
    "instances": ("instance_group { count: 2147483647 }", "has 2147483647 instances, more than the 1024"),
    "instances_3000": ("instance_group { count: 3000 }", "has 3000 instances, more than the 1024"),
}


@pytest.fixture
def models(tmp_path):
    copy = graph("copy (float[N, M] X) => (float[N, M] Y) { Y = Identity(X) }")
    stateful = graph("copy (float[N, M] X, float[N, L] S) => (float[N, M] Y, float[N, L] T) { Y = Identity(X) T = Identity(S) }")
    folder = tmp_path / "models"
    write(folder, "good", copy, TENSORS)
    for name, (more, _) in CASES.items():
        write(folder, name, stateful if name == "state" else copy, TENSORS + more)
    return folder


def test_a_server_with_little_memory_refuses_such_models_and_serves_the_others(tmp_path, models):
    server = Server(tmp_path, models, "--exit-on-error=false")
    server._line = ["prlimit", f"--as={ADDRESSES}", *server._line]
    with server, HTTP.connect(server) as http:
        index = {entry["name"]: entry for entry in http.get_model_repository_index()}
        assert index.pop("good")["state"] == "READY"
        for name, (_, reason) in CASES.items():
            assert index[name]["state"] == "UNAVAILABLE" and reason in index[name]["reason"], index[name]


def test_a_check_with_little_memory_refuses_such_models(models):
    line = ["prlimit", f"--as={ADDRESSES}", BINARY, "check", models]
    checked = processes.run(line, env=environment())
    assert checked.returncode == 1, checked.stderr
    assert f"{len(CASES) + 1} models checked: {len(CASES)} errors" in checked.stdout, checked.stdout
    for _, text in CASES.values():
        assert text in checked.stdout, checked.stdout
