"""What a model may ask of the server: `nereid_host` gives this object to the interface of models."""

import collections
import threading

import nereid_channel as channel_module
from nereid_host import TritonModelException
from nereid_request import InferenceTrace
from nereid_response import ErrorCode, InferenceResponse, TritonError
from nereid_tensor import Tensor

# Larger tensors are in shared memory; `calls.rs` has the same number.
INLINE_BYTES = 16 << 10

_METRIC_TYPES = {"COUNTER": 0, "GAUGE": 1, "HISTOGRAM": 2}


class Codec:
    """Tensors and responses between their wire form and that of models."""

    def __init__(self, channel, inputs, outputs):
        self._channel = channel
        self._inputs = inputs
        self._outputs = outputs
        # The outputs that the server remembers for the next request of a sequence.
        self.state_outputs = frozenset()
        # Called with the tensors of a response of which a client does not get all.
        self.on_left_out = lambda tensors: None

    def tensor_from(self, wire, tail):
        name, datatype, shape, is_in_area, offset, byte_size = wire
        if is_in_area:
            return Tensor._from_memory(name, datatype, shape, self._inputs.view(offset, byte_size), offset)
        return Tensor._from_memory(name, datatype, shape, tail[offset : offset + byte_size])

    def tensor_to(self, tensor):
        array = tensor._array
        if tensor._memory is None and array.nbytes <= INLINE_BYTES:
            return tensor._name, tensor._datatype, tensor._shape, array.tobytes()
        datatype, shape, buffers = tensor._encoded()
        byte_size = sum(map(len, buffers))
        if byte_size <= INLINE_BYTES:
            data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        else:
            data = self._shared(tensor, buffers, byte_size)
        return tensor._name, datatype, shape, data

    def _shared(self, tensor, buffers, byte_size):
        if len(buffers) == 1:
            buffer = memoryview(buffers[0])
            offset = self._inputs.offset_of(buffer)
            if offset is not None:
                return False, offset, byte_size, self._outputs.keep((tensor, buffer))
        place = self._outputs.put(buffers, byte_size)
        while place is None:
            # The server answers with what it has read.
            self._channel.send((channel_module.WANTS_SPACE,))
            place = self._outputs.put(buffers, byte_size)
            if place is None:
                self._wait_for_space()
                place = self._outputs.put(buffers, byte_size)
        return True, place[0], byte_size, place[1]

    def _wait_for_space(self):
        before = self._outputs.count_returned
        self._channel.wait_until(lambda: self._outputs.count_returned != before)

    def response_to(self, response, requested=None):
        error = response._error
        if error is not None:
            return (int(error._code), error._message), (), response._parameters
        to_wire = self.tensor_to
        tensors = response._output_tensors
        if requested is not None:
            states = self.state_outputs
            wanted = [to_wire(tensor) for tensor in tensors if tensor._name in requested or tensor._name in states]
            if len(wanted) != len(tensors):
                self.on_left_out(tensors)
            return None, wanted, response._parameters
        return None, [to_wire(tensor) for tensor in tensors], response._parameters

    def response_from(self, wire, tail):
        error, outputs, parameters = wire
        response = InferenceResponse([self.tensor_from(output, tail) for output in outputs])
        if error is not None:
            response._error = TritonError(error[1], ErrorCode(error[0]))
        response._parameters = parameters
        return response


