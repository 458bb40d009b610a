"""A sequence's model: SUM = what the sequence of that CORRID has had so far; HEARD = its controls, as JSON."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.step(request)) for request in requests]

    def step(self, request):
        x, start, end, ready, who = (self.value(request, name) for name in ("X", "START", "END", "READY", "CORRID"))
        if not ready:
            # Stands for a sequence that has no request in this batch.
            return []
        total = x + (0 if start else self.sums[who])
        self.sums[who] = total
        if end:
            del self.sums[who]
        who = who.decode() if isinstance(who, bytes) else who
        heard = {"start": start, "end": end, "ready": ready, "corrid": who}
        heard |= {"id": request.correlation_id(), "flags": request.flags(), "open": len(self.sums)}
        return [
            pb_utils.Tensor("SUM", np.array([[total]], np.int32)),
            pb_utils.Tensor("HEARD", np.array([[json.dumps(heard)]], np.object_)),
        ]

    def value(self, request, name):
        return pb_utils.get_input_tensor_by_name(request, name).as_numpy().item()
