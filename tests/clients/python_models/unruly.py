"""Does what WHAT says: raises, answers with an error of that code, or breaks the rules of an answer."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "WHAT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "DONE", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(8)
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        wanted = [pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy().item().decode() for request in requests]
        if "raise" in wanted:
            raise ValueError("not today")
        if "no list" in wanted:
            return "nonsense"
        if "too few" in wanted:
            return []
        return [self.answer(what) for what in wanted]

    def answer(self, what):
        if what == "behave":
            return pb_utils.InferenceResponse([pb_utils.Tensor("DONE", np.array([[what]], np.object_))])
        if what == "unknown output":
            return pb_utils.InferenceResponse([pb_utils.Tensor("NOPE", np.array([[what]], np.object_))])
        code = getattr(pb_utils.TritonError, what)
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"told to say {what}", code))
