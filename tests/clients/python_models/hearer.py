"""Tells, as JSON in HEARD, everything it hears about a request besides its tensors, and what it was started with."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "HEARD", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [1]})
        return config

    def initialize(self, args):
        self.args = args | {"model_config": json.loads(args["model_config"])}

    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.outputs(request)) for request in requests]

    def outputs(self, request):
        heard = {
            "args": self.args,
            "directory": pb_utils.get_model_dir(),
            "id": request.request_id(),
            "outputs": sorted(request.requested_output_names()),
            "parameters": json.loads(request.parameters()),
            "timeout": request.timeout(),
        }
        heard = np.array([json.dumps(heard)], np.object_)
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        return [pb_utils.Tensor("HEARD", heard), pb_utils.Tensor("Y", x)]
