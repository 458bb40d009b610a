"""Asks a model what ASK describes as JSON: model, inputs as NumPy's types and values, outputs, and any further arguments.

ANSWER, as JSON, is a list of responses: the values of each output, or the error with its code. With "cancel" the model is
asked as a decoupled one, and the request is cancelled after the first response.
"""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "ASK", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "ANSWER", "data_type": "TYPE_STRING", "dims": [1]})
        return config

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        wanted = json.loads(pb_utils.get_input_tensor_by_name(request, "ASK").as_numpy().item())
        cancel = wanted.pop("cancel", False)
        inputs = [pb_utils.Tensor(name, np.array(values, kind)) for name, (kind, values) in wanted.pop("inputs").items()]
        asked = pb_utils.InferenceRequest(
            model_name=wanted.pop("model"), inputs=inputs, requested_output_names=wanted.pop("outputs"), **wanted
        )
        if cancel:
            responses = asked.exec(decoupled=True)
            told = [self.told(next(responses))]
            responses.cancel()
            told += [self.told(response) for response in responses][-1:]
        else:
            told = [self.told(asked.exec())]
        answer = np.array([json.dumps(told)], np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("ANSWER", answer)])

    def told(self, response):
        if response.has_error():
            return {"error": response.error().message(), "code": int(response.error().code())}
        return {
            tensor.name(): [str(value.decode() if isinstance(value, bytes) else value) for value in tensor.as_numpy().flat]
            for tensor in response.output_tensors()
        }
