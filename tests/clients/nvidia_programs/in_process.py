"""A program that uses NVIDIA's package `tritonserver` as its documentation shows. It prints what it sees, as JSON."""

import asyncio
import json
import sys

import numpy as np
import tritonserver

# What the callback of the log has received: a level and a text.
RECORDS = []


def receive(level, file, line, time_us, message):
    RECORDS.append([level.name, message])


def start(repository):
    options = tritonserver.Options(
        server_id="embedded",
        model_repository=repository,
        model_control_mode=tritonserver.ModelControlMode.EXPLICIT,
        startup_models=["add_sub", "streamer"],
        log_verbose=1,
        log_callback=receive,
        metrics_configuration={"group": {"setting": "value"}},
    )
    return tritonserver.Server(options).start(wait_until_ready=True)


def error_of(action):
    try:
        return action()
    except tritonserver.TritonError as error:
        return [type(error).__name__, str(error)]


async def streamed(model):
    responses = model.async_infer(inputs={"N": np.array([3], np.int32)})
    return [[response.final, *map(numbers, response.outputs.values())] async for response in responses]


def numbers(tensor):
    return np.from_dlpack(tensor).tolist()


def infer_all(server):
    model = server.model("add_sub")
    rows = np.arange(32, dtype=np.int32).reshape(2, 16)
    [added] = model.infer(inputs={"INPUT0": rows, "INPUT1": rows}, request_id="first")
    yield "added", [added.request_id, numbers(added.outputs["OUTPUT0"]) == (rows * 2).tolist()]
    yield "wrong shape", error_of(lambda: list(model.infer(inputs={"INPUT0": rows[:, :3], "INPUT1": rows})))
    yield "streamed", asyncio.run(streamed(server.model("streamer")))
    server.load("identity_bytes")
    [echo] = server.model("identity_bytes").infer(inputs={"INPUT": ["a", "\u00e4"]})
    yield "texts", [text.decode() for text in echo.outputs["OUTPUT"].to_bytes_array()]


def main(repository):
    server = start(repository)
    seen = {"metadata": server.metadata()["name"], "live": server.live()}
    seen["ready"] = {name: server.model(name).ready() for name in ("add_sub", "identity_bytes", "nobody")}
    seen["unknown"] = error_of(lambda: server.model("nobody").metadata())
    seen.update(infer_all(server))
    server.unload("identity_bytes", wait_until_unloaded=True)
    seen["unloaded"] = server.model("identity_bytes").ready()
    seen["statistics"] = server.model("add_sub").statistics()["model_stats"][0]["inference_count"]
    seen["metric"] = 'nv_inference_count{model="add_sub",version="1"} 2' in server.metrics()
    server.stop()
    seen["records"] = RECORDS
    print(json.dumps(seen))


main(sys.argv[1])
