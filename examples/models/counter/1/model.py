"""Adds up what it gets, for each sequence."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        # The sums of the sequences that are running on this instance, by their correlation ids.
        self.sums = {}

    def execute(self, requests):
        return [self.add(request) for request in requests]

    def add(self, request):
        def value(name):
            return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

        sequence = int(value("CORRID").flat[0])
        before = 0 if value("START").flat[0] else self.sums.get(sequence, 0)
        self.sums[sequence] = before + int(value("X").flat[0])
        total = np.array([[self.sums[sequence]]], np.int32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", total)])
