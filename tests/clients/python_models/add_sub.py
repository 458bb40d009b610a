"""OUTPUT0 = INPUT0 + INPUT1 and OUTPUT1 = INPUT0 - INPUT1, of the datatypes that the configuration has."""

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.types = [
            pb_utils.triton_string_to_numpy(pb_utils.get_output_config_by_name(config, name)["data_type"])
            for name in ("OUTPUT0", "OUTPUT1")
        ]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        first, second = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1"))
        results = first + second, first - second
        return pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor(f"OUTPUT{number}", result.astype(kind))
                for number, (result, kind) in enumerate(zip(results, self.types))
            ]
        )

    def finalize(self):
        print("Cleaning up...")
