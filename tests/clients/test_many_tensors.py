"""Requests with thousands of inputs and outputs."""

import numpy as np
import pytest
import repository as models
from protocols import GRPC, HTTP
from serving import Server

COUNT = 4000


def graph():
    names = range(COUNT)
    inputs = ", ".join(f"float[n, 1] INPUT{name}" for name in names)
    outputs = ", ".join(f"float[n, 1] OUTPUT{name}" for name in names)
    nodes = "\n".join(f"OUTPUT{name} = Neg(INPUT{name})" for name in names)
    return models.graph(f"wide ({inputs}) => ({outputs}) {{ {nodes} }}")


@pytest.fixture(scope="module")
def wide_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    models.write(folder / "models", "wide", graph(), "instance_group { count: 1 kind: KIND_CPU }\n")
    with Server(folder, folder / "models") as server:
        yield server.wait_until_ready()


@pytest.mark.parametrize(("protocol", "form"), [(HTTP, {"binary_data": True}), (HTTP, {"binary_data": False}), (GRPC, {})])
def test_all_outputs_of_all_inputs_come_back(wide_server, protocol, form):
    inputs = []
    # Not in the order of the configuration.
    for name in reversed(range(COUNT)):
        tensor = protocol.library.InferInput(f"INPUT{name}", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.array([[name]], np.float32), **form)
        inputs.append(tensor)
    outputs = [protocol.output(f"OUTPUT{name}", **form) for name in range(COUNT)]
    with protocol.connect(wide_server, **({} if protocol is GRPC else {"network_timeout": 120})) as client:
        result = client.infer("wide", inputs, outputs=outputs)
    for name in (0, 1, COUNT // 2, COUNT - 1):
        assert result.as_numpy(f"OUTPUT{name}").tolist() == [[-name]]
