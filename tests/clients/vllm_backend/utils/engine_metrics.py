"""The metrics of an engine, among those of the server."""

import triton_python_backend_utils as pb_utils
from vllm.v1.metrics.loggers import StatLoggerBase


class Factory:
    def __init__(self, labels):
        self.labels = labels

    def __call__(self, vllm_config, engine_index):
        return Logger(vllm_config, engine_index, self.labels)


class Logger(StatLoggerBase):
    def __init__(self, vllm_config, engine_index, labels):
        super().__init__(vllm_config=vllm_config, engine_index=engine_index)
        # A metric ends with its family.
        self.families = [
            pb_utils.MetricFamily(name="vllm:prompt_tokens_total", description="Tokens read", kind=pb_utils.MetricFamily.COUNTER),
            pb_utils.MetricFamily(
                name="vllm:e2e_request_latency_seconds", description="Time taken", kind=pb_utils.MetricFamily.HISTOGRAM
            ),
        ]
        tokens, times = self.families
        self.tokens = tokens.Metric(labels=labels)
        self.times = times.Metric(labels=labels, buckets=[0.1, 1.0])

    def record(self, scheduler_stats, iteration_stats):
        self.tokens.increment(iteration_stats.num_prompt_tokens)
        for request in iteration_stats.finished_requests:
            self.times.observe(request.e2e_latency)
