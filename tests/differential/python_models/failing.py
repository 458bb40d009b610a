"""Fails in the way that `WAY` says; otherwise `WAY` comes back."""

import triton_python_backend_utils as pb_utils

CODES = ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED")


class TritonPythonModel:
    def execute(self, requests):
        return [answer(request) for request in requests]


def answer(request):
    way = int(pb_utils.get_input_tensor_by_name(request, "WAY").as_numpy().reshape(-1)[0])
    if 0 <= way < len(CODES):
        code = getattr(pb_utils.TritonError, CODES[way])
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"failed as wanted: {way}", code))
    if way == len(CODES):
        raise ValueError("raised as wanted")
    output = pb_utils.Tensor("BACK", pb_utils.get_input_tensor_by_name(request, "WAY").as_numpy())
    return pb_utils.InferenceResponse([output])
