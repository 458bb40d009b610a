"""Runs the executions of a model, one after the other, or several at the same time where `execute` is a coroutine."""

import collections
import time

import nereid_channel as channel_module
from nereid_errors import text_of
from nereid_host import TritonModelException
from nereid_request import (
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
)
from nereid_response import InferenceResponse, TritonError

# Results wait no longer than this for further ones.
_FLUSH_SECONDS = 200e-6

# While a decoupled model has so many coroutines, the server gives it no more requests.
_MOST_TASKS = 1000


# An execution of a decoupled model whose `execute` has returned a coroutine.
BegunExecution = collections.namedtuple("BegunExecution", "requests coroutine")


class ModelError(Exception):
    """An execution broke a rule. The text is for the client."""


class Executions:
    """What the two ways to execute have in common."""

    def __init__(self, model, services, facts):
        self.model = model
        self.services = services
        self.channel = services.channel
        self.facts = facts
        self.codec = services.codec
        self.model_name, self.model_version, self.instance, self.file = facts[0], facts[1], facts[2], facts[6]
        self.is_decoupled = services.is_decoupled
        self.served = self.model_name, self.model_version, self.is_decoupled
        self.execute = getattr(model, "execute", None)

    def request(self, wire, tail):
        tensor_from = self.codec.tensor_from
        return InferenceRequest._from_server(wire, [tensor_from(tensor, tail) for tensor in wire[9]], self.served)

    def head(self, text):
        return f"Failed to process the request(s) for model '{self.instance}', message: {text}"

    def check_execute(self):
        if self.execute is None:
            raise ModelError(f"Python model {self.file} does not implement `execute` method.")

    def answers(self, requests, returned):
        """The item of the server for each request."""
        if self.is_decoupled:
            if returned is not None:
                raise ModelError(
                    f"Python model '{self.instance}' is using the decoupled mode and the execute function must return None."
                )
            return [self.rescheduled(request) for request in requests]
        if returned is None and all(request._sender is not None for request in requests):
            returned = [None] * len(requests)
        if not isinstance(returned, list):
            raise ModelError(f"Expected a list in the execute return, found type '{type(returned)}'.")
        if len(returned) != len(requests):
            raise ModelError(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(returned)}\n"
            )
        return list(map(self.answer, requests, returned))

    def answer(self, request, response):
        if type(response) is InferenceResponse and request._sender is None and request._release_flags == TRITONSERVER_REQUEST_RELEASE_ALL:
            # What most models do.
            return self.codec.response_to(response, request._wire[7])
        if request._release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE:
            if response is not None:
                raise ModelError(
                    "Expected a None object in the execute function return list for reschduled request, "
                    f"found type '{type(response)}'."
                )
            return self.rescheduled(request)
        if response is None:
            if request._sender is None:
                raise ModelError(_wrong_type(response))
            return None
        if not isinstance(response, InferenceResponse):
            raise ModelError(_wrong_type(response))
        wire = self.codec.response_to(response, request._wire[7])
        if request._sender is not None:
            request._close()
        return wire

    def is_rescheduled(self, request):
        return request._release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE

    def rescheduled(self, request):
        """True for a request that comes again, as another object: this one is of no use any more."""
        if not self.is_rescheduled(request):
            return None
        request._close()
        return True

    def send(self, items):
        """Sends what executions have ended with. What the server would not take becomes an error of its execution."""
        dropped = self.services.dropped_items()
        try:
            self.channel.send(*dropped, *items)
        except TritonModelException:
            self.channel.send(*dropped)
            for item in items:
                self._send_alone(item)

    def _send_alone(self, item):
        try:
            self.channel.send(item)
        except TritonModelException as error:
            self.channel.send((channel_module.DONE, item[1], self.failure(error), ()))

    def failure(self, error):
        return self.head(str(error) if isinstance(error, ModelError) else text_of(error))

    def close(self, requests):
        """The requests have failed: their senders are of no use."""
        for request in requests:
            if request._sender is not None:
                request._close()


def _wrong_type(response):
    return f"Expected an 'InferenceResponse' object in the execute function return list, found type '{type(response)}'."


