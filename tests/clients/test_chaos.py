"""The parts of campaigns of random faults: histories, what excuses a failure, and that a broken promise is found."""

import itertools
import re
import sys

import pytest
from serving import ROOT

sys.path.append(str(ROOT / "tests"))

from chaos import history  # noqa: E402
from chaos.__main__ import main  # noqa: E402
from chaos.judge import Generations, Judge  # noqa: E402
from chaos.world import CONCERNED, ENSEMBLES, IN_ORDER, MODELS, with_dependents, with_members  # noqa: E402


def steps(seed, count, kinds=None):
    return list(itertools.islice(history.steps(seed, CONCERNED, kinds), count))


def test_a_seed_always_has_the_same_history():
    assert steps(7, 200) == steps(7, 200)
    assert steps(7, 200) != steps(8, 200)


def test_a_history_has_all_kinds_of_actions_and_ends_the_server_once_in_a_step():
    found = steps(3, 1000)
    assert {action.kind for step in found for action in step.actions} == set(history.WEIGHTS)
    assert max(sum(map(history.is_end, step.actions)) for step in found) == 1
    assert {action.kind for step in steps(3, 100, ["instances"]) for action in step.actions} == {"instances"}


@pytest.mark.parametrize("needed", [(0,), (99,), (3, 50), (10, 11, 12, 90)])
def test_the_smallest_history_has_the_steps_that_are_needed(needed):
    tried = []

    def fails(part):
        tried.append(part)
        return set(needed) <= {step.place for step in part}

    found = history.smallest(steps(1, 100), fails)
    assert tuple(step.place for step in found) == needed
    assert len(tried) < 100


def test_a_history_that_never_fails_again_ends_with_the_whole():
    whole = steps(1, 30)
    assert history.smallest(whole, lambda part: False) == whole
    assert history.smallest([], lambda part: True) == []


def test_only_what_was_disturbed_meanwhile_may_have_failed():
    judge = Judge()
    before = judge.now()
    with judge.disturbs({"plain", "chain"}, "unload of plain"):
        during = judge.now()
        assert judge.excuse({"chain"}, during) == "unload of plain"
    after = judge.now()
    assert judge.excuse({"plain"}, before) and judge.excuse({"plain"}, during)
    assert judge.excuse({"plain"}, after) is None and judge.excuse({"cached"}, during) is None
    judge.failed({"plain"}, during, "a request", "not found")
    assert not judge.broken
    judge.failed({"plain"}, after, "a request", "not found")
    judge.failed({"plain"}, during, "a request", "the backend dropped the request without an answer")
    assert len(judge.broken) == 2


def test_after_a_load_no_older_generation_answers():
    generations = Generations()
    first, second = generations.next(), generations.next()
    assert (generations.lowest, generations.highest) == (1, second)
    generations.loaded(second)
    generations.loaded(first)
    assert generations.lowest == second


def test_members_come_before_their_ensembles():
    for name in ENSEMBLES:
        assert all(IN_ORDER.index(member) < IN_ORDER.index(name) for member in MODELS[name].members)
    assert with_members("sum_nested") == {"sum_nested", "plain", "sum_chain", "py_plain", "sum_direct", "plug_echo"}
    assert with_dependents({"py_sum"}) == {"py_sum", "sum_python_chain"}


def test_a_model_that_answers_wrongly_is_found_with_a_history_to_find_it_again(monkeypatch, capsys):
    """Without any action it answers wrongly, too, so any single step is the smallest history."""
    monkeypatch.setattr(sys, "argv", ["chaos", "--seed=1", "--count=3", "--kinds=look", "--wrong=plain", "--shrink-seconds=60"])
    assert main() == 1
    output = capsys.readouterr().out
    assert re.search(r"- (plain|chain\w*|py_caller|sum\w+|decoupled_chain|sequence \d+ of \w+) .*instead of", output), output
