"""OUTPUT0 is the sum that the model MODEL_NAME computes, and OUTPUT1 the difference that add_sub computes, both at once."""

import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        inputs = [pb_utils.get_input_tensor_by_name(request, name) for name in ("INPUT0", "INPUT1")]
        model = pb_utils.get_input_tensor_by_name(request, "MODEL_NAME").as_numpy()[0].decode()
        wanted = {"OUTPUT0": model, "OUTPUT1": "add_sub"}
        answers = await asyncio.gather(
            *(
                pb_utils.InferenceRequest(model_name=name, requested_output_names=[output], inputs=inputs).async_exec()
                for output, name in wanted.items()
            )
        )
        for answer in answers:
            if answer.has_error():
                return pb_utils.InferenceResponse(error=answer.error())
        outputs = [pb_utils.get_output_tensor_by_name(answer, name) for name, answer in zip(wanted, answers)]
        return pb_utils.InferenceResponse(output_tensors=outputs)
