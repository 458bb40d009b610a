"""Y = X + 2: what `py_plain` answers to what `plain` answers."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        first, of_plain = self.ask("plain", pb_utils.get_input_tensor_by_name(request, "X"))
        second, of_python = self.ask("py_plain", pb_utils.Tensor("X", first))
        outputs = {"Y": second, "GEN_PLAIN": of_plain, "GEN_PY": of_python}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])

    def ask(self, model, x):
        asked = pb_utils.InferenceRequest(model_name=model, requested_output_names=["Y", "GEN"], inputs=[x])
        answer = asked.exec()
        if answer.has_error():
            raise pb_utils.TritonModelException(answer.error().message())
        return [pb_utils.get_output_tensor_by_name(answer, name).as_numpy() for name in ("Y", "GEN")]
