"""SUM = the sum of what square_int32 sends for IN, asked twice at once: twice its square."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        inputs = [pb_utils.get_input_tensor_by_name(request, "IN")]
        streams = await asyncio.gather(
            *(
                pb_utils.InferenceRequest(
                    model_name="square_int32", requested_output_names=["OUT"], inputs=inputs
                ).async_exec(decoupled=True)
                for _ in range(2)
            )
        )
        total = 0
        for stream in streams:
            for answer in stream:
                if answer.has_error():
                    return pb_utils.InferenceResponse(error=answer.error())
                total += sum(tensor.as_numpy()[0] for tensor in answer.output_tensors())
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", np.array([total], np.int32))])
