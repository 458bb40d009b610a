"""Loads, unloads and looks for the model that WHAT names, as `load other`; SAID = what came of it."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "WHAT", "data_type": "TYPE_STRING", "dims": [-1]})
        config.add_output({"name": "SAID", "data_type": "TYPE_STRING", "dims": [1]})
        return config

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        words = [word.decode() for word in pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()]
        try:
            said = self.do(*words)
        except pb_utils.TritonModelException as error:
            said = str(error)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([said], np.object_))])

    def do(self, what, model, *more):
        if what == "load":
            pb_utils.load_model(model_name=model)
        elif what == "load with files":
            text, config = more
            pb_utils.load_model(model_name=model, files={"file:1/model.py": text.encode()}, config=config)
        elif what == "load with wrong files":
            pb_utils.load_model(model_name=model, files=["a", "b"])
        elif what == "unload":
            pb_utils.unload_model(model_name=model, unload_dependents=bool(more))
        else:
            return json.dumps(pb_utils.is_model_ready(model, *more))
        return "done"
