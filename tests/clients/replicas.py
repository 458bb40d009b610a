"""Replicas of a server, which can be replaced, and HAProxy or Envoy in front of them as `packaging` configures it."""

import contextlib
import copy
import json
import queue
import re

import numpy as np
import proxies
import yaml
from protocols import GRPC, HTTP, add_sub_inputs
from serving import PATIENCE, ROOT, Server, free_ports


class Fleet:
    """Servers, each with ports of its own, which can be replaced."""

    def __init__(self, tmp_path, *arguments, count=2):
        ports = free_ports(2 * count)
        self.ports = list(zip(ports[:count], ports[count:]))
        self._make = lambda index: Server(
            tmp_path, *arguments, f"--http-port={self.ports[index][0]}", f"--grpc-port={self.ports[index][1]}"
        )
        self._started = contextlib.ExitStack()

    def _start(self, index):
        return self._started.enter_context(self._make(index))

    def replace(self, index):
        """Stops the server and starts it anew."""
        server = self.servers[index]
        server.terminate()
        assert server.process.wait(PATIENCE) == 0, server.log_end()
        self.servers[index] = self._start(index)

    def __enter__(self):
        with self._started:
            self.servers = [self._start(index) for index in range(len(self.ports))]
            self._started = self._started.pop_all()
        return self

    def __exit__(self, *error):
        return self._started.__exit__(*error)


def configuration(path, authority):
    """A configuration of `packaging`, with the lines that encrypt if there is an authority whose certificates are trusted."""
    text = (ROOT / "packaging" / path).read_text()
    if authority is None:
        return text
    # What follows the words is for those who want it, as far as it is a comment.
    blocks = re.compile(r"^ *# TLS to the replicas:\n((?: *# .*\n)+)", re.MULTILINE)
    assert len(blocks.findall(text)) == 2, "for HTTP and for gRPC"
    text = blocks.sub(lambda block: re.sub(r"^( *)# ", r"\1", block[1], flags=re.MULTILINE), text)
    return re.sub(r"/etc/\w+/replicas\.pem", str(authority), text)


def haproxy(folder, name, replicas, authority=None):
    """HAProxy with one of the configurations, in front of replicas with these ports. Gives its ports of HTTP and gRPC."""
    def for_all(line):
        """The line of the second replica, for it and for those that come after it."""
        numbers = range(2, len(replicas) + 1)
        return "".join(line[0].replace("replica2", f"replica{number}").replace(".0.2:", f".0.{number}:") for number in numbers)

    text = configuration(f"haproxy/{name}.cfg", authority)
    text = re.sub(r"^ *server replica2 .*\n", for_all, text, flags=re.MULTILINE)
    own = dict(zip((8000, 8001), free_ports(2)))
    for port, used in own.items():
        text = text.replace(f"bind :{port}", f"bind 127.0.0.1:{used}")
    for number, (http, grpc) in enumerate(replicas, start=1):
        text = text.replace(f"10.0.0.{number}:8000", f"127.0.0.1:{http}")
        text = text.replace(f"10.0.0.{number}:8001", f"127.0.0.1:{grpc}")
    assert not re.search(r"10\.0\.0|\b800[01]\b", re.sub("#.*", "", text)), text
    return _running(folder, [proxies.haproxy_program(), "-db", "-f"], text, own)


def envoy(folder, name, replicas, authority=None):
    """Envoy, as `haproxy`."""
    config = yaml.safe_load(configuration(f"envoy/{name}.yaml", authority))
    own = dict(zip((8000, 8001), free_ports(2)))
    for listener in config["static_resources"]["listeners"]:
        address = listener["address"]["socket_address"]
        address |= {"address": "127.0.0.1", "port_value": own[address["port_value"]]}
    for cluster in config["static_resources"]["clusters"]:
        [group] = cluster["load_assignment"]["endpoints"]
        endpoints = group["lb_endpoints"]
        assert [endpoint_address(endpoint)["address"] for endpoint in endpoints] == ["10.0.0.1", "10.0.0.2"]
        endpoints += [copy.deepcopy(endpoints[1]) for _ in replicas[2:]]
        for endpoint, ports in zip(endpoints, replicas, strict=True):
            address = endpoint_address(endpoint)
            address |= {"address": "127.0.0.1", "port_value": ports[address["port_value"] - 8000]}
            check = endpoint["endpoint"].get("health_check_config", {})
            check |= {"port_value": ports[0]} if check else {}
    return _running(folder, [proxies.envoy_program(), "--disable-hot-restart", "-c"], json.dumps(config), own)


def endpoint_address(endpoint):
    return endpoint["endpoint"]["address"]["socket_address"]


@contextlib.contextmanager
def _running(folder, line, config, own):
    # Envoy tells JSON from others by the name.
    path = folder / "front.json"
    path.write_text(config)
    with proxies.listening([*line, path], folder / "front.log", own.values()):
        yield own[8000], own[8001]


FRONTS = {"haproxy": haproxy, "envoy": envoy}


def kept(protocol, address, expected, inputs):
    """Asks on one connection of the library, or as many as it must open. Yields after each answer."""
    with protocol.library.InferenceServerClient(address) as client:
        while True:
            check(client.infer("add_sub", inputs), expected)
            yield


def fresh(protocol, address, expected, inputs):
    """Asks on a new connection each time."""
    while True:
        with protocol.library.InferenceServerClient(address) as client:
            check(client.infer("add_sub", inputs), expected)
        yield


def streams(protocol, address, expected, inputs):
    """Asks on streams of gRPC, five times on each."""
    answers = queue.SimpleQueue()
    while True:
        with protocol.library.InferenceServerClient(address) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            for _ in range(5):
                client.async_stream_infer("add_sub", inputs)
                result, error = answers.get(timeout=PATIENCE)
                if error:
                    raise error
                check(result, expected)
                yield


def check(result, expected):
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), expected + 1000)


# What a client does: its protocol, and how it asks.
LOADS = {
    "HTTP, kept": (HTTP, kept),
    "HTTP, fresh": (HTTP, fresh),
    "gRPC": (GRPC, kept),
    "gRPC, fresh": (GRPC, fresh),
    "gRPC, streams": (GRPC, streams),
}


def keep_asking(protocol, asks, address, done, outcomes):
    """Asks until `done`, and begins anew after an error."""
    inputs, expected = add_sub_inputs(protocol)
    while not done.is_set():
        try:
            for _ in asks(protocol, address, expected, inputs):
                outcomes["answered"] += 1
                if done.wait(0.01):
                    return
        except Exception as error:
            outcomes[f"{type(error).__name__}: {error}"] += 1
