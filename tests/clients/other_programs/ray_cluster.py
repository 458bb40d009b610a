"""A cluster of Ray with Serve on the ports for HTTP and gRPC that its arguments name, and a folder for what Ray writes.

Each line that it reads is a command with its arguments as JSON, and it answers with a line.
"""

import json
import os
import sys
import types

import numpy as np
import ray
from ray import serve

from nereid_server.ray import by_queued_work, deployment

APPLICATION = "default"
LIMIT = 60
# What Ray prints is no answer.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def deploy(route_prefix="/", **options):
    serve.run(deployment(**options), name=APPLICATION, route_prefix=route_prefix)


class Answers:
    """An application of ASGI that does no work: requests of each path get the same answer, a list of headers and the body."""

    def __init__(self, answers):
        self.answers = {path: (headers, bytes.fromhex(body)) for path, (headers, body) in answers.items()}

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
            return
        while (await receive()).get("more_body", False):
            pass
        headers, body = self.answers.get(scope["path"], ([], b""))
        named = [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": 200 if body else 404, "headers": named})
        await send({"type": "http.response.body", "body": body})


def deploy_answers(answers, **options):
    replica = serve.ingress(Answers(answers))(type("Replica", (), {}))
    serve.run(serve.deployment(max_ongoing_requests=1000, **options)(replica).bind(), name=APPLICATION)


def delete():
    serve.delete(APPLICATION)


def status():
    """The status of the application, why it is so, that of the deployment, and the number of replicas in each state."""
    application = serve.status().applications[APPLICATION]
    [found] = application.deployments.values()
    return {
        "application": application.status,
        "message": found.message,
        "deployment": found.status,
        "replicas": found.replica_states,
    }


def infer(model, inputs, **parameters):
    arrays = {name: np.array(values, np.int32) for name, values in inputs.items()}
    outputs = serve.get_app_handle(APPLICATION).infer.remote(model, arrays, **parameters).result(timeout_s=LIMIT)
    return {name: array.tolist() for name, array in outputs.items()}


def infer_raw(request):
    return serve.get_app_handle(APPLICATION).infer_raw.remote(bytes.fromhex(request)).result(timeout_s=LIMIT).hex()


def wanted(current, target, queued, busy):
    """How many replicas the policy wants, with the loads of those that are there."""
    metrics = {"queued_work_seconds": dict(enumerate(queued)), "instance_busy_ratio": dict(enumerate(busy))}
    context = {"current_num_replicas": current, "target_num_replicas": target, "aggregated_metrics": metrics}
    return by_queued_work(types.SimpleNamespace(**context))[0]


COMMANDS = {function.__name__: function for function in (deploy, deploy_answers, delete, status, infer, infer_raw, wanted)}

http, grpc, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
# Replicas ask for a processor each, and need none here.
ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20, _temp_dir=folder)
serve.start(
    http_options={"host": "127.0.0.1", "port": http},
    grpc_options={"port": grpc, "grpc_servicer_functions": ["nereid_server.ray.add_servicer"]},
)
print(json.dumps({"answer": "ready"}), file=answers)
for line in sys.stdin:
    command, arguments = json.loads(line)
    try:
        answer = {"answer": COMMANDS[command](**arguments)}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), file=answers)
serve.shutdown()
ray.shutdown()
