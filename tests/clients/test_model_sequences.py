"""Running sequences of models that are reloaded, or whose version, or whose number of instances changes.

The short form has 100 sequences at a time, the full one (NEREID_TORTURE=full) 1,000.
"""

import asyncio
import itertools
import json
import shutil

import numpy as np
import pytest
import repository as models
import tritonclient.grpc.aio
import tritonclient.http.aio
from adders import EXPLICIT, index
from protocols import GRPC, HTTP
from serving import eventually, size

SEQUENCES = size(100, 1000)
SLOTS = size(32, 256)
NAME = "counted_sum"


def write_model(folder, strategy, copy, version=1):
    """SUM = what the sequence has had so far, COPY = the number of the file."""
    model = models.graph(
        """
        counted_sum (int32[batch, 1] X, int32[batch, 1] START, int32[batch, 1] SUM_IN)
            => (int32[batch, 1] SUM, int32[batch, 1] COPY, int32[batch, 1] SUM_OUT)
        {
            one = Constant <value_ints = [1]> ()
            whole = Cast <to = 6> (one)
            keep = Sub(whole, START)
            kept = Mul(SUM_IN, keep)
            SUM = Add(kept, X)
            SUM_OUT = Identity(SUM)
            nothing = Sub(X, X)
            COPY = Add(nothing, copy)
        }""",
        copy=np.array([copy], np.int32),
    )
    state = 'state [{ input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_INT32 dims: [1] }]'
    config = models.sequence_batching(strategy, state, slots=SLOTS) + models.tensor("input", "X", "INT32", 1)
    config += models.tensor("output", "SUM", "INT32", 1) + models.tensor("output", "COPY", "INT32", 1)
    models.write(folder, NAME, model, config, version)


class Sequence:
    """A sequence and what its answers must be: the running sum, and the same copy of the model each time."""

    numbers = itertools.count(1)

    def __init__(self, clients):
        self.number = next(self.numbers)
        self.protocol, self.client = clients[self.number % 2]
        self.total, self.steps, self.copy = 0, 0, None

    async def step(self, end=False):
        x = self.number * 31 + self.steps * 7
        options = {"sequence_id": self.number, "sequence_start": self.steps == 0, "sequence_end": end}
        inputs = [self.protocol.input("X", np.array([[x]], np.int32))]
        result = await self.client.infer(NAME, inputs, **options)
        self.total += x
        self.steps += 1
        told = result.as_numpy("SUM").item(), result.as_numpy("COPY").item()
        assert told == (self.total, self.copy or told[1]), f"sequence {self.number}, step {self.steps}"
        self.copy = told[1]


async def step_all(sequences, end=False):
    await asyncio.gather(*(sequence.step(end) for sequence in sequences))


async def step_during(sequences, change):
    """Steps all sequences again and again until the change is over, and once more."""
    changing = asyncio.create_task(change)
    while not changing.done():
        await step_all(sequences)
    await changing
    await step_all(sequences)


@pytest.mark.parametrize("strategy", models.STRATEGIES)
async def test_running_sequences_keep_their_sums_over_reloads_and_changes_of_versions_and_instances(start, tmp_path, strategy):
    folder = tmp_path / "models"
    folder.mkdir()
    write_model(folder, strategy, 1)
    server = start(folder, EXPLICIT, f"--load-model={NAME}")
    async with (
        tritonclient.grpc.aio.InferenceServerClient(server.grpc) as grpc,
        tritonclient.http.aio.InferenceServerClient(server.http, conn_limit=32) as http,
    ):
        clients = ((HTTP, http), (GRPC, grpc))

        async def new_file():
            write_model(folder, strategy, 2)
            await grpc.load_model(NAME)

        def with_instances(count):
            async def change():
                config = await http.get_model_config(NAME)
                config["instance_group"] = [{"count": count, "kind": "KIND_CPU"}]
                await http.load_model(NAME, config=json.dumps(config))

            return change

        async def new_version():
            write_model(folder, strategy, 3, version=2)
            await http.load_model(NAME)

        async def older_version():
            shutil.rmtree(folder / NAME / "2")
            await grpc.load_model(NAME)

        # What changes, and the file of which new sequences then meet a copy.
        changes = [(new_file, 2), (with_instances(8), 2), (with_instances(4), 2), (new_version, 3), (older_version, 2)]
        sequences = [Sequence(clients) for _ in range(SEQUENCES)]
        await step_all(sequences)
        steps = 0
        for change, copy in changes:
            await step_during(sequences, change())
            # Some sequences end, and as many begin.
            ending, sequences = sequences[: SEQUENCES // 4], sequences[SEQUENCES // 4 :]
            await step_all(ending, end=True)
            steps += sum(sequence.steps for sequence in ending)
            beginning = [Sequence(clients) for _ in ending]
            await step_all(beginning)
            assert {sequence.copy for sequence in beginning} == {copy}, change.__name__
            sequences += beginning
        await step_all(sequences, end=True)
        steps += sum(sequence.steps for sequence in sequences)
        # Other numbers of instances build no new copy of the model.
        assert server.log().count(f"updating the instances of '{NAME}' version 1") == 2
        print(f"{strategy}: {SEQUENCES} sequences at a time over {len(changes)} changes, {steps} steps")
    with HTTP.connect(server) as client:
        eventually(lambda: index(HTTP, client)[NAME] == [("1", "READY", None)], "the retired version to end")
