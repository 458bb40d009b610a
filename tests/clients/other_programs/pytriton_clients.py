"""Each client of PyTriton asks a server, which the command line names: HTTP, gRPC. Prints what they get, as JSON."""

import asyncio
import json
import sys

import numpy as np
from pytriton.client import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
)

FIRST = np.arange(16, dtype=np.int32)
INPUTS = {"INPUT0": FIRST, "INPUT1": np.full_like(FIRST, 1000)}
COUNT = {"N": np.array([3], np.int32)}


def sum_of(outputs):
    return outputs["OUTPUT0"].tolist()


def plain(url):
    with ModelClient(url, "add_sub") as client:
        batch = client.infer_batch(**{name: np.stack([row, row]) for name, row in INPUTS.items()})
        return [sum_of(client.infer_sample(**INPUTS)), *sum_of(batch)]


async def asynchronous(url):
    async with AsyncioModelClient(url, "add_sub") as client:
        return sum_of(await client.infer_sample(**INPUTS))


def futures(url):
    with FuturesModelClient(url, "add_sub") as client:
        return sum_of(client.infer_sample(**INPUTS).result())


def decoupled(url):
    with DecoupledModelClient(url, "streamer") as client:
        return [response["OUT"].tolist() for response in client.infer_sample(**COUNT)]


async def asynchronous_decoupled(url):
    async with AsyncioDecoupledModelClient(url, "streamer") as client:
        return [response["OUT"].tolist() async for response in client.infer_sample(**COUNT)]


def main(http, grpc):
    seen = {f"plain {scheme}": plain(f"{scheme}://{address}") for scheme, address in (("http", http), ("grpc", grpc))}
    for scheme, address in (("http", http), ("grpc", grpc)):
        seen[f"asynchronous {scheme}"] = asyncio.run(asynchronous(f"{scheme}://{address}"))
    seen["futures http"] = futures(f"http://{http}")
    seen["decoupled grpc"] = decoupled(f"grpc://{grpc}")
    seen["asynchronous decoupled grpc"] = asyncio.run(asynchronous_decoupled(f"grpc://{grpc}"))
    print(json.dumps(seen))


main(*sys.argv[1:])
