"""A program with PyTriton that serves a function of Python on the ports of its arguments. Prints what its clients get."""

import json
import sys

import numpy as np
from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig
from tritonclient.http import InferenceServerClient


@batch
def double(x):
    return {"y": 2 * x}


http, grpc, metrics = map(int, sys.argv[1:])
vector = {"dtype": np.float32, "shape": (-1,)}
with Triton(config=TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics)) as triton:
    triton.bind(
        model_name="double",
        infer_func=double,
        inputs=[Tensor(name="x", **vector)],
        outputs=[Tensor(name="y", **vector)],
        config=ModelConfig(max_batch_size=8),
    )
    triton.run()
    answers = {}
    for protocol, port in (("http", http), ("grpc", grpc)):
        with ModelClient(f"{protocol}://127.0.0.1:{port}", "double") as client:
            answers[protocol] = client.infer_sample(np.array([1, 2], np.float32))["y"].tolist()
    with InferenceServerClient(f"127.0.0.1:{http}") as client:
        answers["version"] = client.get_server_metadata()["version"]
print(json.dumps(answers))
