"""Asks the waiter and the streamer many times, in the way that HOW says; SUM = the sum of all that they answer.

It tells by the file that HOW names after a blank that it has dropped an iterator.
"""

import asyncio
import pathlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import triton_python_backend_utils as pb_utils

MANY = 50


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "HOW", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "SUM", "data_type": "TYPE_FP32", "dims": [1]})
        return config

    def initialize(self, args):
        self.threads = ThreadPoolExecutor(16)

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        how, *more = pb_utils.get_input_tensor_by_name(request, "HOW").as_numpy().item().decode().split()
        total = getattr(self, how)(*more)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", np.array([total], np.float32))])

    def threads_that_ask(self):
        return sum(self.threads.map(lambda x: self.value(self.question(x).exec()), range(MANY)))

    def coroutines_that_ask(self):
        async def ask():
            answers = await asyncio.gather(*(self.question(x).async_exec() for x in range(MANY)))
            return sum(self.value(answer) for answer in answers)

        return asyncio.run(ask())

    def threads_that_read_streams(self):
        def read(n):
            *responses, end = self.numbers(n).exec(decoupled=True)
            assert not end.output_tensors()
            return sum(response.output_tensors()[0].as_numpy().item() for response in responses)

        return sum(self.threads.map(read, [20] * MANY))

    def drop_a_stream(self, told):
        stream = self.numbers(0, told).exec(decoupled=True)
        next(stream)
        del stream
        # The server hears of it with the next message at the latest.
        return self.value(self.question(1).exec())

    def threads_that_log_and_count(self):
        family = pb_utils.MetricFamily(name="crowd", description="of a test", kind=pb_utils.MetricFamily.COUNTER)
        metric = family.Metric(labels={"of": "threads"})

        def count(number):
            metric.increment(1)
            pb_utils.Logger.log_info(f"thread {number} {threading.get_ident()}")

        list(self.threads.map(count, range(MANY)))
        return metric.value()

    def question(self, x):
        inputs = [pb_utils.Tensor("X", np.array([[x]], np.float32)), pb_utils.Tensor("UNTIL", np.array([[""]], np.object_))]
        return pb_utils.InferenceRequest(model_name="waiter", inputs=inputs, requested_output_names=["Y"])

    def numbers(self, n, told=None):
        inputs = [pb_utils.Tensor("N", np.array([n], np.int32))]
        if told is not None:
            inputs.append(pb_utils.Tensor("TELL", np.array([str(pathlib.Path(told))], np.object_)))
        return pb_utils.InferenceRequest(model_name="streamer", inputs=inputs, requested_output_names=["OUT"])

    def value(self, response):
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return response.output_tensors()[0].as_numpy().item()
