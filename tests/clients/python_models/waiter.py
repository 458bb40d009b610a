"""Y = 2 X, and TOGETHER = the size of the batch, once the files exist that its requests name in UNTIL.

It makes another one, with `.begun` at its end, when it begins to wait.
"""

import pathlib
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_input({"name": "UNTIL", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "TOGETHER", "data_type": "TYPE_INT32", "dims": [1]})
        config.set_max_batch_size(8)
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        for request in requests:
            until = pb_utils.get_input_tensor_by_name(request, "UNTIL").as_numpy()[0, 0].decode()
            if until:
                self.wait(pathlib.Path(until))
        return [self.answer(request, len(requests)) for request in requests]

    def wait(self, gate):
        gate.with_suffix(".begun").touch()
        while not gate.exists():
            time.sleep(0.001)

    def answer(self, request, together):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        together = np.full(x.shape, together, np.int32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x), pb_utils.Tensor("TOGETHER", together)])
