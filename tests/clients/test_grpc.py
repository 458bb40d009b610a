"""What only gRPC has: deadlines, cancellation, and messages that no library would send."""

import queue

import grpc as grpc_library
import numpy as np
import pytest
from held import held_inputs, occupy
from protocols import GRPC, add_sub_inputs, canceled, pending
from serving import PATIENCE, eventually
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException


@pytest.fixture
def stub(server):
    """The service itself, without the library's comfort."""
    limits = [("grpc.max_receive_message_length", 2**31 - 1), ("grpc.max_send_message_length", 2**31 - 1)]
    with grpc_library.insecure_channel(server.grpc, options=limits) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def test_typed_contents_are_as_good_as_raw_ones(stub):
    request = service_pb2.ModelInferRequest(model_name="add_sub", id="typed")
    for name, values in (("INPUT0", range(16)), ("INPUT1", [5] * 16)):
        tensor = request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        tensor.contents.int_contents.extend(values)
    response = stub.ModelInfer(request)
    assert response.id == "typed"
    assert not response.outputs[0].HasField("contents")
    sums = np.frombuffer(response.raw_output_contents[0], np.int32)
    np.testing.assert_array_equal(sums, np.arange(16) + 5)


def test_contents_twice_are_refused(stub):
    request = service_pb2.ModelInferRequest(model_name="identity_int32")
    tensor = request.inputs.add(name="INPUT", datatype="INT32", shape=[1])
    tensor.contents.int_contents.append(1)
    request.raw_input_contents.append(b"\1\0\0\0")
    with pytest.raises(grpc_library.RpcError) as refusal:
        stub.ModelInfer(request)
    assert refusal.value.code() == grpc_library.StatusCode.INVALID_ARGUMENT
    text = "contents field must not be specified when using raw_input_contents for 'INPUT' for model 'identity_int32'"
    assert text in refusal.value.details()


def test_a_negative_dimension_is_refused(stub):
    request = service_pb2.ModelInferRequest(model_name="identity_int32")
    request.inputs.add(name="INPUT", datatype="INT32", shape=[-1])
    request.raw_input_contents.append(b"\1\0\0\0")
    with pytest.raises(grpc_library.RpcError) as refusal:
        stub.ModelInfer(request)
    assert refusal.value.code() == grpc_library.StatusCode.INVALID_ARGUMENT


def test_a_version_that_is_no_number_is_refused(grpc):
    with pytest.raises(InferenceServerException) as refusal:
        grpc.get_model_metadata("add_sub", "x")
    assert "failed to get model version from specified version string 'x'" in refusal.value.message()
    assert refusal.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_a_deadline_ends_the_wait_and_the_request(server, gate, grpc):
    before = canceled(server, "held_impatient")
    answers, late = queue.Queue(), queue.Queue()
    hold = occupy(gate, grpc, "held_impatient", answers)
    # A busy machine may need more than the first deadline until the request waits.
    for deadline_secs in (1, 30):
        grpc.async_infer(
            "held_impatient",
            held_inputs(GRPC),
            lambda result, error: late.put((result, error)),
            client_timeout=deadline_secs,
        )
        eventually(lambda: pending(server, "held_impatient") == 1 or not late.empty(), "the request to wait")
        has_waited = late.empty()
        result, error = late.get(timeout=PATIENCE)
        assert result is None and error.status() == "StatusCode.DEADLINE_EXCEEDED"
        if has_waited:
            break
    eventually(lambda: canceled(server, "held_impatient") > before, "the request to be counted as canceled")
    hold.release()
    result, error = answers.get(timeout=PATIENCE)
    assert error is None and result is not None


def test_a_cancelled_request_leaves_the_queue(server, gate, grpc):
    before = canceled(server, "held_impatient")
    answers, cancelled = queue.Queue(), queue.Queue()
    hold = occupy(gate, grpc, "held_impatient", answers)
    call = grpc.async_infer("held_impatient", held_inputs(GRPC), lambda result, error: cancelled.put((result, error)))
    eventually(lambda: pending(server, "held_impatient") == 1, "the request to wait")
    call.cancel()
    eventually(lambda: canceled(server, "held_impatient") == before + 1, "the request to be counted as canceled")
    result, error = cancelled.get(timeout=PATIENCE)
    assert result is None and error.status() == "StatusCode.CANCELLED"
    hold.release()
    assert answers.get(timeout=PATIENCE)[1] is None


def test_a_compressed_answer_is_no_different(grpc):
    inputs, first = add_sub_inputs(GRPC)
    for algorithm in ("gzip", "deflate", None):
        result = grpc.infer("add_sub", inputs, compression_algorithm=algorithm)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)


def test_an_unknown_method_is_unimplemented(server):
    with grpc_library.insecure_channel(server.grpc) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/Nope")
        with pytest.raises(grpc_library.RpcError) as refusal:
            call(b"")
    assert refusal.value.code() == grpc_library.StatusCode.UNIMPLEMENTED


def test_too_much_metadata_ends_its_call_and_no_other(server):
    """A connection of its own has both calls."""
    with grpc_library.insecure_channel(server.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        requests = queue.SimpleQueue()
        answers = stub.ModelStreamInfer(iter(requests.get, None), timeout=PATIENCE)
        alone = service_pb2.ModelInferRequest(model_name="none")
        requests.put(alone)
        assert "unknown model" in next(answers).error_message
        for size in (16_000, 200_000, 900_000):
            with pytest.raises(grpc_library.RpcError) as raised:
                metadata = [("first", "v" * (size // 2)), ("second", "w" * (size // 2))]
                stub.ServerLive(service_pb2.ServerLiveRequest(), metadata=metadata, timeout=PATIENCE)
            assert raised.value.code() == grpc_library.StatusCode.RESOURCE_EXHAUSTED, size
            assert "received metadata size exceeds hard limit (" in raised.value.details()
            assert raised.value.details().endswith(" vs. 16384)")
        requests.put(alone)
        assert "unknown model" in next(answers).error_message
        requests.put(None)
        assert list(answers) == []
