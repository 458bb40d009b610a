"""Ensembles: what flows between members. Each answer equals, to the last bit, what a client gets that asks the members."""

import json

import numpy as np
import pytest
import requests
from ensembles import Executed, Stream, ask, infer, outputs_of, parameters_of
from protocols import GRPC, HTTP
from serving import PATIENCE, size
from tritonclient.utils import InferenceServerException

FOURS = np.array([[0.1, -0.2, 3.0, 4e-8], [1.0, 2.0, -3.0, 1e9]], np.float32)


@pytest.fixture
def client(protocol, ensemble_server):
    with protocol.connect(ensemble_server) as client:
        yield client


@pytest.fixture
def hand(protocol, client):
    """Asks a member for one of its outputs, by hand."""

    def hand(model, output="Y", **arrays):
        return infer(protocol, client, model, arrays)[output]

    return hand


@pytest.fixture
def stream(ensemble_server):
    with GRPC.connect(ensemble_server) as client, Stream(client) as stream:
        yield stream


def assert_same(answer, expected):
    """All outputs are there, and no other; all of their elements have the same bits."""
    assert set(answer) == set(expected)
    for name, array in expected.items():
        assert (answer[name].dtype, answer[name].shape) == (array.dtype, array.shape), name
        assert answer[name].tobytes() == array.tobytes(), name


def chain_by_hand(hand, x):
    return hand("scale", X=hand("shift", X=hand("scale", X=x)))


def diamond_by_hand(hand, x):
    branches = {"A": hand("scale", X=x), "B": hand("shift", X=x)}
    return {name: hand("combine", name, **branches) for name in ("SUM", "PRODUCT")}


# ---- Flows ----


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("model", ["chain", "backward_chain"])
def test_a_chain_computes_what_its_members_compute(protocol, client, hand, model, rows):
    x = FOURS[:rows]
    assert_same(infer(protocol, client, model, {"INPUT": x}), {"OUTPUT": chain_by_hand(hand, x)})


def test_a_diamond_computes_what_its_members_compute(protocol, client, hand):
    assert_same(infer(protocol, client, "diamond", {"INPUT": FOURS}), diamond_by_hand(hand, FOURS))


def test_an_ensemble_may_be_a_member(protocol, client, hand):
    middle = chain_by_hand(hand, FOURS)
    expected = {"MIDDLE": middle, **diamond_by_hand(hand, middle)}
    assert_same(infer(protocol, client, "nested", {"INPUT": FOURS}), expected)


def test_outputs_have_the_order_of_the_configuration(protocol, client):
    assert list(infer(protocol, client, "latest_first", {"INPUT": FOURS})) == ["LATE", "EARLY"]


def test_a_tensor_may_feed_two_inputs_of_a_step(protocol, client, hand):
    answer = infer(protocol, client, "square", {"INPUT": FOURS})
    assert_same(answer, {"OUTPUT": hand("combine", "PRODUCT", A=FOURS, B=FOURS)})


def test_texts_flow_unchanged(protocol, client):
    sent = np.array([b"", b"\x00\xff", "grün".encode(), b"x" * 100_000], np.object_)
    assert infer(protocol, client, "texts", {"INPUT": sent})["OUTPUT"].tolist() == sent.tolist()


def test_a_tensor_without_elements_flows(protocol, client):
    empty = np.empty(0, np.object_)
    assert infer(protocol, client, "texts", {"INPUT": empty})["OUTPUT"].shape == (0,)


def test_steps_may_be_different_versions_of_a_model(protocol, client):
    with Executed(protocol, client, "versions") as executed:
        answer = infer(protocol, client, "two_versions", {"INPUT": np.zeros((1, 1), np.float32)})
        assert {name: array.item() for name, array in answer.items()} == {"FIRST": 1, "THIRD": 3, "LATEST": 3}
        assert executed.times() == [3]


