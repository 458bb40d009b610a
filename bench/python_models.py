"""Writes the models in Python of the benchmark, the same for our server and for the reference.

Usage: python_models.py FOLDER. Writes FOLDER/ours and FOLDER/reference with the models below, FOLDER/four with four copies of
`identity` for each, and FOLDER/count.json, a request for 1,000 responses.

identity        16 FP32 in and out
identity4m      the same with 4 MiB; identity16m with 16 MiB: the output is the array of the input
double4m        4 MiB; the output is a new array
first, second   two copies of identity
bls_chain       asks first, and second with its answer
ensemble_chain  an ensemble that does the same
count           decoupled: as many responses as its input says, one by one

Every model has one instance and no batching.
"""

import json
import pathlib
import sys

RESPONSES = 1000

HEAD = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
"""

IDENTITY = """\
    def execute(self, requests):
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            output = pb_utils.Tensor("OUTPUT0", {result})
            responses.append(pb_utils.InferenceResponse(output_tensors=[output]))
        return responses
"""

BLS = """\
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
        for model in ("first", "second"):
            asked = pb_utils.InferenceRequest(
                model_name=model,
                requested_output_names=["OUTPUT0"],
                inputs=[pb_utils.Tensor("INPUT0", tensor.as_numpy())],
            )
            response = asked.exec()
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            tensor = pb_utils.get_output_tensor_by_name(response, "OUTPUT0")
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUTPUT0", tensor.as_numpy())])
"""

COUNT = """\
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            count = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()[0]
            for number in range(count):
                output = pb_utils.Tensor("OUTPUT0", np.array([number], np.int32))
                sender.send(pb_utils.InferenceResponse(output_tensors=[output]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
"""

CONFIG = """\
max_batch_size: 0
input [ {{ name: "INPUT0" data_type: {kind} dims: [ {size} ] }} ]
output [ {{ name: "OUTPUT0" data_type: {kind} dims: [ {size} ] }} ]
"""
PYTHON = 'backend: "python"\ninstance_group [ { kind: KIND_CPU count: 1 } ]\n'
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
ENSEMBLE = """\
platform: "ensemble"
ensemble_scheduling {
  step [
    { model_name: "first" model_version: -1
      input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "between" } },
    { model_name: "second" model_version: -1
      input_map { key: "INPUT0" value: "between" } output_map { key: "OUTPUT0" value: "OUTPUT0" } }
  ]
}
"""


def write(folder, name, config, source=None, kind="TYPE_FP32", size=16):
    (folder / name / "1").mkdir(parents=True, exist_ok=True)
    (folder / name / "config.pbtxt").write_text(CONFIG.format(kind=kind, size=size) + config)
    if source is not None:
        (folder / name / "1" / "model.py").write_text(HEAD + source)


def write_all(folder):
    same, new = IDENTITY.format(result="array"), IDENTITY.format(result="array + array")
    for server in ("ours", "reference"):
        models = folder / server
        for name in ("identity", "first", "second"):
            write(models, name, PYTHON, same)
        write(models, "identity4m", PYTHON, same, size=1 << 20)
        write(models, "identity16m", PYTHON, same, size=4 << 20)
        write(models, "double4m", PYTHON, new, size=1 << 20)
        write(models, "bls_chain", PYTHON, BLS)
        write(models, "ensemble_chain", ENSEMBLE)
        write(models, "count", PYTHON + DECOUPLED, COUNT, kind="TYPE_INT32", size=1)
        for number in range(4):
            write(folder / "four" / server, f"identity{number}", PYTHON, same)
    (folder / "count.json").write_text(json.dumps([{"INPUT0": [RESPONSES]}]))


write_all(pathlib.Path(sys.argv[1]))
