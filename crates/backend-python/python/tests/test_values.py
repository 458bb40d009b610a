"""What a model may give as a text, a number or a truth value, and that only plain values come out of it."""

import decimal
import enum
import json
import marshal

import nereid_channel
import nereid_host
import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from nereid_errors import text_of
from triton_python_backend_utils import (
    InferenceRequest,
    InferenceResponse,
    Logger,
    MetricFamily,
    Tensor,
    TritonError,
    TritonModelException,
)


class Text(str):
    def __str__(self):
        return "another text"


class Number(int):
    def __index__(self):
        return 7

    __int__ = __index__


class Colour(str, enum.Enum):
    RED = "grün"


class Index:
    def __index__(self):
        return 5


BYTES = "grün".encode()
TEXTS = ["grün", BYTES, bytearray(BYTES), np.str_("grün"), np.bytes_(BYTES), Text("grün"), Colour.RED]
NUMBERS = [5, Number(5), Index(), np.int8(5), np.uint64(5), np.array(5), np.float32(5), decimal.Decimal(5)]


def is_plain(value, expected):
    """No subclass has a form in messages."""
    return type(value) is type(expected) and value == expected


@pytest.mark.parametrize("given", TEXTS, ids=lambda given: type(given).__name__)
def test_texts_are_plain_wherever_they_enter(host, given):
    request = InferenceRequest(
        request_id=given,
        correlation_id=given,
        inputs=[Tensor(given, np.zeros(1))],
        requested_output_names=[given],
        model_name=given,
    )
    fields = request._fields
    entered = [fields["id"], fields["correlation_id"], fields["model_name"], *fields["requested_outputs"]]
    entered += [request.inputs()[0].name(), Tensor.from_dlpack(given, np.zeros(1)).name(), TritonError(given).message()]
    Logger.log_info(given)
    # A `bytearray` is no key.
    key = BYTES if type(given) is bytearray else given
    pb_utils.load_model(given, given, {key: np.bytes_(b"content")})
    pb_utils.unload_model(given)
    pb_utils.is_model_ready(given)
    family = MetricFamily(given, given, MetricFamily.COUNTER)
    family.Metric({key: key})
    entered += [host.called("log")[0][1], host.called("unload_model")[0][0], host.called("is_model_ready")[0][0]]
    name, files, config = host.called("load_model")[0]
    labels = host.called("metric")[0][1]
    entered += [name, config, *files, *host.called("metric_family")[0][:2], *labels.keys(), *labels.values()]
    assert all(is_plain(text, "grün") for text in entered), entered


@pytest.mark.parametrize("given", NUMBERS, ids=lambda given: type(given).__name__)
def test_numbers_are_plain_wherever_they_enter(given):
    request = InferenceRequest(
        inputs=[], requested_output_names=[], model_name="m", model_version=given, flags=given, timeout=given
    )
    entered = [request._fields[name] for name in ("model_version", "flags", "timeout")]
    request.set_flags(given)
    request.set_release_flags(given)
    entered += [request.flags(), request._release_flags]
    assert all(is_plain(number, 5) for number in entered), entered


@pytest.mark.parametrize("given", NUMBERS, ids=lambda given: type(given).__name__)
def test_values_of_metrics_are_floats(host, given):
    family = MetricFamily("sizes", "", MetricFamily.HISTOGRAM)
    metric = family.Metric(buckets=[given])
    metric.increment(given)
    metric.set(given)
    metric.observe(given)
    entered = [value for name in ("metric_increment", "metric_set", "metric_observe") for _, value in host.called(name)]
    assert all(is_plain(value, 5.0) for value in [*entered, *host.called("metric")[0][2]])


def test_numbers_have_a_range_and_are_no_texts():
    for wrong in (-1, 1 << 32, 1.0, np.float64(1), "1", b"1", None, 1j, [1], np.float32("nan")):
        with pytest.raises(TypeError, match="must be a whole number from 0 to 4294967295, found"):
            nereid_host.whole_number("it", wrong, 0, nereid_host.MOST_UINT32)
    for wrong in ("1", b"1", None, 1j, 10**400):
        with pytest.raises(TypeError, match="must be a number"):
            nereid_host.real_number("it", wrong)


