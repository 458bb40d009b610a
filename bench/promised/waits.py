"""What takes its time beside requests: traces that nobody takes, calls that are sent again, memory that is freed."""

import os
import socket
import time

import adders
import numpy as np
from protocols import GRPC, HTTP, add_sub_inputs
from recordings import events, recording, replayed
from serving import eventually

from promised.place import LARGE_BYTES, seconds_until_end
from promised.promise import Promise, measures

TRACING = "tracing.md, what traces cost"
BOUND = "5 s, and the end itself"


@measures(
    Promise("end, traces go to a pipe that nobody reads", TRACING, BOUND, "s", most=5.5),
    Promise(
        "slowest of 1,000 requests, traces go to a pipe that nobody reads",
        "differences.md, a slow disk",
        "no delay (0.1 s)",
        "ms",
        most=100,
    ),
)
def disk_hangs(place):
    """Opening a pipe without a reader blocks for ever."""
    os.mkfifo(place.folder / "pipe.0")
    settings = [f"triton,file={place.folder / 'pipe'}", "rate=1", "level=TIMESTAMPS", "level=TENSORS"]
    settings += ["triton,log-frequency=1", "max-buffered-bytes=1048576"]
    with traced(place, settings) as server, GRPC.connect(server.wait_until_ready()) as client:
        slowest = max(ask(client) for _ in range(1000))
        return seconds_until_end(server.process), 1000 * slowest


@measures(Promise("end, traces go to a collector that answers nothing", TRACING, BOUND, "s", most=5.5))
def collector_hangs(place):
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"
        settings = ["mode=opentelemetry", "rate=1", "level=TIMESTAMPS", f"opentelemetry,url={url}"]
        settings += ["opentelemetry,bsp_max_queue_size=100", "opentelemetry,bsp_schedule_delay=10"]
        with traced(place, settings) as server, GRPC.connect(server.wait_until_ready()) as client:
            for _ in range(1000):
                ask(client)
            return seconds_until_end(server.process)


def traced(place, settings):
    return place.small(*(f"--trace-config={setting}" for setting in settings))


def ask(client):
    """Seconds until a request is answered."""
    begun = time.monotonic()
    client.infer("add_sub", add_sub_inputs(GRPC)[0])
    return time.monotonic() - begun


REPLAY = "recording.md, How calls are sent again"
CALLS = 500


@measures(
    Promise("replay, gaps differ (median)", REPLAY, "0.03 ms", "ms", most=0.03, judged="median"),
    Promise("replay, gaps differ (p99)", REPLAY, "1.4 ms", "ms", most=1.4, judged="median"),
)
def replay(place):
    """Calls are recorded, and sent again through another recording: the second has the gaps of the first."""
    with place.small() as server:
        server.wait_until_ready()
        pauses = np.random.default_rng(place.number).uniform(0, 0.004, CALLS)
        with recording(place.new_folder("first"), server) as first, HTTP.connect(first) as client:
            for pause in pauses:
                time.sleep(pause)
                client.is_server_live()
        with recording(place.new_folder("second"), server) as second:
            report = replayed(first.file, second, place.folder)
    assert report["same"] == CALLS, report
    gaps = [np.diff([call["at_us"] for call in events(one.file, "request")]) / 1000 for one in (first, second)]
    differences = np.abs(gaps[0] - gaps[1])
    return float(np.median(differences)), float(np.percentile(differences, 99))


@measures(Promise("replay with --speed 5 of calls 1 s apart", REPLAY, "0.2 s", "s", most=0.5, least=0.2))
def faster_replay(place):
    with place.small() as server:
        server.wait_until_ready()
        with recording(place.folder, server) as proxy, HTTP.connect(proxy) as client:
            client.is_server_live()
            time.sleep(1)
            client.is_server_live()
        return replayed(proxy.file, server, place.folder, "--speed", 5)["elapsed_s"]


@measures(Promise("memory of a model comes back", "production.md, Memory comes back", "within a second, and 0.1 s", "s", most=1.1))
def memory(place):
    """From the end of a model of 100 MB until no more is resident than after the cycle before, and a tenth of the model."""
    with place.start(place.shared.large, adders.EXPLICIT) as server, GRPC.connect(server) as client:

        def cycle():
            client.load_model("large")
            adders.answer(GRPC, client, "large")
            most = server.resident_bytes()
            client.unload_model("large")
            eventually(lambda: adders.is_unloaded(GRPC, client, "large"), "the model to end")
            return most

        cycle()
        # What the runtime keeps is settled after that.
        time.sleep(3)
        limit = server.resident_bytes() + LARGE_BYTES / 10
        assert cycle() > limit + LARGE_BYTES / 2, "the model does not hold what it should"
        begun = time.monotonic()
        eventually(lambda: server.resident_bytes() <= limit, "the memory to come back")
        return time.monotonic() - begun
