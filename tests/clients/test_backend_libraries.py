"""Libraries of backends that are replaced while the server runs, in both ways that Triton's documentation describes.

The test plug-in `holding` answers Y = X + the number of its build, so that each answer tells which library has made it.
"""

import contextlib
import os
import threading

import pytest
from adders import CONFIG, EXPLICIT, answer, is_unloaded
from held import build_backend
from serving import eventually

MODELS = ("a", "b")
LIBRARY = "holding/libtriton_holding.so"


@pytest.fixture
def backends(tmp_path):
    """A backend directory with the library of build 1."""
    return build_backend(tmp_path / "backends", "holding", "-DBUILD=1")


@pytest.fixture
def second(tmp_path):
    """The path of a library of build 2."""
    return build_backend(tmp_path / "second", "holding", "-DBUILD=2") / LIBRARY


@pytest.fixture
def server(start, tmp_path, backends):
    repository = tmp_path / "models"
    for name in MODELS:
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(f'backend: "holding"\n{CONFIG}')
    return start(repository, EXPLICIT, "--load-model=*", f"--backend-directory={backends}")


@contextlib.contextmanager
def asked(protocol, server):
    """Asks each model again and again. Gives the answers of each model, without repetitions."""
    answers = {name: [] for name in MODELS}
    done = threading.Event()

    def ask(name):
        with protocol.connect(server) as client:
            while not done.is_set():
                number = answer(protocol, client, name)
                if number not in answers[name][-1:]:
                    answers[name].append(number)

    failures = []

    def run(name):
        try:
            ask(name)
        except Exception as error:  # whatever it is, the test must fail
            failures.append(error)

    askers = [threading.Thread(target=run, args=(name,)) for name in MODELS]
    for asker in askers:
        asker.start()
    try:
        eventually(lambda: failures or all(answers.values()), "the first answers")
        yield answers
    finally:
        done.set()
        for asker in askers:
            asker.join()
    assert not failures, failures


def test_all_models_are_unloaded_and_the_library_replaced(protocol, client, backends, second):
    assert [answer(protocol, client, name) for name in MODELS] == [1, 1]
    for name in MODELS:
        client.unload_model(name)
    for name in MODELS:
        eventually(lambda name=name: is_unloaded(protocol, client, name), f"{name} to be unloaded")
    os.replace(second, backends / LIBRARY)
    for name in MODELS:
        client.load_model(name)
    assert [answer(protocol, client, name) for name in MODELS] == [2, 2]


def test_the_library_is_moved_aside_and_one_model_after_the_other_reloaded(protocol, server, client, backends, second):
    with asked(protocol, server) as answers:
        os.rename(backends / LIBRARY, backends / "holding/old.so")
        os.rename(second, backends / LIBRARY)
        client.load_model("a")
        assert [answer(protocol, client, name) for name in MODELS] == [2, 1]
        client.load_model("b")
        eventually(lambda: answers["b"][-1] == 2, "an answer of the new library")
    assert answers == {"a": [1, 2], "b": [1, 2]}