def test_a_version_whose_output_nobody_wants_is_not_executed(protocol, client):
    def count(version):
        return protocol.statistics(client, "versions", version).get("execution_count", 0)

    before = [count(version) for version in "123"]
    infer(protocol, client, "two_versions", {"INPUT": np.zeros((1, 1), np.float32)}, ["FIRST"])
    assert [count(version) - earlier for version, earlier in zip("123", before, strict=True)] == [1, 0, 0]


def test_many_requests_at_once_get_their_own_answers(protocol, ensemble_server, threads):
    def ask_some(number):
        with protocol.connect(ensemble_server) as client:
            for count in range(10):
                x = np.full((1, 4), number * 100 + count, np.float32)
                answer = infer(protocol, client, "diamond", {"INPUT": x}, ["SUM"])
                np.testing.assert_allclose(answer["SUM"], np.tanh(x * 1.7) + x + 0.1, rtol=1e-6)

    for asker in [threads.submit(ask_some, number) for number in range(12)]:
        asker.result(PATIENCE)


# ---- The documentation's example ----

IMAGE = np.array([[b"0.75"]], np.object_)


def documented_by_hand(hand):
    image = hand("image_preprocess_model", "PREPROCESSED_OUTPUT", RAW_IMAGE=IMAGE)
    return {
        "CLASSIFICATION": hand("classification_model", "CLASSIFICATION_OUTPUT", FORMATTED_IMAGE=image),
        "SEGMENTATION": hand("segmentation_model", "SEGMENTATION_OUTPUT", FORMATTED_IMAGE=image),
    }


def test_the_documented_ensemble_classifies_and_segments_an_image(protocol, client, hand):
    answer = infer(protocol, client, "ensemble_model", {"IMAGE": IMAGE})
    assert answer["SEGMENTATION"].shape == (1, 3, 224, 224)
    assert_same(answer, documented_by_hand(hand))


@pytest.mark.parametrize(
    "output, times", [("CLASSIFICATION", [1, 1, 0]), ("SEGMENTATION", [1, 0, 1])], ids=["classes", "segmentation"]
)
def test_only_the_branch_of_the_wanted_output_is_executed(protocol, client, hand, output, times):
    expected = {output: documented_by_hand(hand)[output]}
    members = ("image_preprocess_model", "classification_model", "segmentation_model")
    with Executed(protocol, client, *members) as executed:
        assert_same(infer(protocol, client, "ensemble_model", {"IMAGE": IMAGE}, [output]), expected)
        assert executed.times() == times


def test_the_documented_ensemble_describes_itself(protocol, client):
    metadata = protocol.json(client.get_model_metadata, "ensemble_model")
    assert (metadata["platform"], metadata["versions"]) == ("ensemble", ["1"])
    assert metadata["inputs"] == [{"name": "IMAGE", "datatype": "BYTES", "shape": [-1, 1]}]
    assert metadata["outputs"] == [
        {"name": "CLASSIFICATION", "datatype": "FP32", "shape": [-1, 1000]},
        {"name": "SEGMENTATION", "datatype": "FP32", "shape": [-1, 3, 224, 224]},
    ]


def test_the_configuration_of_an_ensemble_has_its_steps(protocol, client):
    config = protocol.json(client.get_model_config, "ensemble_model")
    config = config.get("config", config)
    assert config["platform"] == "ensemble" and not config.get("instance_group")
    assert config["ensemble_scheduling"]["step"][1] == {
        "model_name": "classification_model",
        "model_version": -1,
        "input_map": {"FORMATTED_IMAGE": "preprocessed_image"},
        "output_map": {"CLASSIFICATION_OUTPUT": "CLASSIFICATION"},
    } | ({"model_namespace": ""} if protocol is HTTP else {})


# ---- Batches and shapes ----


@pytest.mark.parametrize("model", ["flat_inside", "flat_outside"])
def test_a_leading_one_is_added_for_members_with_batches_and_removed_for_the_others(protocol, client, hand, model):
    x = FOURS[:1] if model == "flat_inside" else FOURS[0]
    flattened = hand("flat", X=hand("scale", X=FOURS[:1])[0])
    expected = hand("shift", X=flattened.reshape(1, 4))
    assert_same(infer(protocol, client, model, {"INPUT": x}), {"OUTPUT": expected.reshape(x.shape)})


