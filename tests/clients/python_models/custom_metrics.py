"""As identity, and counts the nanoseconds that it takes in a metric of its own, which it reads as TAKEN."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_output({"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_output({"name": "TAKEN", "data_type": "TYPE_FP64", "dims": [1]})
        return config

    def initialize(self, args):
        self.family = pb_utils.MetricFamily(
            name="requests_process_latency_ns",
            description="Cumulative time spent processing requests",
            kind=pb_utils.MetricFamily.COUNTER,
        )
        self.metric = self.family.Metric(labels={"model": args["model_name"], "version": args["model_version"]})

    def execute(self, requests):
        start = time.monotonic_ns()
        arrays = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        self.metric.increment(time.monotonic_ns() - start)
        taken = pb_utils.Tensor("TAKEN", np.array([self.metric.value()], np.float64))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array), taken]) for array in arrays]
