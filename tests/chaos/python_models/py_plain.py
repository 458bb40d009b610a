"""Y = X + 1."""

import numpy as np
import triton_python_backend_utils as pb_utils

GENERATION = 1


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        generation = np.full_like(x, GENERATION)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + 1), pb_utils.Tensor("GEN", generation)])
