"""Models of OpenVINO in service: many instances, batches, sequences, warm-up, reloads, ensembles, memory."""

import ensembles
import numpy as np
import pytest
import repository as models
import xgboost
from adders import refusal
from protocols import GRPC, HTTP
from test_openvino import FILES, needs_library

pytestmark = pytest.mark.usefixtures("library")

EXPLICIT = ("--model-control-mode=explicit", "--load-model=*")
COLUMNS = 4


@pytest.fixture(scope="module")
def library():
    needs_library()


def write(repository, name, graph, config):
    """Adds a model that OpenVINO reads from a file of ONNX."""
    folder = models.write(repository, name, graph)
    (folder / "config.pbtxt").write_text(f'backend: "openvino"\n{config}')


def scale(factor):
    text = f"scale (float[n, {COLUMNS}] X) => (float[n, {COLUMNS}] Y) {{ Y = Mul(X, factor) }}"
    return models.graph(text, factor=np.array(factor, np.float32))


def rows(first, count):
    return np.arange(first, first + count * COLUMNS, dtype=np.float32).reshape(count, COLUMNS)


def scaled(protocol, client, given, model="scale"):
    return client.infer(model, [protocol.input("X", given)]).as_numpy("Y")


EIGHT = """max_batch_size: 16
instance_group { count: 8 kind: KIND_CPU }
dynamic_batching { max_queue_delay_microseconds: 2000 }
"""


def test_clients_of_eight_instances_get_their_own_rows_while_the_model_is_loaded_again(start, empty, threads):
    write(empty, "scale", scale(2), EIGHT)
    server = start(empty, *EXPLICIT).wait_until_ready()

    def run(number):
        protocol = (HTTP, GRPC)[number % 2]
        given = rows(number, 1 + number % 3)
        with protocol.connect(server) as client:
            for turn in range(20):
                if (number, turn) == (0, 10):
                    write(empty, "scale", scale(3), EIGHT)
                    client.load_model("scale")
                answer = scaled(protocol, client, given)
                assert any(np.array_equal(answer, factor * given) for factor in (2, 3))

    list(threads.map(run, range(16)))
    with GRPC.connect(server) as client:
        np.testing.assert_array_equal(scaled(GRPC, client, rows(5, 16)), 3 * rows(5, 16))


def test_requests_share_batches(start, empty, threads):
    write(empty, "scale", scale(2), EIGHT.replace("count: 8", "count: 1").replace("2000", "200000"))
    server = start(empty).wait_until_ready()

    def run(number):
        with GRPC.connect(server) as client:
            np.testing.assert_array_equal(scaled(GRPC, client, rows(number, 2)), 2 * rows(number, 2))

    list(threads.map(run, range(8)))
    with GRPC.connect(server) as client:
        statistics = GRPC.statistics(client, "scale")
    assert statistics["inference_count"] == 16 and statistics["execution_count"] < 8


SEQUENCES = """max_batch_size: 4
sequence_batching {
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }
  state { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: 1 }
}
"""


def test_a_sequence_has_its_state_and_controls(start, empty, protocol):
    """The answer is the sum so far, and 100 more at the start."""
    text = """sums (float[n, 1] X, float[n, 1] START, float[n, 1] S) => (float[n, 1] Y, float[n, 1] T) {
        T = Add(X, S) Bonus = Mul(START, hundred) Y = Add(T, Bonus) }"""
    graph = models.graph(text, hundred=np.array(100, np.float32))
    tensors = models.tensor("input", "X", "FP32", 1) + models.tensor("output", "Y", "FP32", 1)
    write(empty, "sums", graph, SEQUENCES + tensors)
    server = start(empty).wait_until_ready()
    with protocol.connect(server) as client:
        for step, expected in enumerate((101, 3, 6)):
            for sequence, sign in ((7, 1), (8, -1)):
                options = {"sequence_id": sequence, "sequence_start": step == 0, "sequence_end": step == 2}
                given = [protocol.input("X", np.float32([[sign * (step + 1)]]))]
                answer = client.infer("sums", given, **options).as_numpy("Y").item()
                assert answer == (expected if sign > 0 else {0: 99, 1: -3, 2: -6}[step])


