"""Decoupled: sends each number of IN as OUT after its DELAY, with its place as IDX.

`execute` returns before the answers are sent, WAIT milliseconds after it was called. `finalize` waits for the last answer.
"""

import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.open = 0
        self.changed = threading.Condition()

    def execute(self, requests):
        for request in requests:
            with self.changed:
                self.open += 1
            thread = threading.Thread(target=self.answer, args=(request.get_response_sender(), *self.read(request)))
            thread.daemon = True
            thread.start()
        wait = pb_utils.get_input_tensor_by_name(requests[0], "WAIT").as_numpy()[0]
        time.sleep(wait / 1000)
        return None

    def read(self, request):
        return [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("IN", "DELAY")]

    def answer(self, sender, numbers, delays):
        for place, (number, delay) in enumerate(zip(numbers, delays)):
            time.sleep(delay / 1000)
            outputs = [
                pb_utils.Tensor("IDX", np.array([place], np.uint32)),
                pb_utils.Tensor("OUT", np.array([number], np.int32)),
            ]
            sender.send(pb_utils.InferenceResponse(output_tensors=outputs))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        with self.changed:
            self.open -= 1
            self.changed.notify_all()

    def finalize(self):
        with self.changed:
            self.changed.wait_for(lambda: not self.open)
