"""The asynchronous variants of both client libraries."""

import asyncio

import numpy as np
import pytest
import tritonclient.grpc.aio
import tritonclient.http.aio
from held import held_inputs
from protocols import GRPC, HTTP, add_sub_inputs
from tritonclient.utils import InferenceServerException


@pytest.fixture
def asynchronous(server, protocol):
    """Makes a client; to be called inside the event loop."""
    if protocol.name == "http":
        return lambda: tritonclient.http.aio.InferenceServerClient(server.http, conn_limit=200)
    return lambda: tritonclient.grpc.aio.InferenceServerClient(server.grpc)


async def test_health_metadata_and_statistics_are_answered(asynchronous):
    async with asynchronous() as client:
        assert await client.is_server_live() and await client.is_server_ready()
        assert await client.is_model_ready("add_sub")
        assert not await client.is_model_ready("none")
        for question in (client.get_model_metadata, client.get_model_config, client.get_inference_statistics):
            assert "add_sub" in str(await question("add_sub"))
        assert "add_sub" in str(await client.get_model_repository_index())


async def test_two_hundred_requests_at_once_get_their_own_answers(asynchronous, protocol):
    async def ask(client, number):
        first = np.full((1, 16), number, np.int32)
        inputs = [protocol.input("INPUT0", first), protocol.input("INPUT1", first)]
        return (await client.infer("add_sub", inputs)).as_numpy("OUTPUT0")

    async with asynchronous() as client:
        answers = await asyncio.gather(*(ask(client, number) for number in range(200)))
    for number, answer in enumerate(answers):
        np.testing.assert_array_equal(answer, np.full((1, 16), 2 * number))


async def test_sixteen_megabytes_travel_both_ways(asynchronous, protocol):
    sent = np.random.default_rng(1).random((1024, 4096), dtype=np.float32)
    async with asynchronous() as client:
        result = await client.infer("matrix", [protocol.input("INPUT", sent)])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT"), sent)


async def test_an_answer_that_compresses_well_is_read_all_the_same(asynchronous, protocol):
    """The library asks for compression by itself over HTTP."""
    sent = np.zeros((512, 512), np.float32)
    async with asynchronous() as client:
        result = await client.infer("matrix", [protocol.input("INPUT", sent)])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT"), sent)


async def test_an_error_has_its_text_and_status(asynchronous, protocol):
    async with asynchronous() as client:
        with pytest.raises(InferenceServerException) as refusal:
            await client.infer("none", add_sub_inputs(protocol)[0])
    assert refusal.value.message() == "Request for unknown model: 'none' is not found"
    assert refusal.value.status() == protocol.status("NOT_FOUND")


async def test_json_tensors_are_answered(server):
    first = np.arange(16, dtype=np.int32).reshape(1, 16)
    inputs = [HTTP.library.InferInput(f"INPUT{index}", [1, 16], "INT32") for index in (0, 1)]
    for tensor in inputs:
        tensor.set_data_from_numpy(first, binary_data=False)
    outputs = [HTTP.output("OUTPUT0", binary_data=False)]
    async with tritonclient.http.aio.InferenceServerClient(server.http) as client:
        result = await client.infer("add_sub", inputs, outputs=outputs)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), 2 * first)


async def test_a_stream_answers_in_order_and_with_errors_in_between(server, gate):
    hold = gate.hold()

    async def requests():
        yield {"model_name": "held", "inputs": held_inputs(GRPC, hold, x=2.5), "request_id": "0"}
        for number in range(1, 20):
            yield {"model_name": "add_sub", "inputs": add_sub_inputs(GRPC)[0], "request_id": str(number)}
        yield {"model_name": "none", "inputs": add_sub_inputs(GRPC)[0], "request_id": "20"}
        yield {"model_name": "add_sub", "inputs": add_sub_inputs(GRPC)[0], "request_id": "21"}
        hold.release()

    async with tritonclient.grpc.aio.InferenceServerClient(server.grpc) as client:
        answers = [answer async for answer in client.stream_infer(requests())]
    assert len(answers) == 22
    ids = [None if result is None else result.get_response().id for result, _ in answers]
    assert ids == [*map(str, range(20)), None, "21"]
    errors = [error and error.message() for _, error in answers]
    assert errors == [None] * 20 + ["Request for unknown model: 'none' is not found", None]


async def test_a_cancelled_stream_leaves_the_server_as_it_was(server, gate):
    async def requests():
        yield {"model_name": "held", "inputs": held_inputs(GRPC, gate.hold())}
        await asyncio.Event().wait()

    async with tritonclient.grpc.aio.InferenceServerClient(server.grpc) as client:
        answers = client.stream_infer(requests())
        first = asyncio.ensure_future(anext(aiter(answers)))
        assert await client.is_server_live()
        assert answers.cancel()
        with pytest.raises((asyncio.CancelledError, StopAsyncIteration, InferenceServerException)):
            await first
        assert (await client.infer("add_sub", add_sub_inputs(GRPC)[0])).as_numpy("OUTPUT0") is not None


async def test_a_cancelled_task_leaves_the_server_as_it_was(asynchronous, protocol, gate):
    async with asynchronous() as client:
        task = asyncio.create_task(client.infer("held", held_inputs(protocol, gate.hold())))
        assert await client.is_server_live()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.infer("add_sub", add_sub_inputs(protocol)[0])).as_numpy("OUTPUT0") is not None
