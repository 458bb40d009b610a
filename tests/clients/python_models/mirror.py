"""Gives back whatever it is given: INPUT_<datatype> as OUTPUT_<datatype>."""

import triton_python_backend_utils as pb_utils

DATATYPES = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]
DATATYPES += ["FP16", "BF16", "FP32", "FP64", "STRING"]


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        for datatype in DATATYPES:
            tensor = {"data_type": f"TYPE_{datatype}", "dims": [-1]}
            config.add_input(tensor | {"name": f"INPUT_{datatype}", "optional": True})
            config.add_output(tensor | {"name": f"OUTPUT_{datatype}"})
        config.set_max_batch_size(0)
        return config

    def execute(self, requests):
        return [pb_utils.InferenceResponse(list(self.mirrored(request))) for request in requests]

    def mirrored(self, request):
        for tensor in request.inputs():
            name = tensor.name().replace("INPUT", "OUTPUT")
            if name == "OUTPUT_BF16":
                # NumPy has no such datatype.
                yield pb_utils.Tensor.from_dlpack(name, tensor.to_dlpack())
            else:
                yield pb_utils.Tensor(name, tensor.as_numpy())
