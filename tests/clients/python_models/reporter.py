"""Counts its requests in metrics of its own, and writes what they SAY to the server's log."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "SAY", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "SAID", "data_type": "TYPE_STRING", "dims": [1]})
        return config

    def initialize(self, args):
        kinds = {"asked": "COUNTER", "latest_length": "GAUGE", "lengths": "HISTOGRAM"}
        self.families = {
            name: pb_utils.MetricFamily(name=name, description=f"what is {name}", kind=getattr(pb_utils.MetricFamily, kind))
            for name, kind in kinds.items()
        }
        labels = {"model": args["model_name"], "of": "ours"}
        self.asked = self.families["asked"].Metric(labels=labels)
        self.latest_length = self.families["latest_length"].Metric(labels=labels)
        self.lengths = self.families["lengths"].Metric(labels=labels, buckets=[1.0, 10.0])

    def execute(self, requests):
        return [self.report(request) for request in requests]

    def report(self, request):
        said = pb_utils.get_input_tensor_by_name(request, "SAY")
        text = said.as_numpy().item().decode()
        self.asked.increment(1)
        self.latest_length.set(len(text))
        self.lengths.observe(len(text))
        pb_utils.Logger.log_info(f"info: {text}")
        pb_utils.Logger.log_warn(f"warning: {text}")
        pb_utils.Logger.log_error(f"error: {text}")
        pb_utils.Logger.log_verbose(f"verbose: {text}")
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", said.as_numpy())])
