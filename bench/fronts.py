"""Replicas of a server behind HAProxy, Envoy and Ray Serve, and one server without any of them, with the same load.

Usage: fronts.py --rounds N --seconds S [--filter TEXT]. Prints a row of a table in Markdown for each way and protocol:
requests a second, the latencies in us that half of the requests and 99 of 100 do not exceed, and the processor time of a
request in us, of each part: the servers, what is in front (HAProxy, Envoy, or Ray's proxies), Ray's replicas, and the rest of
Ray. Each figure is the median of the rounds. The server is that of the client tests: NEREID_BINARY.
"""

import argparse
import collections
import contextlib
import pathlib
import statistics
import sys
import tempfile
import time
import urllib.parse

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "clients"))

import processes
import programs
import replicas
import repository as models
import requests
from perf_tool import perf_rows
from protocols import HTTP, add_sub_inputs
from ray_clusters import Cluster, haproxy_variables, place
from serving import BINARY, eventually, http_status

CALLERS = 16
PARTS = ("server", "front", "replica", "rest")
PROTOCOLS = ("HTTP", "gRPC")


def descendants(root):
    """The processes that a process has started, and those that these have started."""
    children = collections.defaultdict(list)
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(folder.name))
    found, open_ = set(), [root]
    while open_:
        for child in children[open_.pop()]:
            found.add(child)
            open_.append(child)
    return found


def part_of(process):
    line = processes.line_of(process)
    if line.startswith(str(BINARY)):
        return "server"
    if any(word in line for word in ("haproxy", "envoy", "ProxyActor")):
        return "front"
    return "replica" if "ServeReplica" in line else "rest"


def used(running):
    """The processor time so far of each part, in us: the kernel's clocks of other processes."""
    sums = dict.fromkeys(PARTS, 0.0)
    for process in running:
        with contextlib.suppress(OSError):
            sums[part_of(process)] += time.clock_gettime(~process << 3 | 2) * 1e6
    return sums


class Way:
    """How requests reach the replicas: the addresses of both protocols, and the processes that have to do with them."""

    def __init__(self, http_port, grpc_port, running):
        self.addresses = {"HTTP": f"127.0.0.1:{http_port}", "gRPC": f"127.0.0.1:{grpc_port}"}
        self.running = running


@contextlib.contextmanager
def direct(folder, repository, _count):
    with replicas.Fleet(folder, repository, count=1) as fleet:
        [(http, grpc)], [server] = fleet.ports, fleet.servers
        yield Way(http, grpc, lambda: {server.process.pid})


def behind(front):
    @contextlib.contextmanager
    def way(folder, repository, count):
        with (
            replicas.Fleet(folder, repository, count=count) as fleet,
            replicas.FRONTS[front](folder, "stateless", fleet.ports) as (http, grpc),
        ):
            servers = {server.process.pid for server in fleet.servers}
            yield Way(http, grpc, lambda: servers | processes.with_words(str(folder / "front.json")))

    return way


def ray(variables):
    @contextlib.contextmanager
    def way(_folder, repository, count):
        with place() as where, Cluster(where, **variables(where.folder)) as cluster:
            cluster.deploy(repository, num_replicas=count)
            eventually(lambda: cluster.replicas() == count, "all replicas")
            yield Way(where.http_port, where.grpc_port, lambda: descendants(cluster.pid))

    return way


@contextlib.contextmanager
def ray_without_server(folder, repository, count):
    """Ray with an application that gives the answers of a server without asking one: what Ray itself costs."""
    with replicas.Fleet(folder, repository, count=1) as fleet:
        [(http, _)] = fleet.ports
        inputs = [f"v2/models/add_sub{what}" for what in ("", "/config", "/stats")] + ["v2", "v2/health/ready"]
        answers = [requests.get(f"http://127.0.0.1:{http}/{path}", timeout=processes.PATIENCE) for path in inputs]
        with HTTP.connect(fleet.servers[0]) as client:
            body, length = client.generate_request_body(add_sub_inputs(HTTP)[0])
        head = {"Inference-Header-Content-Length": str(length)}
        address = f"http://127.0.0.1:{http}/v2/models/add_sub/infer"
        answers.append(requests.post(address, data=body, headers=head, timeout=processes.PATIENCE))
    kept = ("content-type", "inference-header-content-length")
    told = {
        urllib.parse.urlsplit(answer.url).path: (
            [(name, answer.headers[name]) for name in kept if name in answer.headers],
            (answer.content or b" ").hex(),
        )
        for answer in answers
    }
    with place() as where, Cluster(where, **haproxy_variables(where.folder)) as cluster:
        cluster.do("deploy_answers", answers=told, num_replicas=count)
        eventually(lambda: cluster.replicas() == count, "all replicas")
        yield Way(where.http_port, where.grpc_port, lambda: descendants(cluster.pid))


WAYS = {
    "directly": (direct, 1),
    "HAProxy, 2 replicas": (behind("haproxy"), 2),
    "HAProxy, 3 replicas": (behind("haproxy"), 3),
    "Envoy, 2 replicas": (behind("envoy"), 2),
    "Envoy, 3 replicas": (behind("envoy"), 3),
    "Ray with HAProxy, 2 replicas": (ray(haproxy_variables), 2),
    "Ray with HAProxy, 3 replicas": (ray(haproxy_variables), 3),
    "Ray with HAProxy and no server, 2 replicas": (ray_without_server, 2),
    "Ray's own proxy, 2 replicas": (ray(lambda _folder: {}), 2),
    "Ray's own proxy, 3 replicas": (ray(lambda _folder: {}), 3),
}


def measure(folder, way, protocol, seconds):
    """One row of the load generator, and the processor time of a request in each part."""
    options = ["add_sub", f"--protocol={protocol.lower()}", f"--url={way.addresses[protocol]}"]
    running = way.running()
    # Once before, so that all connections are there and what is learned has been learned.
    perf_rows(folder, *options, f"--concurrency={CALLERS}", "--duration=1")
    before = used(running)
    [row] = perf_rows(folder, *options, f"--concurrency={CALLERS}", "--warm-up=0", f"--duration={seconds}")
    after, answered = used(running), float(row["requests_per_second"]) * seconds
    assert row["errors"] == "0", row
    times = [(after[part] - before[part]) / answered for part in PARTS]
    return [float(row[name]) for name in ("requests_per_second", "p50_us", "p99_us")] + times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--filter", default="")
    options = parser.parse_args()
    # What is in front is found as for the tests that need it.
    programs.marks |= {"others", "ray"}
    with tempfile.TemporaryDirectory(prefix="nereid-replicas-") as name:
        repository = pathlib.Path(name) / "models"
        repository.mkdir()
        models.add_sub(repository)
        for number, (way_name, (make, count)) in enumerate(WAYS.items()):
            if options.filter not in way_name:
                continue
            folder = pathlib.Path(name) / str(number)
            folder.mkdir()
            with make(folder, repository, count) as way:
                address = way.addresses["HTTP"].rpartition(":")[2]
                eventually(lambda port=int(address): http_status(port, "/v2/health/ready") == 200, "the replicas")
                for protocol in PROTOCOLS[:1] if make is ray_without_server else PROTOCOLS:
                    rounds = [measure(folder, way, protocol, options.seconds) for _ in range(options.rounds)]
                    cells = " | ".join(f"{statistics.median(figures):.0f}" for figures in zip(*rounds))
                    print(f"| {way_name} | {protocol} | {cells} |", flush=True)


main()
