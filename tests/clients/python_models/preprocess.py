"""Decodes the pictures of INPUT_0 with Pillow. OUTPUT_0 = their pixels, 8 by 8, from 0 to 1, channels first."""

import io
import json

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image


class TritonPythonModel:
    def initialize(self, args):
        config = pb_utils.get_output_config_by_name(json.loads(args["model_config"]), "OUTPUT_0")
        self.type = pb_utils.triton_string_to_numpy(config["data_type"])

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        files = pb_utils.get_input_tensor_by_name(request, "INPUT_0").as_numpy()
        try:
            pixels = np.stack([self.pixels(file) for file in files.reshape(-1)])
        except OSError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT_0", pixels)])

    def pixels(self, file):
        with Image.open(io.BytesIO(file)) as picture:
            small = picture.convert("RGB").resize((8, 8), Image.Resampling.BILINEAR)
        return (np.asarray(small, self.type) / 255).transpose(2, 0, 1)
