"""Asks other models: OUT = the answer of MODEL to X, in the way that HOW says."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils

# Inputs and outputs of those that may be asked.
TENSORS = {"identity_fp32": ("INPUT", "OUTPUT"), "streamer": ("N", "OUT")}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_input({"name": "MODEL", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_input({"name": "HOW", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        return config

    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        x, model, how = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("X", "MODEL", "HOW"))
        model = model.item().decode()
        asked = self.question(model, x)
        match how.item().decode():
            case "exec":
                answers = [asked.exec()]
            case "async_exec":
                answers = await asyncio.gather(*(self.question(model, x).async_exec() for _ in range(3)))
            case "decoupled":
                answers = list(asked.exec(decoupled=True))
            case "decoupled async_exec":
                answers = list(await asked.async_exec(decoupled=True))
        numbers = []
        for answer in answers:
            if answer.has_error():
                return pb_utils.InferenceResponse(error=answer.error())
            numbers += [tensor.as_numpy().reshape(-1) for tensor in answer.output_tensors()]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.concatenate(numbers).astype(np.float32))])

    def question(self, model, x):
        name, output = TENSORS.get(model, ("X", "Y"))
        if model == "waiter":
            inputs = [
                pb_utils.Tensor(name, x.reshape(-1, 1)),
                pb_utils.Tensor("UNTIL", np.array([[""]] * len(x), np.object_)),
            ]
        else:
            inputs = [pb_utils.Tensor(name, x.astype(np.int32) if model == "streamer" else x)]
        return pb_utils.InferenceRequest(model_name=model, inputs=inputs, requested_output_names=[output])
