"""Decoupled: Y = X, X + 1, ... as often as the first COUNT says, from a thread, after `execute` has returned."""

import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

GENERATION = 1


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x, count = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("X", "COUNT"))
            arguments = request.get_response_sender(), x.copy(), int(count.flat[0])
            threading.Thread(target=self.answer, args=arguments, daemon=True).start()

    def answer(self, sender, x, count):
        for place in range(count):
            time.sleep(0.002)
            outputs = [pb_utils.Tensor("Y", x + place), pb_utils.Tensor("GEN", np.full_like(x, GENERATION))]
            sender.send(pb_utils.InferenceResponse(outputs))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
