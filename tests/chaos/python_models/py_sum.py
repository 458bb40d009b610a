"""Y = the sum of the X of a sequence. A sequence that this process does not know is refused."""

import numpy as np
import triton_python_backend_utils as pb_utils

GENERATION = 1


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        who, flags = request.correlation_id(), request.flags()
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.sums[who] = 0
        if who not in self.sums:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"sequence {who} is unknown"))
        self.sums[who] += x
        total = self.sums[who]
        if flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            del self.sums[who]
        generation = np.full_like(x, GENERATION)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", total.copy()), pb_utils.Tensor("GEN", generation)])
