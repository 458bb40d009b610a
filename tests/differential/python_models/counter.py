"""Decoupled: the responses 0, 1, ... below `COUNT`, and an error in the place of response `ERROR`."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            count, error = (self.number(request, name) for name in ("COUNT", "ERROR"))
            for index in range(count):
                if index == error:
                    sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(f"failed as wanted at {index}")))
                else:
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("INDEX", np.array([index], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    @staticmethod
    def number(request, name):
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        return -1 if tensor is None else min(int(tensor.as_numpy().reshape(-1)[0]), 5)
