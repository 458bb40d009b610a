"""Forests of XGBoost, LightGBM and scikit-learn: the libraries make and ask them, and the server must answer alike."""

from concurrent.futures import ThreadPoolExecutor

import ensembles
import lightgbm
import numpy as np
import pytest
import repository as models
import sklearn.ensemble
import treelite.sklearn
import xgboost
from adders import refusal
from protocols import GRPC, HTTP
from serving import Server

FEATURES = 6
RANDOM = np.random.default_rng(7)
TRAINED = RANDOM.normal(size=(400, FEATURES)).astype(np.float32)
VALUE = TRAINED[:, 0] * 3 + np.where(TRAINED[:, 1] > 0.2, 5, -5) + TRAINED[:, 2] * TRAINED[:, 3]
CLASS = np.digitize(VALUE, [-4, 4])
SIDE = (VALUE > 0).astype(int)

# Rows that nobody trained with, and values that are missing or extreme. The libraries take no infinities.
ROWS = RANDOM.normal(size=(40, FEATURES)).astype(np.float32)
ROWS[0, :] = np.nan
ROWS[1, 0], ROWS[2, 1], ROWS[3, 2] = 1e30, -1e30, np.nan


def forest(folder, name, file, save, config=None):
    """Adds a model: `save` gets the path of its file. Without `config` the server finds out everything by itself."""
    version = folder / name / "1"
    version.mkdir(parents=True)
    save(str(version / file))
    if config is not None:
        (folder / name / "config.pbtxt").write_text(config)


def configuration(count, parameters=(), more=""):
    """A configuration as those of FIL are written, for an output of so many numbers."""
    given = "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in parameters)
    return (
        'backend: "fil"\nmax_batch_size: 4096\n'
        + models.tensor("input", "input__0", "FP32", FEATURES)
        + models.tensor("output", "output__0", "FP32", count)
        + more
        + given
        + "instance_group [ { count: 2 kind: KIND_AUTO } ]\ndynamic_batching {}\n"
    )


PROBABILITIES = [("is_classifier", "true"), ("predict_proba", "true")]


class Forests:
    """The models of the libraries."""

    def __init__(self):
        small = {"n_estimators": 20, "max_depth": 4, "n_jobs": 1}
        self.price = xgboost.XGBRegressor(**small).fit(TRAINED, VALUE)
        self.side = xgboost.XGBClassifier(**small).fit(TRAINED, SIDE)
        self.kind = lightgbm.LGBMClassifier(n_estimators=20, num_leaves=8, n_jobs=1, verbose=-1).fit(TRAINED, CLASS)
        self.trees = sklearn.ensemble.RandomForestClassifier(20, max_depth=6, random_state=1).fit(TRAINED, CLASS)

    def write(self, folder):
        ubjson, json = [("model_type", "xgboost_ubj")], [("model_type", "xgboost_json")]
        text, checkpoint = [("model_type", "lightgbm")], [("model_type", "treelite_checkpoint")]
        regression = [("is_classifier", "false"), ("layout", "depth_first")]
        shap = models.tensor("output", "treeshap_output", "FP32", FEATURES + 1)
        forest(folder, "price", "xgboost.ubj", self.price.save_model, configuration(1, ubjson + regression))
        forest(folder, "explained", "xgboost.json", self.price.save_model, configuration(1, json + regression, shap))
        forest(folder, "bare", "xgboost.json", self.price.save_model)
        forest(folder, "side", "xgboost.json", self.side.save_model, configuration(1, json + PROBABILITIES))
        forest(folder, "sides", "xgboost.json", self.side.save_model, configuration(2, json + PROBABILITIES))
        strict = [("is_classifier", "true"), ("threshold", "0.9")]
        forest(folder, "strict", "xgboost.json", self.side.save_model, configuration(1, json + strict))
        save = self.kind.booster_.save_model
        forest(folder, "kind", "model.txt", save, configuration(3, text + PROBABILITIES))
        forest(folder, "kind_of", "model.txt", save, configuration(1, text + [("output_class", "true")]))
        save = treelite.sklearn.import_model(self.trees).serialize
        forest(folder, "trees", "checkpoint.tl", save, configuration(3, checkpoint + PROBABILITIES))
        return folder


@pytest.fixture(scope="module")
def forests():
    return Forests()


@pytest.fixture(scope="module")
def server(tmp_path_factory, forests):
    folder = tmp_path_factory.mktemp("forests")
    (folder / "models").mkdir()
    with Server(folder, forests.write(folder / "models")) as server:
        yield server.wait_until_ready()


def ask(protocol, client, model, rows=ROWS, output="output__0"):
    wanted = [protocol.output(output)]
    return client.infer(model, [protocol.input("input__0", rows)], outputs=wanted).as_numpy(output)


def near(one, other):
    return np.allclose(one, other, rtol=1e-6, atol=1e-6)


def test_a_regression_is_that_of_the_library(protocol, client, forests):
    answer = ask(protocol, client, "price")
    assert answer.shape == (len(ROWS),), "as FIL, it leaves out dims of 1"
    assert near(answer, forests.price.predict(ROWS))


def test_a_forest_without_a_configuration_is_served(protocol, client, forests):
    assert near(ask(protocol, client, "bare"), forests.price.predict(ROWS))
    config = protocol.json(client.get_model_config, "bare")
    config = config.get("config", config)
    assert (config["backend"], config["default_model_filename"]) == ("fil", "xgboost.json")
    assert [tensor["name"] for tensor in config["input"] + config["output"]] == ["input__0", "output__0"]


