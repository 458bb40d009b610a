"""Counts the words of a text."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()
            counts = np.array([[len(text.split())] for text in texts[:, 0]], np.int64)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("count", counts)]))
        return responses
