"""RUN = how often it has run, Y = X: whose answers come from elsewhere do not count."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "RUN", "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def initialize(self, args):
        self.runs = 0

    def execute(self, requests):
        return [self.run(request) for request in requests]

    def run(self, request):
        self.runs += 1
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("Y", x), pb_utils.Tensor("RUN", np.array([self.runs], np.int32))]
        )
