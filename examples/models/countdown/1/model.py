"""Sends a response for each number from the one that it gets down to 1."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            first = int(pb_utils.get_input_tensor_by_name(request, "FROM").as_numpy()[0])
            sender = request.get_response_sender()
            for number in range(first, 0, -1):
                tensor = pb_utils.Tensor("NUMBER", np.array([number], np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
