"""Waits until its request is cancelled, says so to the file TELL, and answers that it was."""

import pathlib
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "TELL", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]})
        return config

    def execute(self, requests):
        return [self.wait(request) for request in requests]

    def wait(self, request):
        tell = pathlib.Path(pb_utils.get_input_tensor_by_name(request, "TELL").as_numpy().item().decode())
        tell.with_suffix(".begun").touch()
        while not request.is_cancelled():
            time.sleep(0.001)
        tell.write_text("cancelled")
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("cancelled", pb_utils.TritonError.CANCELLED))
