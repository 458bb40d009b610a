"""Breaks the rule of an answer that WHAT names, or keeps to it in an unusual way."""

import threading

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "WHAT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "DONE", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "MORE", "data_type": "TYPE_FP32", "dims": [2]})
        return config

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        what = pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy().item().decode()
        return getattr(self, what.replace(" ", "_"))(request)

    def response(self, text="done"):
        return pb_utils.InferenceResponse([pb_utils.Tensor("DONE", np.array([text], np.object_))])

    def answer_with_an_unknown_output(self, request):
        unknown = pb_utils.Tensor("DOEN", np.zeros(1, np.float32))
        return pb_utils.InferenceResponse([*self.response().output_tensors(), unknown])

    def answer_with_text(self, request):
        return "an answer"

    def answer_with_nothing(self, request):
        return None

    def forget_an_output_tensor(self, request):
        return pb_utils.InferenceResponse([None])

    def answer_with_complex_numbers(self, request):
        return pb_utils.InferenceResponse([pb_utils.Tensor("DONE", np.zeros(1, complex))])

    def leave_the_name_out(self, request):
        return pb_utils.InferenceResponse([pb_utils.Tensor("", np.zeros(1, np.float32))])

    def answer_with_tensors_and_an_error(self, request):
        return pb_utils.InferenceResponse(self.response().output_tensors(), pb_utils.TritonError("both"))

    def answer_later(self, request):
        sender = request.get_response_sender()
        threading.Timer(0.05, sender.send, (self.response("later"), FINAL)).start()

    def answer_now_and_finish_later(self, request):
        sender = request.get_response_sender()
        sender.send(self.response("now"))
        threading.Timer(0.05, sender.send, (None, FINAL)).start()

    def send_twice(self, request):
        sender = request.get_response_sender()
        said = []
        for arguments in (None, FINAL), (None, 0), (None, 7), (self.response("once"), 0), (self.response("twice"), 0):
            said.append(self.try_to_send(sender, *arguments))
        said.append(self.try_to_send(sender, None, FINAL))
        said.append(self.try_to_send(sender, None, FINAL))
        self.said = "\n".join(said)

    def tell_what_was_said(self, request):
        return self.response(self.said)

    def try_to_send(self, sender, response, flags):
        try:
            sender.send(response, flags)
        except pb_utils.TritonModelException as error:
            return str(error)
        return "sent"

    def answer_with_another_datatype(self, request):
        return pb_utils.InferenceResponse([pb_utils.Tensor("DONE", np.zeros(1, np.int8))])

    def answer_with_another_shape(self, request):
        return pb_utils.InferenceResponse([pb_utils.Tensor("MORE", np.zeros(3, np.float32))])
