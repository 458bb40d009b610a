"""What the tests share: a host that notes what it is asked."""

import gc
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import nereid_host  # noqa: E402
from nereid_response import InferenceResponse  # noqa: E402


class RecordingHost:
    """Notes its calls in `calls`. What it refuses stands in `refusals`, by the name of the method; its answers in `answers`."""

    model_name = "model"
    instance = "model_0"
    model_version = 3
    model_dir = "/models/model/3"
    is_decoupled = False

    def __init__(self):
        self.calls = []
        self.refusals = {}
        self.answers = {"metric_family": 1, "metric": 2, "metric_value": 0.5, "is_model_ready": True, "is_cancelled": False}
        self.answers["infer"] = InferenceResponse()

    def __getattr__(self, method):
        if method.startswith("_"):
            raise AttributeError(method)

        def call(*arguments):
            self.calls.append((method, *arguments))
            if method in self.refusals:
                raise nereid_host.TritonModelException(self.refusals[method])
            return self.answers.get(method)

        return call

    async def async_infer(self, request, decoupled):
        return self.infer(request, decoupled)

    def called(self, method):
        return [arguments for name, *arguments in self.calls if name == method]


@pytest.fixture
def host():
    host = RecordingHost()
    nereid_host.connect(host)
    yield host
    # What a test leaves behind must not reach the next one's host.
    gc.collect()
    nereid_host.connect(None)
