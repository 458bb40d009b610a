"""Decoupled: sends OUT = 0, 1, ... up to N from a thread of its own, or, with a file to TELL, until it is cancelled.

Negative N is how many are sent before an error.
"""

import itertools
import pathlib
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "N", "data_type": "TYPE_INT32", "dims": [1]})
        config.add_input({"name": "TELL", "data_type": "TYPE_STRING", "dims": [1], "optional": True})
        config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]})
        config.set_max_batch_size(0)
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def initialize(self, args):
        self.threads = []

    def execute(self, requests):
        for request in requests:
            n = int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])
            tell = pb_utils.get_input_tensor_by_name(request, "TELL")
            sender = request.get_response_sender()
            if tell is None:
                work, arguments = self.count, (sender, n)
            else:
                work, arguments = self.go_on, (sender, request, pathlib.Path(tell.as_numpy().item().decode()))
            self.threads.append(threading.Thread(target=work, args=arguments))
            self.threads[-1].start()

    def finalize(self):
        for thread in self.threads:
            thread.join()

    def count(self, sender, n):
        for number in range(abs(n)):
            sender.send(self.response(number))
        if n < 0:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no more numbers")))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def go_on(self, sender, request, tell):
        for number in itertools.count():
            if sender.is_cancelled():
                break
            sender.send(self.response(number))
            time.sleep(0.002)
        tell.write_text(f"cancelled after {number}")
        error = pb_utils.TritonError("nobody waits", pb_utils.TritonError.CANCELLED)
        sender.send(pb_utils.InferenceResponse(error=error), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def response(self, number):
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))])
