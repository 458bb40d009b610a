"""SUM = the sum of what square_int32 sends for IN: its square."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        asked = pb_utils.InferenceRequest(
            model_name="square_int32",
            requested_output_names=["OUT"],
            inputs=[pb_utils.get_input_tensor_by_name(request, "IN")],
        )
        total = 0
        for answer in asked.exec(decoupled=True):
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            # The last response may have no output.
            if answer.output_tensors():
                total += pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()[0]
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", np.array([total], np.int32))])
