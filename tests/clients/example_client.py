"""Runs a client that has Triton's default ports in its text, unchanged, against a server on other ports.

Arguments are the addresses of the server for HTTP, gRPC and metrics, the file of the client, and its own arguments.
"""

import functools
import runpy
import sys

import requests
import tritonclient.grpc
import tritonclient.http


def redirect(owner, name, at, addresses):
    """Makes a function take other addresses: its argument `url`, or that at a position."""
    called = getattr(owner, name)

    @functools.wraps(called)
    def redirected(*arguments, **named):
        arguments = list(arguments)
        place, key = (named, "url") if "url" in named else (arguments, at)
        assert place[key] in addresses, f"the client asks {place[key]}"
        place[key] = addresses[place[key]]
        return called(*arguments, **named)

    setattr(owner, name, redirected)


http, grpc, metrics, client, *arguments = sys.argv[1:]
redirect(tritonclient.http.InferenceServerClient, "__init__", 1, {"localhost:8000": http})
redirect(tritonclient.grpc.InferenceServerClient, "__init__", 1, {"localhost:8001": grpc})
redirect(requests, "get", 0, {"http://localhost:8002/metrics": metrics})
sys.argv = [client, *arguments]
runpy.run_path(client, run_name="__main__")
