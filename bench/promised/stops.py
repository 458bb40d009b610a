"""How soon a server ends that is told to stop, whatever it is doing."""

import contextlib
import os
import select
import shutil
import signal
import socket
import statistics
import threading
import time

import adders
import grpc as grpc_library
import numpy as np
import processes
from held import held_inputs
from protocols import GRPC, HTTP, add_sub_inputs
from serving import PATIENCE, command, environment, eventually
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from promised.place import milliseconds_until_end, seconds_until_end, wait_for_end
from promised.promise import Promise, measures

STOPS = 5
BOTH_SIGNALS = (signal.SIGTERM, signal.SIGINT)
ORDER = "production.md, the order of a stop"
AT_ONCE = "at once (0.5 s)"


def idle(place, number):
    def once():
        with place.small() as server:
            return milliseconds_until_end(server.wait_until_ready().process, number)

    return statistics.median(once() for _ in range(STOPS))


REST = "performance.md, Start and rest"


@measures(Promise("end, idle, SIGTERM", REST, "5 to 10 ms", "ms", most=10, judged="median"))
def idle_terminated(place):
    return idle(place, signal.SIGTERM)


@measures(Promise("end, idle, SIGINT", REST, "5 to 10 ms", "ms", most=10, judged="median"))
def idle_interrupted(place):
    return idle(place, signal.SIGINT)


FAILED_RELOAD = "differences.md, a stop after a failed reload"


@measures(Promise("end, after a failed reload (explicit)", FAILED_RELOAD, "milliseconds (< 100 ms)", "ms", most=100))
def reload_refused(place):
    return failed_reload(place, adders.EXPLICIT, "--load-model=a")


@measures(Promise("end, after a failed reload (poll)", FAILED_RELOAD, "milliseconds (< 100 ms)", "ms", most=100))
def reload_logged(place):
    return failed_reload(place, "--model-control-mode=poll", "--repository-poll-secs=1")


def failed_reload(place, *options):
    """The old copy serves until the end."""
    folder = adders.repository_of(place.folder, "a")
    with place.start(folder, *options) as server, HTTP.connect(server) as client:
        server.wait_until_ready()
        (folder / "a" / "1" / "model.onnx").write_text("this is no model")
        if adders.EXPLICIT in options:
            with contextlib.suppress(InferenceServerException):
                client.load_model("a")
        server.wait_for_log("failed to load 'a' version 1")
        assert adders.answer(HTTP, client, "a") == 1
        return milliseconds_until_end(server.process)


CONNECTIONS = "differences.md, idle connections and idle streams when the server stops"


