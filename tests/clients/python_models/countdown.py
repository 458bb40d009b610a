"""An iterative sequence: one response, when as many executions have passed as X says. STEPS = how many they were."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        # By correlation id: steps to do, steps done.
        self.steps = {}

    def execute(self, requests):
        return [self.step(request) for request in requests]

    def step(self, request):
        who = request.correlation_id()
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.steps[who] = (int(pb_utils.get_input_tensor_by_name(request, "X").as_numpy().item()), 0)
        # The strategy `direct` fills slots without a request.
        wanted, done = self.steps.get(who, (0, 0))
        done += 1
        if done < wanted:
            self.steps[who] = wanted, done
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        self.steps.pop(who, None)
        return pb_utils.InferenceResponse([pb_utils.Tensor("STEPS", np.array([[done]], np.int32))])