def test_an_input_of_strings_is_taken_and_an_output_of_strings_is_refused_by_name(start, empty):
    """`unchanged` returns its two inputs, one of strings, which OpenVINO's C interface cannot read."""
    graph = (FILES / "unchanged.xml").read_text()
    output = graph[graph.index('<layer id="3"') : graph.index("</layers>")]
    edge = '<edge from-layer="1" from-port="0" to-layer="3" to-port="0" />'
    for name, text in (("outputs", graph), ("inputs", graph.replace(output, "").replace(edge, ""))):
        (empty / name / "1").mkdir(parents=True)
        (empty / name / "1/model.xml").write_text(text)
        (empty / name / "config.pbtxt").write_text('backend: "openvino"\nmax_batch_size: 0\n')
    with GRPC.connect(start(empty, *EXPLICIT[:1])) as client:
        client.load_model("inputs")
        numbers = rows(0, 3).reshape(4, 3)
        inputs = [GRPC.input("x_out", numbers), GRPC.input("s_out", np.array(["one", "", "zwölf"], object))]
        np.testing.assert_array_equal(client.infer("inputs", inputs).as_numpy("x_out"), numbers)
        _, text = refusal(client.load_model, "outputs")
        assert "'s_out'" in text and "OpenVINO's C interface cannot read strings" in text


def test_a_model_is_warmed_with_its_batch_sizes_and_tells_its_memory(start, empty):
    sample = 'inputs { key: "X" value { data_type: TYPE_FP32 dims: 4 zero_data: true } }'
    warm = "".join(f'model_warmup {{ name: "{size}" batch_size: {size} {sample} }}\n' for size in (1, 3, 16))
    write(empty, "scale", scale(2), EIGHT.replace("count: 8", "count: 2") + warm)
    server = start(empty, "--log-verbose=1").wait_until_ready()
    with HTTP.connect(server) as client:
        np.testing.assert_array_equal(scaled(HTTP, client, rows(1, 3)), 2 * rows(1, 3))
        [memory] = HTTP.statistics(client, "scale")["memory_usage"]
    # The graph, and a compiled model for each instance.
    assert memory["byte_size"] == 3 * (empty / "scale/1/model.onnx").stat().st_size


PROBABILITIES = """backend: "fil"
max_batch_size: 16
parameters { key: "is_classifier" value { string_value: "true" } }
parameters { key: "predict_proba" value { string_value: "true" } }
"""


def test_an_ensemble_has_steps_of_three_frameworks(start, empty):
    """A forest's probabilities go through OpenVINO and then ONNX Runtime."""
    forest = xgboost.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1).fit(rows(0, 60), np.arange(60) % 3)
    (empty / "forest/1").mkdir(parents=True)
    forest.save_model(empty / "forest/1/xgboost.json")
    tensors = models.tensor("input", "input__0", "FP32", COLUMNS) + models.tensor("output", "output__0", "FP32", 3)
    (empty / "forest/config.pbtxt").write_text(PROBABILITIES + tensors)
    write(empty, "double", models.graph("d (float[n, 3] X) => (float[n, 3] Y) { Y = Add(X, X) }"), "max_batch_size: 16\n")
    models.write(empty, "negative", models.graph("n (float[n, 3] X) => (float[n, 3] Y) { Y = Neg(X) }"))
    tensors = models.tensor("input", "X", "FP32", COLUMNS) + models.tensor("output", "Y", "FP32", 3)
    ensembles.write(
        empty,
        "all",
        f"max_batch_size: 16\n{tensors}",
        ensembles.step("forest", {"input__0": "X"}, {"output__0": "a"}),
        ensembles.step("double", {"X": "a"}, {"Y": "b"}),
        ensembles.step("negative", {"X": "b"}, {"Y": "Y"}),
    )
    server = start(empty).wait_until_ready()
    with GRPC.connect(server) as client:
        given = rows(3, 5)
        np.testing.assert_allclose(scaled(GRPC, client, given, "all"), -2 * forest.predict_proba(given), rtol=1e-6)
