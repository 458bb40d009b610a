"""Gives the inputs to the model MODEL_NAME, and returns what that one answers."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        inputs = [pb_utils.get_input_tensor_by_name(request, name) for name in ("INPUT0", "INPUT1")]
        model = pb_utils.get_input_tensor_by_name(request, "MODEL_NAME").as_numpy()[0].decode()
        asked = pb_utils.InferenceRequest(
            model_name=model, requested_output_names=["OUTPUT0", "OUTPUT1"], inputs=inputs
        )
        answer = asked.exec()
        if answer.has_error():
            raise pb_utils.TritonModelException(answer.error().message())
        outputs = [pb_utils.get_output_tensor_by_name(answer, name) for name in ("OUTPUT0", "OUTPUT1")]
        return pb_utils.InferenceResponse(output_tensors=outputs)