class SerialExecutions(Executions):
    """One execution at a time, on the main thread.

    A decoupled model may return a coroutine all the same. As in Triton, the coroutine then goes on beside further
    executions.
    """

    def __init__(self, model, services, facts):
        super().__init__(model, services, facts)
        self._items = []
        self._began = 0.0

    def next_command(self):
        return self.channel.next_command()

    def run(self, call, tail):
        """Runs an execution. Returns what runs the following ones."""
        items = self._items
        if not items:
            self._began = time.monotonic()
        done = self._done(call[0], call[1], tail)
        if type(done) is BegunExecution:
            self._flush()
            concurrent = ConcurrentExecutions(self.model, self.services, self.facts)
            concurrent.go_on(call[0], done)
            return concurrent
        items.append(done)
        # More executions have come with this one: their results go together, unless they take long.
        if not self.channel.commands or time.monotonic() - self._began > _FLUSH_SECONDS:
            self._flush()
        return self

    def _flush(self):
        items, self._items = self._items, []
        self.send(items)

    def _done(self, number, wires, tail):
        """The item of an execution that has ended, or the execution that has only begun."""
        requests = []
        try:
            requests = [self.request(wire, tail) for wire in wires]
            self.check_execute()
            returned = self.execute(requests)
            if type(returned) is not list and hasattr(returned, "__await__"):
                if self.is_decoupled:
                    return BegunExecution(requests, returned)
                returned = self._await(returned)
            return channel_module.DONE, number, None, self.answers(requests, returned)
        except BaseException as error:
            self.close(requests)
            return channel_module.DONE, number, self.failure(error), ()

    def _await(self, awaitable):
        import asyncio

        return asyncio.run(_result_of(awaitable))


async def _result_of(returned):
    return await returned if hasattr(returned, "__await__") else returned


class ConcurrentExecutions(Executions):
    """Executions of a coroutine, in a loop on the main thread. The server decides how many there are at a time."""

    def __init__(self, model, services, facts):
        import asyncio

        super().__init__(model, services, facts)
        self._asyncio = asyncio
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self._tasks = set()
        self._last_command = None
        services.runner = self

    def next_command(self):
        """Executes until there is a command that is no execution, and returns it."""
        channel = self.channel
        channel.on_command = lambda: self.loop.call_soon_threadsafe(self._take_commands)
        self.loop.add_reader(channel.fileno(), self._readable)
        self.loop.call_soon(self._take_commands)
        self.loop.run_forever()
        self.loop.remove_reader(channel.fileno())
        channel.on_command = None
        return self._last_command

    def _readable(self):
        if not self.channel.read_available():
            # Another thread reads, until what it waits for has come.
            self.loop.remove_reader(self.channel.fileno())
            self.channel.when_read(self)

    def release(self):
        """The thread that read does not read any more."""
        self.loop.call_soon_threadsafe(self._read_again)

    def _read_again(self):
        self.loop.add_reader(self.channel.fileno(), self._readable)

    def _take_commands(self):
        commands = self.channel.commands
        while commands:
            command = commands.popleft()
            if command[0] != channel_module.EXECUTE:
                self._last_command = command
                self.loop.stop()
                return
            number, wires = command[1]
            self._begin(self._run(number, wires, command[2]))

    def go_on(self, number, begun):
        """Takes over an execution."""
        self._begin(self._run(number, (), None, begun))

    def _begin(self, coroutine):
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task):
        self._tasks.discard(task)
        # A decoupled execution has sent everything before it lets its inputs go.
        self.loop.call_soon(self.channel.flush)

    async def _run(self, number, wires, tail, begun=None):
        requests = []
        is_told = False
        try:
            if begun is None:
                requests = [self.request(wire, tail) for wire in wires]
                returned = self.execute(requests)
            else:
                requests, returned = begun
            execution = self.loop.create_task(_result_of(returned))
            if self.is_decoupled and len(self._tasks) <= _MOST_TASKS:
                # Up to its first wait the model may say that a request runs again. A coroutine that waits goes on by
                # itself: the server gives more requests meanwhile.
                await self._asyncio.sleep(0)
                is_told = not execution.done() and not any(map(self.is_rescheduled, requests))
                if is_told:
                    self.channel.send((channel_module.DONE, number, None, [None] * len(requests)))
            returned = await execution
            answers = self.answers(requests, returned)
            if not is_told:
                self.send([(channel_module.DONE, number, None, answers)])
        except BaseException as error:
            text = self.failure(error)
            if is_told:
                self._fail(requests, text)
            else:
                self.close(requests)
                self.channel.send((channel_module.DONE, number, text, ()))
            if not isinstance(error, Exception):
                raise

    def _fail(self, requests, text):
        """Ends the requests of a decoupled model that have no end."""
        for request in requests:
            if not request._sender._closed:
                self.close([request])
                response = InferenceResponse(error=TritonError(text))
                self.services.send(request._handle, response, 1)
