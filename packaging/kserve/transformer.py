"""A transformer for KServe: brings the values of rows to the scale that a model was trained with.

`POST /v1/models/NAME:predict` with `{"instances": [[1.5, 20]]}` is answered with `{"predictions": [7.25]}`.
The image needs the packages `kserve` and `numpy`.
"""

import argparse

import kserve
import numpy as np


class Transformer(kserve.Model):
    """Stands before a model with one input of FP32, rows of numbers, whose first output has one number for each row."""

    def __init__(self, name, model_input, mean, deviation):
        super().__init__(name)
        self.model_input = model_input
        self.mean, self.deviation = np.array(mean, np.float32), np.array(deviation, np.float32)

    def preprocess(self, payload, headers=None):
        rows = (np.array(payload["instances"], np.float32) - self.mean) / self.deviation
        tensor = kserve.InferInput(self.model_input, list(rows.shape), "FP32")
        tensor.set_data_from_numpy(rows)
        return kserve.InferRequest(self.name, [tensor])

    def postprocess(self, result, headers=None):
        return {"predictions": result.outputs[0].as_numpy().reshape(-1).tolist()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(parents=[kserve.model_server.parser])
    parser.add_argument("--model_input", default="X", help="the name of the model's input")
    parser.add_argument("--mean", type=float, nargs="+", required=True, help="of each column")
    parser.add_argument("--deviation", type=float, nargs="+", required=True, help="of each column")
    args = parser.parse_args()
    transformer = Transformer(args.model_name, args.model_input, args.mean, args.deviation)
    transformer.load()
    kserve.ModelServer().start([transformer])
