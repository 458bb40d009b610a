"""What a server without work takes: the time to be ready, memory, processor time."""

import pathlib
import statistics
import subprocess
import time

from protocols import GRPC, HTTP, add_sub_inputs
from serving import PATIENCE, command, environment, free_port, http_status

from promised.promise import Promise, measures

SECTION = "performance.md, Start and rest"
STARTS = 9
# The kernel gives the allocator huge pages when it has some, and counts each of them whole, however little is used.
WITHOUT_HUGE_PAGES = {"MIMALLOC_ALLOW_THP": "0"}


@measures(Promise("ready, empty repository", SECTION, "2.3 ms (median)", "ms", most=2.3, judged="median"))
def ready(place):
    return 1000 * statistics.median(seconds_until_ready(place.shared.empty) for _ in range(STARTS))


def seconds_until_ready(repository):
    """From before the process is made to its first good answer."""
    port = free_port()
    line = command(repository, f"--http-port={port}")
    begun = time.monotonic()
    # `processes.start` would start another program first, which is not what is measured.
    with subprocess.Popen(line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while http_status(port, "/v2/health/ready") != 200:
                assert process.poll() is None, f"the server ended with {process.returncode}"
                assert time.monotonic() < begun + PATIENCE, "the server does not become ready"
                time.sleep(0.0005)
            passed = time.monotonic() - begun
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
    return passed


def processor_ticks(server):
    """The time that the process has had a processor, in ticks of the kernel: mostly of 10 ms."""
    # The name in parentheses may contain blanks.
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def ticks_in_a_second(server):
    before = processor_ticks(server)
    time.sleep(1.0)
    return processor_ticks(server) - before


@measures(
    Promise("memory, empty repository", SECTION, "13.9 MB", "MB", most=13.9, judged="median"),
    Promise("processor time at rest, empty repository", SECTION, "none", "ticks in 1 s", most=0),
)
def empty(place):
    with place.start(place.shared.empty, variables=WITHOUT_HUGE_PAGES) as server:
        server.wait_until_ready()
        ticks = ticks_in_a_second(server)
        return server.resident_bytes() / 1e6, ticks


@measures(Promise("processor time at rest, after work", SECTION, "none (1 tick is the resolution)", "ticks in 1 s", most=1))
def after_work(place):
    """Models, connections and a stream are there, but nobody asks anything."""
    with place.start(place.shared.everything) as server, HTTP.connect(server) as http, GRPC.connect(server) as grpc:
        server.wait_until_ready()
        for _ in range(100):
            http.infer("add_sub", add_sub_inputs(HTTP)[0])
            grpc.infer("add_sub", add_sub_inputs(GRPC)[0])
        grpc.start_stream(lambda result, error: None)
        # Threads of the runtime that have just worked look for more work for a moment.
        ticks_in_a_second(server)
        return ticks_in_a_second(server)
