"""Decoupled: sends IN as OUT, IN times."""

import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            number = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0]
            arguments = (request.get_response_sender(), int(number))
            threading.Thread(target=self.answer, args=arguments, daemon=True).start()

    def answer(self, sender, number):
        for _ in range(number):
            outputs = [pb_utils.Tensor("OUT", np.array([number], np.int32))]
            sender.send(pb_utils.InferenceResponse(output_tensors=outputs))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