def test_a_batch_does_not_fit_into_a_member_without_batches(protocol, client):
    with pytest.raises(InferenceServerException) as error:
        infer(protocol, client, "flat_inside", {"INPUT": FOURS})
    text = error.value.message()
    assert text.startswith("in ensemble 'flat_inside', ") and "unexpected shape for input 'X' for model 'flat'" in text
    assert error.value.status() == protocol.status("INVALID_ARGUMENT")


@pytest.mark.parametrize(
    "x, text",
    [
        (np.zeros((9, 4), np.float32), "inference request batch-size must be <= 8 for 'chain'"),
        (np.zeros((1, 5), np.float32), "unexpected shape for input 'INPUT' for model 'chain'. Expected [-1,4], got [1,5]"),
        (np.zeros((1, 4), np.int32), "inference input 'INPUT' data-type is 'INT32', but model 'chain' expects 'FP32'"),
    ],
    ids=["batch", "shape", "datatype"],
)
def test_a_request_is_checked_against_the_ensembles_own_inputs(protocol, client, x, text):
    with Executed(protocol, client, "scale") as executed:
        with pytest.raises(InferenceServerException) as error:
            infer(protocol, client, "chain", {"INPUT": x})
        assert text in error.value.message() and "in ensemble" not in error.value.message()
        assert executed.times() == [0]


def test_an_output_inherits_the_labels_of_its_member(protocol, client, hand):
    inputs = [protocol.input("INPUT", FOURS[:1])]
    wanted = [protocol.output("CLASSES", class_count=3)]
    answer = client.infer("labelled", inputs, outputs=wanted).as_numpy("CLASSES")
    values = hand("classifier", "PROBABILITIES", FEATURES=hand("shift", X=FOURS[:1]))[0]
    labels = [text.decode().split(":") for text in answer.reshape(-1)]
    assert [(int(number), label) for _, number, label in labels] == [
        (number, ("cat", "dog", "fish")[number]) for number in np.argsort(-values)
    ]


# ---- What may be absent ----

ALWAYS, MAYBE = np.array([2.5], np.float32), np.array([-1.5], np.float32)


def test_an_optional_input_may_be_left_out(protocol, client):
    answer = infer(protocol, client, "optional", {"ALWAYS": ALWAYS})
    assert_same(answer, {"ALWAYS_OUT": ALWAYS})


def test_an_optional_input_that_is_given_comes_through(protocol, client):
    answer = infer(protocol, client, "optional", {"ALWAYS": ALWAYS, "MAYBE": MAYBE})
    assert_same(answer, {"ALWAYS_OUT": ALWAYS, "MAYBE_OUT": MAYBE})


def test_an_optional_input_of_a_member_may_be_unconnected(protocol, client):
    assert_same(infer(protocol, client, "unconnected", {"ALWAYS": ALWAYS}), {"ALWAYS_OUT": ALWAYS})


def test_a_required_input_may_not_be_left_out(protocol, client):
    with pytest.raises(InferenceServerException) as error:
        infer(protocol, client, "optional", {"MAYBE": MAYBE})
    assert "model 'optional'" in error.value.message() and "input" in error.value.message()


def test_steps_whose_optional_inputs_were_made_by_nobody_are_skipped(protocol, client):
    with Executed(protocol, client, "halves", "costly", "costlier") as executed:
        answer = infer(protocol, client, "conditional", {"ALWAYS": ALWAYS})
        assert_same(answer, {"ALWAYS_OUT": ALWAYS})
        assert executed.times() == [1, 0, 0]


