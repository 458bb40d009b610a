"""Sends the words of its text, as models of vLLM do: each in a response of its own if it is decoupled, otherwise all in one."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "text_input", "data_type": "TYPE_STRING", "dims": [1]})
        for name, kind in (
            ("stream", "TYPE_BOOL"),
            ("exclude_input_in_output", "TYPE_BOOL"),
            ("sampling_parameters", "TYPE_STRING"),
        ):
            config.add_input({"name": name, "data_type": kind, "dims": [1], "optional": True})
        config.add_output({"name": "text_output", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(0)
        return config

    def initialize(self, args):
        self.is_decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))

    def execute(self, requests):
        responses = [self.respond(request) for request in requests]
        return None if self.is_decoupled else responses

    def respond(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().item().decode()
        if not self.is_decoupled:
            return self.response(text)
        sender = request.get_response_sender()
        for word in text.split():
            sender.send(self.response(word))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None

    def response(self, text):
        return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([text.encode()], np.object_))])
