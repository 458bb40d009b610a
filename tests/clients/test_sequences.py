"""Sequences of requests: many at once, each with its own sum, on 4 instances of 8 slots."""

import asyncio

import numpy as np
import pytest
import tritonclient.grpc.aio
import tritonclient.http.aio
from protocols import GRPC, HTTP
from repository import STRATEGIES
from tritonclient.utils import InferenceServerException

SEQUENCES = 1000
STEPS = 5


def value(number):
    return np.array([[number]], np.int32)


def inputs(protocol, model, x, carry):
    given = [protocol.input("X", value(x))]
    return given + [protocol.input("CARRY", value(carry))] if model.startswith("carried") else given


@pytest.fixture(params=[f"{kind}_{strategy}" for kind in ("accumulate", "carried") for strategy in STRATEGIES])
def model(request):
    return request.param


async def run_sequence(client, protocol, model, number):
    """Every step is sent when the one before was answered; its answer must be the running sum."""
    total = 0
    for step in range(STEPS):
        x = number * 31 + step * 7
        options = {"sequence_id": number, "sequence_start": step == 0, "sequence_end": step + 1 == STEPS}
        result = await client.infer(model, inputs(protocol, model, x, total), **options)
        total += x
        assert result.as_numpy("SUM").item() == total, f"sequence {number}, step {step}"


async def test_a_thousand_interleaved_sequences_keep_their_own_sums(server, model):
    async with tritonclient.grpc.aio.InferenceServerClient(server.grpc) as client:
        await asyncio.gather(*(run_sequence(client, GRPC, model, number) for number in range(1, SEQUENCES + 1)))


async def test_http_and_texts_as_ids_do_as_well(server):
    async with tritonclient.http.aio.InferenceServerClient(server.http, conn_limit=64) as client:
        await asyncio.gather(*(run_sequence(client, HTTP, "accumulate_direct", number) for number in range(1, 101)))

        async def of_text(name):
            for step, expected in enumerate((5, 10, 15)):
                options = {"sequence_id": name, "sequence_start": step == 0, "sequence_end": step == 2}
                result = await client.infer("accumulate_oldest", inputs(HTTP, "accumulate_oldest", 5, 0), **options)
                assert result.as_numpy("SUM").item() == expected

        await asyncio.gather(*(of_text(f"sequence {number}") for number in range(20)))


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_slots_of_clients_that_vanish_are_given_to_others(server, strategy):
    """More sequences than slots never end; when they have been silent for a while, others take their place."""
    model = f"brief_{strategy}"
    async with tritonclient.grpc.aio.InferenceServerClient(server.grpc) as client:

        async def start(number, end):
            options = {"sequence_id": number, "sequence_start": True, "sequence_end": end}
            result = await client.infer(model, inputs(GRPC, model, number, 0), **options)
            assert result.as_numpy("SUM").item() == number

        await asyncio.gather(*(start(number, end=number % 2 == 0) for number in range(1, 129)))


def test_what_is_no_step_of_a_sequence_is_refused(client, protocol):
    def refusal(**options):
        with pytest.raises(InferenceServerException) as refused:
            client.infer("accumulate_direct", inputs(protocol, "accumulate_direct", 1, 0), **options)
        return refused.value.message()

    model = "model 'accumulate_direct'"
    assert refusal() == f"inference request to {model} must specify a non-zero or non-empty correlation ID"
    assert refusal(sequence_id=77) == (
        f"inference request for sequence 77 to {model} must specify the START flag on the first request of the sequence"
    )


def test_a_start_in_the_middle_begins_anew(client, protocol):
    def step(x, **options):
        return client.infer(
            "accumulate_direct", inputs(protocol, "accumulate_direct", x, 0), sequence_id=88, **options
        ).as_numpy("SUM").item()

    assert [step(1, sequence_start=True), step(2), step(42, sequence_start=True), step(9, sequence_end=True)] == [1, 3, 42, 51]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_model_hears_all_controls_at_once(client, protocol, strategy):
    model = f"controls_{strategy}"

    def flags(**options):
        answer = client.infer(model, inputs(protocol, model, 1, 0), sequence_id=1 << 40, **options)
        assert answer.as_numpy("ID").item() == 1 << 40
        return answer.as_numpy("FLAGS").tolist()

    assert flags(sequence_start=True) == [[1, 0, 1]]
    assert flags() == [[0, 0, 1]]
    assert flags(sequence_end=True) == [[0, 1, 1]]
    assert flags(sequence_start=True, sequence_end=True) == [[1, 1, 1]]