@measures(
    Promise("idle connections close", CONNECTIONS, "after 20 ms (30)", "ms", most=30),
    Promise("an idle connection of the metrics port closes", CONNECTIONS, "after 40 ms (60)", "ms", most=60),
    Promise("end, idle connections are open", None, "100 ms", "ms", most=100),
)
def idle_connections(place):
    """Connections that were used, and some that never sent a byte."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(place.small()).wait_until_ready()
        for protocol in (HTTP, GRPC):
            client = stack.enter_context(protocol.connect(server))
            client.infer("add_sub", add_sub_inputs(protocol)[0])
        ports = (server.http_port, server.http_port, server.grpc_port, server.metrics_port)
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for port in ports]
        idle[0].sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[0].recv(1 << 16).startswith(b"HTTP/1.1 200")
        *closed, of_metrics, ended = until_closed_and_ended(server.process, idle)
        return max(closed), of_metrics, ended


def until_closed_and_ended(process, connections):
    """Milliseconds from a signal until the server has closed each connection, and until it has ended."""
    poll = select.poll()
    for connection in connections:
        poll.register(connection, select.POLLIN)
    closed = {}
    with os.fdopen(os.pidfd_open(process.pid)) as watched:
        begun = time.monotonic()
        process.terminate()
        while len(closed) < len(connections):
            found = poll.poll(1000 * PATIENCE)
            assert found, "the server does not close its connections"
            for descriptor, _ in found:
                poll.unregister(descriptor)
                closed[descriptor] = time.monotonic() - begun
        wait_for_end(watched)
        ended = time.monotonic() - begun
    return [1000 * seconds for seconds in (*(closed[connection.fileno()] for connection in connections), ended)]


@measures(
    Promise("an idle stream closes", CONNECTIONS, "at once (20 ms)", "ms", most=20),
    Promise("end, an idle stream is open", None, "100 ms", "ms", most=100),
)
def idle_stream(place):
    request = service_pb2.ModelInferRequest(model_name="add_sub")
    for name in ("INPUT0", "INPUT1"):
        request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        request.raw_input_contents.append(bytes(64))
    done = threading.Event()

    def requests():
        yield request
        done.wait()

    with place.small() as server, grpc_library.insecure_channel(server.wait_until_ready().grpc) as channel:
        stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(requests())
        try:
            assert not next(stream).error_message
            with os.fdopen(os.pidfd_open(server.process.pid)) as watched:
                begun = time.monotonic()
                server.terminate()
                with contextlib.suppress(grpc_library.RpcError, StopIteration):
                    next(stream)
                closed = time.monotonic() - begun
                wait_for_end(watched)
                return 1000 * closed, 1000 * (time.monotonic() - begun)
        finally:
            done.set()


@measures(
    Promise("end, while a model loads", "production.md, the same signals end a server that still loads", AT_ONCE, "ms", most=500)
)
def loading(place):
    """One model is loaded, and the load of another hangs. The slower one of both signals."""
    times = []
    for number in BOTH_SIGNALS:
        folder = place.new_folder(number.name)
        adders.write_adder(folder, "quick", 1)
        hold = place.shared.gate.hold()
        place.shared.gate.write(folder, "slow", "", load_hold=hold)
        log = place.folder / f"{number.name}.log"
        line = command(folder, place.shared.backends, "--shutdown-delay-secs=60")
        with (
            log.open("wb") as output,
            processes.running(line, env=environment(), stdout=output, stderr=processes.STDOUT) as process,
        ):
            hold.wait_until_running()
            eventually(lambda: "successfully loaded 'quick'" in log.read_text(), "the other model")  # noqa: B023
            times.append(milliseconds_until_end(process, number))
            assert process.wait(PATIENCE) == 0, log.read_text()
    return max(times)


@measures(Promise("end, while a reload hangs", ORDER, AT_ONCE, "ms", most=500))
def reload_hangs(place):
    folder = place.new_folder()
    gate = place.shared.gate
    gate.write(folder, "held", "max_batch_size: 1\n")
    hold = gate.hold()
    gate.write(place.folder, "held", "max_batch_size: 1\n", load_hold=hold)
    with place.start(folder, adders.EXPLICIT, "--load-model=*") as server, GRPC.connect(server) as client:
        server.wait_until_ready()
        shutil.copy(place.folder / "held" / "config.pbtxt", folder / "held")

        def load():
            with contextlib.suppress(InferenceServerException):
                client.load_model("held")

        loader = threading.Thread(target=load)
        loader.start()
        hold.wait_until_running()
        passed = milliseconds_until_end(server.process)
        loader.join()
        return passed


@measures(
    Promise("end, a request takes longer than --exit-timeout-secs=1", ORDER, "1 s", "s", most=1.5, least=1.0),
)
def exit_timeout(place):
    return end_of_endless_request(place, "--exit-timeout-secs=1")


@measures(
    Promise("end, such a request and --shutdown-delay-secs=2", ORDER, "3 s", "s", most=3.5, least=3.0),
)
def exit_timeout_after_delay(place):
    return end_of_endless_request(place, "--exit-timeout-secs=1", "--shutdown-delay-secs=2")


def end_of_endless_request(place, *options):
    with place.small(*options) as server, GRPC.connect(server) as client:
        server.wait_until_ready()
        server.expected_code = 1
        hold = place.shared.gate.hold()
        client.async_infer("held", held_inputs(GRPC, hold), lambda result, error: None)
        hold.wait_until_running()
        return seconds_until_end(server.process)


@measures(
    Promise(
        "end, idle, --shutdown-delay-secs=2", "production.md, Behind a load balancer", "2 s", "s", most=2.5, least=2.0
    ),
)
def delay(place):
    with place.small("--shutdown-delay-secs=2") as server:
        return seconds_until_end(server.wait_until_ready().process)


@measures(
    Promise("end, a sequence does not end, --exit-timeout-secs=4", ORDER, "half of it: 2 s", "s", most=2.5, least=2.0),
)
def sequence(place):
    with place.small("--exit-timeout-secs=4") as server, GRPC.connect(server) as client:
        server.wait_until_ready()
        answered = threading.Event()
        client.start_stream(lambda result, error: answered.set())
        value = [GRPC.input("X", np.array([[1]], np.int32))]
        client.async_stream_infer("accumulate_direct", value, sequence_id=7, sequence_start=True)
        assert answered.wait(PATIENCE), "the sequence has no answer"
        passed = seconds_until_end(server.process)
        client.stop_stream(cancel_requests=True)
        return passed