def test_truth_is_what_says_so():
    assert all(nereid_host.truth("it", true) is True for true in (True, 1, np.True_, np.int64(2), np.array(True)))
    for wrong in (None, "yes", b"", [], {}):
        with pytest.raises(TypeError, match="must be a bool"):
            nereid_host.truth("it", wrong)


def test_names_are_utf_8_and_messages_always_arrive(host):
    for wrong in ("\ud800", b"\xff"):
        with pytest.raises(TypeError, match="must be text in UTF-8"):
            Tensor(wrong, np.zeros(1))
    assert TritonError("no \ud800").message() == "no ?"
    Logger.log_error(b"no \xff")
    assert host.called("log")[0][1] == "no \ufffd"


def test_correlation_ids_are_numbers_or_texts():
    def entered(given):
        request = InferenceRequest(correlation_id=given, inputs=[], requested_output_names=[], model_name="m")
        return request.correlation_id()

    assert is_plain(entered(np.uint64((1 << 64) - 1)), (1 << 64) - 1) and is_plain(entered(Number(9)), 9)
    for wrong in (1.5, np.float32(1), [], object()):
        with pytest.raises(TritonModelException, match="^Correlation ID must be integer or string$"):
            entered(wrong)


def test_parameters_are_plain():
    response = InferenceResponse(parameters={Text("a"): Text("b"), "n": Number(9), "i": np.int64(-7), "t": np.True_})
    assert json.loads(response.parameters()) == {"a": "b", "n": 9, "i": -7, "t": True}
    for wrong in (1.5, None, b"bytes", np.zeros(2)):
        with pytest.raises(TritonModelException, match="^Expect parameters values to have type bool/int/str, found type"):
            InferenceResponse(parameters={"a": wrong})
    with pytest.raises(TypeError):
        InferenceResponse(parameters={"a": 1 << 63})


def test_a_kind_of_array_is_what_its_memory_is():
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    [buffer] = Tensor("X", masked)._encoded()[2]
    assert bytes(buffer) == np.array([1.0, 2.0]).tobytes()
    assert Tensor("X", np.array(1.0).view(np.recarray)).shape() == []


def test_what_the_server_makes_has_no_constructor():
    for kind in (pb_utils.Metric, pb_utils.InferenceResponseSender):
        with pytest.raises(TypeError, match="No constructor defined!"):
            kind(1)


def test_what_a_model_raises_has_words():
    class Wordless(Exception):
        def __str__(self):
            raise SystemExit

        __traceback__ = property(lambda self: 1 / 0)

    errors = {"Wordless": Wordless(), "ValueError: odd": ValueError(np.str_("odd")), "KeyError: <EMPTY MESSAGE>": KeyError()}
    for words, error in errors.items():
        assert is_plain(text_of(error), words)
    assert len(text_of(ValueError("x" * (1 << 21)))) == 1 << 20


class Socket:
    def __init__(self):
        self.sent = []

    def sendall(self, frame):
        self.sent.append(marshal.loads(frame[4:]))


class Inputs:
    def __init__(self):
        self.freed = []
        self.when_freed = None


def test_a_message_that_the_server_would_not_take_is_an_exception(monkeypatch):
    socket, inputs = Socket(), Inputs()
    channel = nereid_channel.Channel(socket, inputs, None)
    monkeypatch.setattr(nereid_channel, "_MOST_VALUES", 100)
    channel.abandoned.append(7)
    with pytest.raises(TritonModelException, match="has 204 values, and the limit is 114"):
        channel.send((1, [None] * 198))
    # What finalizers have left is not lost.
    assert socket.sent == [[(nereid_channel.ABANDONED, 7)]]
    monkeypatch.setattr(nereid_channel, "_MOST_BYTES", 150)
    with pytest.raises(TritonModelException, match="has [0-9]+ bytes, and the limit is 150"):
        channel.send("x" * 150)
    with pytest.raises(TritonModelException, match="cannot be written: unmarshallable object"):
        channel.send(object())
    channel.send((1, "fits"))
    assert socket.sent[1:] == [[(1, "fits")]]
