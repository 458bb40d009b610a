"""`HEARD` is what the model hears about a request besides its tensors."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("HEARD", np.array([heard(one)], np.object_))]) for one in requests]


def heard(request):
    about = {
        "id": request.request_id(),
        "sequence": request.correlation_id(),
        "flags": request.flags(),
        "timeout": request.timeout(),
        "outputs": sorted(request.requested_output_names()),
        "parameters": json.loads(request.parameters()),
    }
    return json.dumps(about, sort_keys=True)
