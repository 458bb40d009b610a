"""A coroutine: answers TOGETHER = how many requests had come, once the file exists that a request names in UNTIL."""

import asyncio
import pathlib

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "UNTIL", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "TOGETHER", "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def initialize(self, args):
        self.running = 0

    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        until = pathlib.Path(pb_utils.get_input_tensor_by_name(request, "UNTIL").as_numpy().item().decode())
        self.running += 1
        until.with_suffix(f".{self.running}").touch()
        together = self.running
        while not until.exists():
            await asyncio.sleep(0.001)
            together = max(together, self.running)
        self.running -= 1
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOGETHER", np.array([together], np.int32))])
