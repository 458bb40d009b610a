"""What a server without models costs: time to be ready, memory, and processor time while nobody asks anything.

These are measurements: the second that is slept here is what is measured. The promised figures are those of a release
build (NEREID_RELEASE=1); a debug build may take a few times as much.
"""

import statistics
import subprocess
import time

import pytest
from protocols import GRPC, HTTP, add_sub_inputs
from serving import LENIENCE, PATIENCE, command, environment, free_port, http_status

READY_SECONDS = 0.020 * LENIENCE
RESIDENT_BYTES = 20_000_000 * LENIENCE
# The kernel gives the allocator huge pages when it has some, and counts each of them whole, however little is used.
WITHOUT_HUGE_PAGES = {"MIMALLOC_ALLOW_THP": "0"}
# Clock ticks, mostly of 10 ms each.
TICKS = 0 if LENIENCE == 1 else 4


@pytest.fixture
def empty(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def seconds_until_ready(repository):
    """From before the process is made to its first good answer."""
    port = free_port()
    line = command(repository, f"--http-port={port}")
    started = time.monotonic()
    with subprocess.Popen(line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while http_status(port, "/v2/health/ready") != 200:
            assert process.poll() is None and time.monotonic() < started + PATIENCE
            time.sleep(0.0005)
        passed = time.monotonic() - started
        process.terminate()
        assert process.wait(PATIENCE) == 0
    return passed


def test_a_server_without_models_is_ready_at_once(empty, record_property):
    times = sorted(seconds_until_ready(empty) for _ in range(9))
    record_property("seconds", times)
    print(f"ready after {', '.join(f'{1000 * seconds:.1f}' for seconds in times)} ms")
    assert statistics.median(times) <= READY_SECONDS, times


def idle_ticks(server):
    before = server.processor_ticks()
    time.sleep(1.0)
    return server.processor_ticks() - before


def test_a_server_without_models_needs_hardly_any_memory_and_no_processor(start, empty, record_property):
    server = start(empty, variables=WITHOUT_HUGE_PAGES).wait_until_ready()
    ticks, resident = idle_ticks(server), server.resident_bytes()
    print(f"{resident / 1e6:.1f} MB resident, {ticks} ticks in a second")
    record_property("resident_bytes", resident)
    assert ticks <= TICKS
    assert resident <= RESIDENT_BYTES


def test_a_server_that_has_worked_rests_again(start, repository, backend_option):
    """Models, connections and a stream are there, but nobody asks anything."""
    server = start(repository, backend_option).wait_until_ready()
    with HTTP.connect(server) as http, GRPC.connect(server) as grpc:
        for _ in range(100):
            http.infer("add_sub", add_sub_inputs(HTTP)[0])
            grpc.infer("add_sub", add_sub_inputs(GRPC)[0])
        grpc.start_stream(lambda result, error: None)
        # Threads of the runtime that have just worked look for more work for a moment.
        idle_ticks(server)
        assert idle_ticks(server) <= max(TICKS, 1)
