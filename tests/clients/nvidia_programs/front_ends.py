"""A program that adds the front ends of NVIDIA's package `tritonfrontend` to a server, until its standard input ends.

Arguments are the repository, and the ports of HTTP, gRPC and metrics.
"""

import sys

import tritonserver
from tritonfrontend import KServeGrpc, KServeHttp, Metrics


def main(repository, *ports):
    server = tritonserver.Server(model_repository=repository).start(wait_until_ready=True)
    services = [
        kind(server, kind.Options(address="127.0.0.1", port=int(port)))
        for kind, port in zip((KServeHttp, KServeGrpc, Metrics), ports, strict=True)
    ]
    for service in services:
        service.start()
    print("started", flush=True)
    sys.stdin.read()
    for service in services:
        service.stop()
    server.stop()


main(*sys.argv[1:])
