"""Decoupled: Y = X, X + 1, ... as often as the first COUNT says."""

import numpy as np
import triton_python_backend_utils as pb_utils

GENERATION = 1


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x, count = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("X", "COUNT"))
            sender = request.get_response_sender()
            for place in range(count.flat[0]):
                outputs = [pb_utils.Tensor("Y", x + place), pb_utils.Tensor("GEN", np.full_like(x, GENERATION))]
                sender.send(pb_utils.InferenceResponse(outputs))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
