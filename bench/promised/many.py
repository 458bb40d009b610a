"""What a thousand models take."""

import json
import socket
import statistics
import time

import processes
import repository as models
from protocols import HTTP, add_sub_inputs
from serving import BINARY, PATIENCE, environment

from promised.promise import Promise, measures

MODELS = 1000
SCRAPES = 5


@measures(Promise("nereid check of 1,000 models", None, "2 s", "s", most=2.0))
def check(place):
    """Half of them are networks, half are of the backend for pictures."""
    folder = place.new_folder()
    models.write_many(folder, MODELS)
    begun = time.monotonic()
    ended = processes.run([BINARY, "check", "--format=json", folder], env=environment())
    passed = time.monotonic() - begun
    errors = [finding for finding in json.loads(ended.stdout)["findings"] if finding["severity"] == "error"]
    assert [finding["model"] for finding in errors] == ["network1"], ended.stderr
    return passed


SCRAPE = "performance.md, Observing and encrypting"


@measures(
    Promise("a scrape of 1,000 models", SCRAPE, "42 ms (median)", "ms", most=42, judged="median"),
    Promise("length of a scrape of 1,000 models", SCRAPE, "8.1 MB", "MB", most=8.15, judged="median"),
)
def scrape(place):
    with place.start(place.shared.thousand, "--model-load-thread-count=8") as server, HTTP.connect(server) as client:
        server.wait_until_ready()
        inputs, _ = add_sub_inputs(HTTP)
        for number in range(MODELS):
            client.infer(f"m{number}", inputs)
        times, lengths = zip(*(scraped(server) for _ in range(SCRAPES)), strict=True)
        return 1000 * statistics.median(times), lengths[-1] / 1e6


def scraped(server):
    """Seconds and bytes of one answer, of which the client reads no word, as one that only waits for it."""
    length = 0
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.metrics_port), timeout=PATIENCE) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        while piece := connection.recv(1 << 20):
            length += len(piece)
    return time.monotonic() - begun, length
