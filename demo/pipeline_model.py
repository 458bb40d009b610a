"""Serves a pipeline of scikit-learn. This file is the model: it needs no configuration beside it.

The pipeline lies beside this file, as `train_pipeline.py` wrote it.
"""

import pathlib
import pickle

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "image", "data_type": "TYPE_FP32", "dims": [64]})
        config.add_output({"name": "probabilities", "data_type": "TYPE_FP32", "dims": [10]})
        config.add_output({"name": "digit", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(64)
        config.set_dynamic_batching()
        return config

    def initialize(self, args):
        # Whoever can write to the model repository can run code here anyway: the pickle is as trusted as this file.
        with open(pathlib.Path(pb_utils.get_model_dir()) / "pipeline.pickle", "rb") as file:
            self.pipeline = pickle.load(file)

    def execute(self, requests):
        """Computes the images of all requests together, and gives each request its part."""
        images = [pb_utils.get_input_tensor_by_name(request, "image").as_numpy() for request in requests]
        probabilities = self.pipeline.predict_proba(np.concatenate(images)).astype(np.float32)
        ends = np.cumsum([len(part) for part in images])[:-1]
        return [self.response(part) for part in np.split(probabilities, ends)]

    def response(self, probabilities):
        digits = np.array([[str(digit)] for digit in probabilities.argmax(axis=1)], np.object_)
        outputs = [pb_utils.Tensor("probabilities", probabilities), pb_utils.Tensor("digit", digits)]
        return pb_utils.InferenceResponse(outputs)
