"""Tells which execution a request was in, at which place, and how large that was. An execution waits for its gate.

`GATE` names a file: the model makes `GATE.begun` and waits until `GATE` exists.
"""

import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils

CONTROLS = ("START", "END", "READY", "CORRID")


class TritonPythonModel:
    def initialize(self, args):
        self.executions = 0

    def execute(self, requests):
        self.executions += 1
        for request in requests:
            gate = pb_utils.get_input_tensor_by_name(request, "GATE")
            path = gate.as_numpy().reshape(-1)[0].decode() if gate is not None else ""
            if path:
                with open(f"{path}.begun", "w"):
                    pass
                while not os.path.exists(path):
                    time.sleep(0.001)
        return [self.answer(request, place, len(requests)) for place, request in enumerate(requests)]

    def answer(self, request, place, size):
        told = {"execution": self.executions, "place": place, "size": size}
        for name in CONTROLS:
            control = pb_utils.get_input_tensor_by_name(request, name)
            if control is not None and name != "CORRID":
                told[name] = int(control.as_numpy().reshape(-1)[0])
        output = np.full((len(request.inputs()[0].as_numpy()), 1), json.dumps(told), np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", output)])