def test_two_classes_are_a_probability_or_both_or_a_decision(protocol, client, forests):
    expected = forests.side.predict_proba(ROWS)
    assert near(ask(protocol, client, "side"), expected[:, 1])
    assert near(ask(protocol, client, "sides"), expected)
    assert (ask(protocol, client, "strict") == (expected[:, 1] > 0.9)).all()


def test_several_classes_are_probabilities_or_the_class(protocol, client, forests):
    expected = forests.kind.predict_proba(ROWS)
    assert near(ask(protocol, client, "kind"), expected)
    assert (ask(protocol, client, "kind_of") == expected.argmax(axis=1)).all()


def test_a_forest_of_scikit_learn_comes_through_a_checkpoint(protocol, client, forests):
    assert near(ask(protocol, client, "trees"), forests.trees.predict_proba(ROWS))


def test_shapley_values_are_those_of_the_library(protocol, client, forests):
    rows = xgboost.DMatrix(ROWS)
    expected = forests.price.get_booster().predict(rows, pred_contribs=True)
    assert np.allclose(ask(protocol, client, "explained", output="treeshap_output"), expected, atol=1e-4)


def test_requests_that_share_a_batch_get_their_own_rows(server, forests):
    expected = forests.kind.predict_proba(ROWS)

    def one(number):
        protocol = (HTTP, GRPC)[number % 2]
        first = number % 30
        with protocol.connect(server) as client:
            return near(ask(protocol, client, "kind", ROWS[first : first + 7]), expected[first : first + 7])

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(one, range(200)))


def test_a_large_batch_is_computed_by_several_threads_alike(protocol, client, forests):
    rows = np.tile(ROWS, (60, 1))
    assert near(ask(protocol, client, "price", rows), np.tile(forests.price.predict(ROWS), 60))


def test_a_row_of_another_length_is_refused(protocol, client):
    code, text = refusal(ask, protocol, client, "price", ROWS[:, :-1])
    assert code == protocol.status("INVALID_ARGUMENT")
    assert "unexpected shape for input 'input__0' for model 'price'. Expected [-1,6], got [40,5]" in text


def test_a_forest_is_reloaded_while_it_is_asked(tmp_path, forests):
    repository = tmp_path / "models"
    forest(repository, "price", "xgboost.ubj", forests.price.save_model)
    old, other = forests.price.predict(ROWS), xgboost.XGBRegressor(n_estimators=3).fit(TRAINED, VALUE)
    with Server(tmp_path, repository, "--model-control-mode=explicit", "--load-model=*") as server:
        server.wait_until_ready()

        def one(number):
            with HTTP.connect(server) as client:
                if number == 20:
                    other.save_model(repository / "price/1/xgboost.ubj")
                    client.load_model("price")
                answer = ask(HTTP, client, "price")
                return near(answer, old) or near(answer, other.predict(ROWS))

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(one, range(60)))
        with HTTP.connect(server) as client:
            assert near(ask(HTTP, client, "price"), other.predict(ROWS))


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda content: content[: len(content) // 2], "xgboost.json': "),
        (lambda content: content.replace(b'"split_indices":[', b'"split_indices":[999999,', 1), "xgboost.json': "),
    ],
    ids=["cut", "a feature that is not there"],
)
def test_a_damaged_file_is_refused_with_its_name_and_the_rule(tmp_path, forests, damage, rule):
    repository = tmp_path / "models"
    forest(repository, "price", "xgboost.json", forests.price.save_model)
    file = repository / "price/1/xgboost.json"
    file.write_bytes(damage(file.read_bytes()))
    with Server(tmp_path, repository, "--exit-on-error=false") as server, HTTP.connect(server) as client:
        (entry,) = client.get_model_repository_index()
        assert entry["state"] == "UNAVAILABLE"
        assert "unable to read '" in entry["reason"] and rule in entry["reason"]


def test_a_configuration_that_contradicts_the_forest_is_refused(tmp_path, forests):
    repository = tmp_path / "models"
    forest(repository, "price", "xgboost.json", forests.price.save_model, configuration(2))
    with Server(tmp_path, repository, "--exit-on-error=false") as server, HTTP.connect(server) as client:
        (entry,) = client.get_model_repository_index()
        assert entry["reason"].endswith("gives 1 numbers for a row, but the dims of output 'output__0' are [2]")


def test_a_forest_is_a_step_of_an_ensemble(tmp_path, forests):
    """A graph of ONNX Runtime makes the row of a forest."""
    repository = tmp_path / "models"
    forest(repository, "kind", "model.txt", forests.kind.booster_.save_model, configuration(3, PROBABILITIES))
    graph = models.graph(f"scale (float[n, {FEATURES}] X) => (float[n, {FEATURES}] Y) {{ Y = Add(X, X) }}")
    models.write(repository, "scale", graph)
    tensors = models.tensor("input", "X", "FP32", FEATURES) + models.tensor("output", "P", "FP32", 3)
    ensembles.write(
        repository,
        "both",
        f"max_batch_size: 4\n{tensors}",
        ensembles.step("scale", {"X": "X"}, {"Y": "row"}),
        ensembles.step("kind", {"input__0": "row"}, {"output__0": "P"}),
    )
    with Server(tmp_path, repository) as server, GRPC.connect(server) as client:
        server.wait_until_ready()
        answer = client.infer("both", [GRPC.input("X", ROWS[4:8])]).as_numpy("P")
        assert near(answer, forests.kind.predict_proba(ROWS[4:8] + ROWS[4:8]))