def test_steps_with_an_optional_input_that_was_made_are_executed(protocol, client):
    with Executed(protocol, client, "halves", "costly", "costlier") as executed:
        answer = infer(protocol, client, "conditional", {"ALWAYS": ALWAYS, "MAYBE": MAYBE})
        assert_same(answer, {"ALWAYS_OUT": ALWAYS, "COSTLY": MAYBE, "COSTLIER": MAYBE})
        assert executed.times() == [1, 1, 1]


def test_a_skipped_step_leaves_the_wanted_output_out(protocol, client):
    assert infer(protocol, client, "conditional", {"ALWAYS": ALWAYS}, ["COSTLIER"]) == {}


# ---- Decoupled members ----


def numbers(responses, output="OUT"):
    return [response[output].item() for response in responses]


def test_each_response_of_a_decoupled_member_flows_on(stream):
    stream.send("repeated", {"IN": np.array([7, -3, 5, 0], np.int32)}, request_id="the id")
    responses = stream.all()
    assert numbers(responses) == [14, -6, 10, 0]
    assert numbers(responses, "IDX") == [0, 1, 2, 3]


def test_every_response_has_the_id_of_the_request(stream):
    stream.send("repeated", {"IN": np.array([1, 2], np.int32)}, request_id="the id")
    ids = [stream.next().get_response().id for _ in range(2)]
    assert ids == ["the id"] * 2


def test_a_decoupled_member_without_responses_ends_the_request(stream):
    stream.send("repeated", {"IN": np.array([], np.int32)}, request_id="none")
    result = stream.next()
    assert outputs_of(result) == {} and parameters_of(result)["triton_final_response"] is True
    assert result.get_response().id == "none"


def test_branches_of_a_decoupled_member_are_joined_response_by_response(stream):
    sent = list(range(40))
    stream.send("repeated_join", {"IN": np.array(sent, np.int32)})
    assert numbers(stream.all()) == sent


def test_a_decoupled_member_may_feed_another(stream):
    stream.send("repeated_square", {"IN": np.array([3, 1, 0, 2], np.int32)})
    assert sorted(numbers(stream.all())) == [1, 2, 2, 3, 3, 3]


def test_responses_of_a_decoupled_member_that_is_fed_by_another_are_in_order(stream):
    sent = [3, 1, 0, 2, 5]
    stream.send("repeated_square", {"IN": np.array(sent, np.int32)})
    assert numbers(stream.all()) == [number for number in sent for _ in range(number)]


def test_a_decoupled_ensemble_may_be_a_member(stream):
    stream.send("repeated_nested", {"IN": np.array([1, 2, 3], np.int32)})
    responses = stream.all()
    assert (numbers(responses), numbers(responses, "IDX")) == ([4, 8, 12], [0, 1, 2])


def test_streams_of_many_requests_do_not_mix(stream):
    for number in range(20):
        stream.send("repeated", {"IN": np.arange(number, number + 10, dtype=np.int32)}, request_id=str(number))
    seen, ended = {str(number): [] for number in range(20)}, 0
    while ended < 20:
        result = stream.next()
        ended += parameters_of(result)["triton_final_response"]
        if outputs_of(result):
            seen[result.get_response().id].append(result.as_numpy("OUT").item())
    assert seen == {str(number): [2 * value for value in range(number, number + 10)] for number in range(20)}


@pytest.mark.parametrize("model", ["repeated", "repeated_join", "repeated_square", "repeated_nested"])
def test_an_ensemble_with_a_decoupled_member_is_decoupled(protocol, client, model):
    config = protocol.json(client.get_model_config, model)
    assert config.get("config", config)["model_transaction_policy"] == {"decoupled": True}


def test_the_configuration_of_an_ensemble_says_that_it_is_not_decoupled(ensemble_server):
    config = requests.get(f"http://{ensemble_server.http}/v2/models/diamond/config", timeout=PATIENCE).json()
    assert config["model_transaction_policy"] == {"decoupled": False}


def test_a_decoupled_ensemble_needs_a_stream(protocol, client):
    with pytest.raises(InferenceServerException) as error:
        infer(protocol, client, "repeated", {"IN": np.array([1], np.int32)})
    assert "decoupled" in error.value.message()