class Inference:
    """A request of the model to another model, and the responses that have come."""

    def __init__(self, services, number, is_decoupled):
        self._services = services
        self._number = number
        self._is_decoupled = is_decoupled
        self._taken = 0
        self.responses = collections.deque()
        self.has_ended = False
        # Called when something has come, in the thread that reads.
        self.on_news = None

    def arrived(self, header, tail):
        _, number, is_last, wire = header
        if wire is not None:
            self.responses.append(self._services.codec.response_from(wire, tail))
        elif self._is_decoupled:
            # As in Triton: an end without a response is a response without outputs.
            self.responses.append(InferenceResponse([]))
        if is_last:
            self.has_ended = True
            self._services.forget(number)
        if self.on_news is not None:
            self.on_news()

    def is_there(self):
        return self.responses or self.has_ended

    def only(self):
        """The one response."""
        self._services.channel.wait_until(self.is_there)
        return self.responses.popleft()

    def __iter__(self):
        return self

    def __next__(self):
        self._services.channel.wait_until(self.is_there)
        if not self.responses:
            raise StopIteration
        response = self.responses.popleft()
        self._tell_taken()
        return response

    def _tell_taken(self):
        self._taken += 1
        if not self.has_ended and self._taken >= 8:
            self._services.channel.send((channel_module.TAKEN, self._number, self._taken))
            self._taken = 0

    def cancel(self):
        self._services.channel.send((channel_module.CANCEL_INFER, self._number))

    def __del__(self):
        # A model that drops the iterator does not want the rest.
        if not self.has_ended:
            self._services.unwanted.append(self._number)


