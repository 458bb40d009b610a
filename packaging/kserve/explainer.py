"""An explainer for KServe: how much each value of a row moved the answer of its model.

The model is asked for the row, and for the row once with each of its values replaced by that of a usual row. The difference
of the two answers is the share of the value. All these rows are one request, which Nereid runs as one batch.

`POST /v1/models/NAME:explain` with `{"instances": [[1.5, 20]]}` is answered with `{"explanations": [[0.25, -3]]}`.
The image needs the packages `kserve` and `numpy`.
"""

import argparse

import kserve
import numpy as np


class Explainer(kserve.Model):
    """Explains a model with one input of FP32, rows of numbers, whose first output has one number for each row."""

    def __init__(self, name, model_input, usual_row):
        super().__init__(name)
        self.model_input = model_input
        self.usual_row = np.array(usual_row, np.float32)

    async def explain(self, payload, headers=None):
        return {"explanations": [await self.shares(row, headers) for row in payload["instances"]]}

    async def shares(self, row, headers):
        rows = np.tile(np.array(row, np.float32), (len(row) + 1, 1))
        # The first row stays as it is.
        columns = np.arange(len(row))
        rows[columns + 1, columns] = self.usual_row
        tensor = kserve.InferInput(self.model_input, list(rows.shape), "FP32")
        tensor.set_data_from_numpy(rows)
        answer = await self.predict(kserve.InferRequest(self.name, [tensor]), headers)
        scores = answer.outputs[0].as_numpy().reshape(len(rows))
        return (scores[0] - scores[1:]).tolist()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(parents=[kserve.model_server.parser])
    parser.add_argument("--model_input", default="X", help="the name of the model's input")
    parser.add_argument("--usual_row", type=float, nargs="+", required=True, help="the values that stand for no value")
    args = parser.parse_args()
    explainer = Explainer(args.model_name, args.model_input, args.usual_row)
    explainer.load()
    kserve.ModelServer().start([explainer])