def test_a_decoupled_ensemble_generates_events(ensemble_server):
    url = f"http://{ensemble_server.http}/v2/models/repeated/generate_stream"
    response = requests.post(url, json={"IN": [3, 4]}, timeout=PATIENCE)
    events = [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n") if line]
    assert [(event["OUT"], event["IDX"]) for event in events] == [(6, 0), (8, 1)]


# ---- Sequences ----

# On each of two streams.
SEQUENCES = size(250, 12_500)


@pytest.mark.parametrize("sequence", [4711, "a text"], ids=["number", "text"])
def test_a_sequence_flows_through_an_ensemble(protocol, client, sequence):
    if protocol is HTTP:
        sequence = f"{sequence} over HTTP" if isinstance(sequence, str) else sequence + 1
    told, sums = [], []
    for place in range(3):
        named = {"sequence_id": sequence, "sequence_start": place == 0, "sequence_end": place == 2}
        result = ask(protocol, client, "doubled_sum", {"INPUT": np.array([place + 1], np.int32)}, **named)
        sums.append(result.as_numpy("DOUBLED").item())
        seen = json.loads(result.as_numpy("SEEN").item())
        assert (seen["correlation_id"], seen["START"], seen["END"]) == (sequence, place == 0, place == 2)
        parameters = parameters_of(result)
        assert parameters["sequence_id"] == sequence
        told.append((parameters["sequence_start"], parameters["sequence_end"]))
    assert sums == [2, 6, 12]
    assert told == [(True, False), (False, False), (False, True)]


def test_every_response_of_an_ensemble_has_the_parameters_of_sequences(protocol, client):
    parameters = parameters_of(ask(protocol, client, "chain", {"INPUT": FOURS}))
    assert parameters == {"sequence_id": 0, "sequence_start": False, "sequence_end": False}


def test_interleaved_sequences_keep_their_own_sums(protocol, client):
    base = 100 if protocol is HTTP else 200
    sums = {}
    for place in range(4):
        for number in range(base, base + 5):
            named = {"sequence_id": number, "sequence_start": place == 0, "sequence_end": place == 3}
            answer = infer(protocol, client, "doubled_sum", {"INPUT": np.array([number], np.int32)}, **named)
            sums[number] = answer["DOUBLED"].item()
    assert sums == {number: 8 * number for number in range(base, base + 5)}


def test_requests_of_sequences_that_are_sent_without_waiting_keep_their_order(ensemble_server, threads):
    """The first member executes several at a time. On each stream, sequences of four requests follow each other."""

    def sums(base):
        with GRPC.connect(ensemble_server) as client, Stream(client) as stream:
            for number in range(base, base + SEQUENCES):
                for place in range(4):
                    named = {"sequence_id": number, "sequence_start": place == 0, "sequence_end": place == 3}
                    named["request_id"] = f"{number} {place}"
                    stream.send("sum_of_doubles", {"INPUT": np.array([place + 1], np.int32)}, **named)
            # Responses of a stream come in any order.
            results = [stream.next() for _ in range(4 * SEQUENCES)]
            return {result.get_response().id: result.as_numpy("SUM").item() for result in results}

    for base, found in zip((10_000, 20_000), threads.map(sums, (10_000, 20_000)), strict=True):
        expected = {f"{number} {place}": total for number in range(base, base + SEQUENCES) for place, total in enumerate((2, 6, 12, 20))}
        assert found == expected


def test_a_sequences_first_request_must_say_so_in_an_ensemble_too(protocol, client):
    with pytest.raises(InferenceServerException) as error:
        infer(protocol, client, "doubled_sum", {"INPUT": np.array([1], np.int32)}, sequence_id=99)
    text = "inference request for sequence 99 to model 'sum' must specify the START flag on the first request of the sequence"
    assert error.value.message() == f"in ensemble 'doubled_sum', {text}"