class Services:
    """The host of the interface of models."""

    def __init__(self, channel, codec, facts):
        self.channel = channel
        self.codec = codec
        self.model_name, self.model_version, self.instance = facts[0], facts[1], facts[2]
        self.model_dir = facts[3]
        self.is_decoupled = False
        # Requests to other models are possible between initialization and finalization.
        self.may_infer = False
        self.runner = None
        self.unwanted = collections.deque()
        self._thread_pool_size = facts[8]
        self._pool = None
        self._numbers = 0
        self._lock = threading.Lock()
        self._metric_kinds = {}
        self._family_kinds = {}
        self._dropped_metrics = collections.deque()

    def _number(self):
        with self._lock:
            self._numbers += 1
            return self._numbers

    def forget(self, number):
        self.channel.listeners.pop(number, None)

    # Questions.

    def ask(self, name, *arguments):
        """Asks the server, and waits for the answer."""
        number = self._number()
        answers = []
        self.channel.listeners[number] = lambda header, _: answers.append(header)
        try:
            self.channel.send(*self._dropped(), (channel_module.ASK, number, name, arguments))
            self.channel.wait_until(lambda: answers)
        finally:
            self.forget(number)
        _, _, error, value = answers[0]
        if error is not None:
            raise TritonModelException(error)
        return value

    def tell(self, name, *arguments):
        self.channel.send((channel_module.TELL, name, arguments))

    def log(self, level, text, file, line):
        self.channel.send((channel_module.LOG, level, file, line, text))

    def tell_unknown_outputs(self, outputs, file):
        """Tells once of an output that no client gets, because the configuration, which has `outputs`, does not have it."""
        names = {output["name"] for output in outputs} | self.codec.state_outputs
        known = ", ".join(sorted(names))

        def tell(tensors):
            unknown = next((tensor._name for tensor in tensors if tensor._name not in names), None)
            if unknown is not None:
                self.codec.on_left_out = lambda tensors: None
                text = (
                    f"output '{unknown}' of model '{self.model_name}' is not in the configuration, which has [{known}]: "
                    "no response has it"
                )
                self.log("WARNING", text, file, 0)

        self.codec.on_left_out = tell

    def is_cancelled(self, handle):
        return self.ask("is_cancelled", handle.number)

    # Responses of senders.

    def send(self, handle, response, flags):
        wire = None if response is None else self.codec.response_to(response, handle.requested)
        self.channel.send((channel_module.SEND, handle.number, wire, flags != 0))

    def abandon(self, handle):
        self.channel.abandon(handle.number)

    # Other models.

    def begin(self, request, decoupled):
        if not self.may_infer:
            raise TritonModelException("BLS is only supported during the 'execute' function.")
        fields = request._fields
        trace = fields.get("trace")
        trace = trace._handle if isinstance(trace, InferenceTrace) else None
        number = self._number()
        inference = Inference(self, number, decoupled)
        wire = (
            fields["model_name"],
            fields.get("model_version", -1),
            fields.get("id", ""),
            fields.get("correlation_id", 0),
            fields.get("flags", 0),
            fields.get("timeout", 0),
            fields.get("parameters") or "{}",
            list(fields.get("requested_outputs", ())),
            [self.codec.tensor_to(tensor) for tensor in fields["inputs"]],
            None if trace is None else trace.number,
        )
        self.channel.listeners[number] = _Arrival(inference)
        cancelled = [(channel_module.CANCEL_INFER, unwanted) for unwanted in self._unwanted()]
        try:
            self.channel.send(*cancelled, (channel_module.INFER, number, wire, decoupled))
        except TritonModelException:
            self.forget(number)
            raise
        return inference

    def _unwanted(self):
        return [self.unwanted.popleft() for _ in range(len(self.unwanted))]

    def infer(self, request, decoupled):
        inference = self.begin(request, decoupled)
        return inference if decoupled else inference.only()

    async def async_infer(self, request, decoupled):
        import asyncio

        loop = asyncio.get_running_loop()
        inference = self.begin(request, decoupled)
        if self.runner is not None and self.runner.loop is loop:
            # The loop itself reads.
            arrived = asyncio.Event()
            inference.on_news = lambda: loop.call_soon_threadsafe(arrived.set)
            if not inference.is_there():
                await arrived.wait()
            inference.on_news = None
        else:
            await loop.run_in_executor(self._threads(), self.channel.wait_until, inference.is_there)
        return inference if decoupled else inference.responses.popleft()

    def _threads(self):
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._thread_pool_size, "nereid-infer")
            return self._pool

    # Models of the server.

    def load_model(self, name, files, config):
        files = None if files is None else list(files.items())
        self.ask("load_model", name, config or "", files or ())

    def unload_model(self, name, unload_dependents):
        self.ask("unload_model", name, unload_dependents)

    def is_model_ready(self, name, version):
        return self.ask("is_model_ready", name, version)

    # Metrics.

    def metric_family(self, name, description, kind):
        number = self.ask("metric_family", name, description, _METRIC_TYPES[kind])
        self._family_kinds[number] = kind
        return number

    def metric(self, family, labels, buckets):
        number = self.ask("metric", family, list(labels.items()), buckets)
        self._metric_kinds[number] = self._family_kinds.get(family)
        return number

    def metric_value(self, number):
        return self.ask("metric_value", number)

    def metric_increment(self, number, value):
        kind = self._metric_kinds[number]
        if kind == "HISTOGRAM":
            self._unsupported(kind, "Increment")
        if kind == "COUNTER" and value < 0:
            raise TritonModelException(
                "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."
            )
        self.tell("increment", number, value)

    def metric_set(self, number, value):
        if self._metric_kinds[number] != "GAUGE":
            self._unsupported(self._metric_kinds[number], "Set")
        self.tell("set", number, value)

    def metric_observe(self, number, value):
        if self._metric_kinds[number] != "HISTOGRAM":
            self._unsupported(self._metric_kinds[number], "Observe")
        self.tell("observe", number, value)

    def _unsupported(self, kind, what):
        raise TritonModelException(f"TRITONSERVER_METRIC_KIND_{kind} does not support {what}")

    def free_metric(self, number):
        self._dropped_metrics.append(("free_metric", number))

    def free_family(self, number):
        self._dropped_metrics.append(("free_family", number))

    def _dropped(self):
        dropped = self._dropped_metrics
        return [(channel_module.TELL, name, (number,)) for name, number in [dropped.popleft() for _ in range(len(dropped))]]

    def dropped_items(self):
        """What models have dropped, for the next message."""
        items = self._dropped() if self._dropped_metrics else []
        if self.unwanted:
            items += [(channel_module.CANCEL_INFER, number) for number in self._unwanted()]
        return items


class _Arrival:
    """Gives responses to an inference as long as somebody has it."""

    def __init__(self, inference):
        import weakref

        self._inference = weakref.ref(inference)

    def __call__(self, header, tail):
        inference = self._inference()
        if inference is not None:
            inference.arrived(header, tail)
