"""The parts of the comparison with Triton that need no server: cases, how they become small, answers, and explanations."""

import re
import sys

import pytest
from serving import ROOT

sys.path.append(str(ROOT / "tests"))

from differential import choices, documents, explanations  # noqa: E402
from differential.answers import Answer, Difference, differences, flat  # noqa: E402
from differential.areas import calls, commands, configurations, grpc_inference, inference, scheduling  # noqa: E402
from differential.comparison import Comparison, compared, kind  # noqa: E402
from differential.exchange import read  # noqa: E402

AREAS = {"inference": inference, "grpc": grpc_inference, "calls": calls, "config": configurations, "commands": commands}
AREAS["scheduling"] = scheduling


def case(area, number, seed=1):
    return str(AREAS[area].draw(choices.of_case(seed, area, number)))


@pytest.mark.parametrize("area", AREAS)
def test_a_case_follows_from_its_seed_and_number(area):
    cases = [case(area, number) for number in range(100)]
    assert cases == [case(area, number) for number in range(100)]
    assert len(set(cases)) > 50
    assert cases != [case(area, number, seed=2) for number in range(100)]


@pytest.mark.parametrize("area", AREAS)
def test_a_case_is_repeated_by_its_numbers(area):
    for number in range(50):
        drawn = choices.of_case(1, area, number)
        whole = str(AREAS[area].draw(drawn))
        assert str(AREAS[area].draw(choices.Choices(drawn.numbers))) == whole
        # What has no number left is drawn as the plainest.
        assert AREAS[area].draw(choices.Choices(drawn.numbers[: len(drawn.numbers) // 2])) is not None


@pytest.mark.parametrize("area", ["inference", "grpc"])
def test_the_plainest_case_has_no_mutation(area):
    assert re.findall("mutations: (.*)", str(AREAS[area].draw(choices.Choices([])))) == [""]


def test_all_mutations_are_drawn():
    text = "\n".join(case("inference", number) + case("grpc", number) for number in range(1000))
    wanted = {mutation.__name__ for area in (inference, grpc_inference) for mutation in area.MUTATIONS}
    assert wanted <= set(re.findall(r"\w+", "\n".join(re.findall("mutations: (.*)", text))))


def drawn_list(numbers):
    """Up to ten numbers below a hundred, as a case draws them; and the numbers that were used."""
    source = choices.Choices(numbers)
    return [source.below(100) for _ in source.several(0, 10)], source.numbers


def test_the_smallest_numbers_that_fail_are_found():
    asked = []

    def fails(numbers):
        found, used = drawn_list(numbers)
        asked.append(numbers)
        return used if sum(element > 41 for element in found) >= 2 else None

    found = choices.smallest([1, 3, 1, 99, 2, 12, 1, 57, 1, 8, 2, 41, 1, 77, 1, 2], fails, 1000)
    assert drawn_list(found)[0] == [42, 42]
    assert len(asked) < 500


def test_the_search_ends_with_its_tries():
    asked = []
    numbers = list(range(50))
    assert choices.smallest(numbers, asked.append, 30) == numbers
    assert len(asked) == 30


def test_fields_are_compared_where_the_outcomes_agree():
    triton = [Answer("200", fields={"a": 1, "b": 2}), Answer("400", "no")]
    nereid = [Answer("200", fields={"a": 1, "c": 3}), Answer("404", "none")]
    assert differences(triton, nereid) == [
        Difference("0: b", "2", "(none)"),
        Difference("0: c", "(none)", "3"),
        Difference("1: code", "400 no", "404 none"),
    ]
    garbled, better = (Answer("400", text, fields={"a": text}) for text in ("no", "no, but yes"))
    assert [one.field for one in differences([garbled], [better])] == ["text", "a"]
    assert [one.field for one in differences([better], [garbled])] == ["text"]


def test_what_follows_another_outcome_is_compared_if_as_many_answers_follow():
    response, other, end = Answer("response", fields={"a": 1}), Answer("response", fields={"a": 2}), Answer("OK")
    refused, explained = Answer("error", "no"), Answer("error", "no: because")
    assert [one.field for one in differences([response, response, end], [refused, end])] == ["0: code"]
    assert [one.field for one in differences([refused, response, end], [Answer("error", "never"), end])] == ["0: text"]
    assert [one.field for one in differences([response, response], [refused, other])] == ["0: code", "1: a"]
    assert [one.field for one in differences([refused, response, end], [explained, response])] == ["answers", "0: text"]
    assert compared(([Answer("died")], [Answer("200")])) == []
    assert compared(([Answer("200")], [Answer("died")])) != []


def test_the_number_of_answers_is_told_unless_it_follows_from_another_outcome():
    response, end = Answer("response"), Answer("OK")
    assert differences([response], [response, response]) == [Difference("answers", "1", "2")]
    assert differences([response, end], [response, response, end]) == [Difference("1: code", "OK", "response")]
    refused = Answer("INVALID_ARGUMENT", "no")
    assert differences([refused], [response, end]) == [Difference("0: code", "INVALID_ARGUMENT no", "response")]


def test_an_answer_has_its_outputs_by_their_names():
    body = b'{"model_name":"m","outputs":[{"name":"A","parameters":{"binary_data_size":2}},{"name":"B","data":[1.5]}]}'
    headers = [("Inference-Header-Content-Length", str(len(body))), ("X", "y")]
    fields = read(200, headers, body + b"\x01\x02").fields
    assert fields["json outputs"] == "A B"
    assert (fields["json.A data"], fields["json.B.data[0]"], fields["header x"]) == ("0102", 1.5, "y")
    assert read(400, [], b'{"error":"why"}').outcome == "400 why"
    assert flat({"a": [{"b": 1}, {}], "c": []}) == {"a[0].b": 1, "a[1]": {}, "c": []}


def test_mutations_of_documents_keep_them_documents():
    for seed in range(300):
        source = choices.of_case(seed, "documents", 0)
        document = {"a": [1, {"b": "x"}], "c": None}
        source.one_of(documents.TREE)(document, source)
        assert isinstance(document, dict)
        assert isinstance(documents.damage('{"a": 1}', source), str)


PATTERNS = """
[[row]]
section = "HTTP"
what = "names"
[[row.pattern]]
areas = ["calls"]
field = 'text'
triton = 'no (?P<name>\\w+)'
nereid = '{triton}, did you mean {name}s\\?'
case = 'GET'
[[row.pattern]]
field = 'json.*'
same = "single"
[[row]]
section = "HTTP"
what = "cats"
[[row.pattern]]
field = 'code'
triton = '(200|400 x)'
nereid = '404 .*'
"""


@pytest.fixture
def known(tmp_path):
    (tmp_path / "explanations.toml").write_text(PATTERNS)
    return explanations.Explanations(explanations.load(tmp_path / "explanations.toml"))


@pytest.mark.parametrize(
    "area, field, triton, nereid, case_, explained",
    [
        ("calls", "text", "no cat", "no cat, did you mean cats?", "GET", True),
        ("calls", "3: text", "no cat", "no cat, did you mean cats?", "GET", True),
        ("grpc", "text", "no cat", "no cat, did you mean cats?", "GET", False),
        ("calls", "code", "no cat", "no cat, did you mean cats?", "GET", False),
        ("calls", "text", "no cat", "no dog, did you mean cats?", "GET", False),
        ("calls", "text", "no cat", "no cat, did you mean cats?", "POST", False),
        ("grpc", "json.a", "0.10000000149011612", "0.1", "", True),
        ("grpc", "json.a", "0.1", "0.10000000149011612", "", False),
        ("grpc", "json.a", "0.2", "0.1", "", False),
    ],
)
def test_a_pattern_explains_what_it_says(known, area, field, triton, nereid, case_, explained):
    difference = Difference(field, triton, nereid)
    assert known.unexplained(area, [difference], case_) == ([] if explained else [difference])


def test_what_follows_from_an_explained_step_is_not_told(known):
    step = Difference("1: code", "200", "404 no cat, did you mean cats?")
    before, same, after = (Difference(f"{number}: text", "1", "2") for number in (0, 1, 2))
    assert known.unexplained("calls", [before, step, same, after], "") == [before, same]
    refused = Difference("1: code", "400 x", "404 x")
    assert known.unexplained("calls", [before, refused, after], "") == [before, after]


def test_patterns_that_explain_nothing_are_known(known):
    known.unexplained("calls", [Difference("json", "0.10000000149011612", "0.1")], "")
    assert [str(pattern) for pattern in known.unneeded(["calls", "grpc"])] == ["HTTP: names (pattern 1)", "HTTP: cats (pattern 1)"]
    known.unexplained("grpc", [Difference("code", "200", "404 none")], "")
    assert known.unneeded(["grpc"]) == []


def test_the_explanations_can_be_read():
    loaded = explanations.load()
    assert len(loaded) > 20
    for pattern in loaded:
        assert set(pattern.areas) <= set(AREAS)
        for text in (pattern.field, pattern.triton, pattern.case, re.sub(r"\{\w+\}", "x", pattern.nereid)):
            re.compile(text)
        assert not pattern.same or pattern.same in explanations.SAME


def test_differences_of_the_same_kind_are_told_once():
    one = Difference("0: json.a[1]", "input 'A' has 3", "input 'A' has -1.5e3")
    other = Difference("2: json.a[7]", "input 'B' has 4", "input 'B' has 2")
    assert kind(one) == kind(other)


class UnsteadyArea:
    """Nereid's answers are as told."""

    name = "scheduling"
    most_tries = 5
    must_come_again = 2

    def __init__(self, *told):
        self._told = list(told)

    def draw(self, choices):
        return f"case {choices.below(3)}"

    def ask(self, _case):
        return [Answer("OK", fields={"size": 1})], [Answer("OK", fields={"size": self._told.pop(0)})]


@pytest.mark.parametrize(("sizes", "found"), [((2, 2, 2, *[2] * 5), True), ((2, 2, 1), False), ((2, 1, 2), False), ((1,), False)])
def test_where_threads_may_decide_a_difference_must_come_again(sizes, found):
    comparison = Comparison(UnsteadyArea(*sizes), explanations.Explanations([]), seed=1)
    assert (comparison.run(0) is not None) == found
    assert comparison.passing == (not found and sizes[0] == 2)
