"""Keeps arrays of its requests, gives them away again, and shares memory in other ways; WHAT says which.

OUT = the numbers that X was, after WHAT was done with it.
"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_input({"name": "WHAT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        return config

    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x, what = (pb_utils.get_input_tensor_by_name(request, name) for name in ("X", "WHAT"))
        result = getattr(self, what.as_numpy().item().decode().replace(" ", "_"))(x)
        tensor = result if isinstance(result, pb_utils.Tensor) else pb_utils.Tensor("OUT", result)
        return pb_utils.InferenceResponse([tensor])

    def give_it_back(self, x):
        return x.as_numpy()

    def give_a_part_back(self, x):
        return x.as_numpy()[len(x.as_numpy()) // 2 :]

    def give_it_back_in_steps(self, x):
        return x.as_numpy()[::2]

    def give_it_back_reversed(self, x):
        return x.as_numpy()[::-1]

    def double_it_in_place(self, x):
        array = x.as_numpy()
        array *= 2
        return array

    def keep_it(self, x):
        self.kept.append(x.as_numpy())
        return np.array([len(self.kept)], np.float32)

    def give_what_is_kept(self, x):
        return np.array([array.sum(dtype=np.float64) for array in self.kept], np.float32)

    def give_the_first_that_is_kept(self, x):
        return self.kept[0]

    def forget_it(self, x):
        self.kept.clear()
        return np.zeros(0, np.float32)

    def share_it(self, x):
        return pb_utils.Tensor.from_dlpack("OUT", x)

    def share_it_with_numpy(self, x):
        return np.from_dlpack(x) + 1

    def share_an_array(self, x):
        return pb_utils.Tensor.from_dlpack("OUT", x.as_numpy() + 1)
